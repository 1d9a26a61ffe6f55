"""Which value is of the wrong type, in words."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from triune.typed import mistyped


@dataclass
class Settings:
    count: int = 1
    share: float | int = 0.5
    name: str | None = None
    kind: Literal["one", "two"] | None = "one"
    named: "str" = ""  # as text: whoever wrote it knows what it is
    anything: Any = None
    whether: bool = True
    many: list = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"count": "x"}, "count must be a whole number, not 'x'"),
        ({"count": True}, "count must be a whole number, not True"),
        ({"count": 1, "share": "x"}, "share must be a number, not 'x'"),
        ({"name": 3}, "name must be a text or nothing (null), not 3"),
        ({"kind": "three"}, "kind must be one of one, two or nothing (null), not 'three'"),
        ({"whether": 1}, "whether must be true or false, not 1"),
        ({"many": {}}, "many must be a list, not {}"),
        ({"many": "long " * 20}, "many must be a list, not 'long long long long long long long long..."),
    ],
)
def test_what_does_not_fit_is_said(values, said):
    assert mistyped(Settings, values) == said


def test_what_fits_or_cannot_be_told():
    assert mistyped(Settings, {"count": 2, "share": 1, "name": None, "kind": None, "named": 3, "anything": 4}) is None
    assert mistyped(Settings, {"unknown": 1, "kind": "two", "whether": False, "many": []}) is None
