"""Every registered operator, by registration alone."""

import pytest

from triune import operators, testing


@pytest.mark.parametrize("operator", operators.names())
@pytest.mark.parametrize("check", testing.ONCE, ids=lambda check: check.__name__)
def test_once(check, operator):
    check(operator)


@pytest.mark.parametrize("operator", operators.names())
@pytest.mark.parametrize("form", testing.FORMS)
@pytest.mark.parametrize("check", testing.PER_FORM, ids=lambda check: check.__name__)
def test_in_each_form(check, form, operator):
    check(operator, form)
