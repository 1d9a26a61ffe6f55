"""Shared attention with a low-rank correction of one role."""

import math

import pytest
import torch

from triune import TriuneError, operators
from triune.kernels.dispatch import NOT_ONE_TENSOR
from triune.operators import AttentionShape
from triune.operators.formula import evaluate
from triune.testing import FORMS, attend, small_batch, small_config, small_model

SHAPE = AttentionShape(width=12, heads=3)
ROLES = ("query", "key", "value")


def attention(*roles):
    """softmax(q·kᵀ/√D)·v in heads of four dimensions."""
    q, k, v = (role.unflatten(-1, (3, 4)) for role in roles)
    weights = torch.softmax(torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(4), dim=-1)
    return torch.einsum("bhij,bjhd->bihd", weights, v)


@pytest.mark.parametrize("role_vectors", ["separate", "joint", "none"])
@pytest.mark.parametrize("role", ROLES)
def test_equation_and_its_gradients(role, role_vectors):
    settings = {"low_rank": 2, "low_rank_role": role, "role_vectors": role_vectors}
    operator = operators.build("shared-low-rank", SHAPE, settings).double()
    with torch.no_grad():
        for parameter in operator.parameters():
            parameter.copy_(torch.randn_like(parameter))
    x = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
    s = operator.shared(x)
    roles = {name: s * getattr(operator, f"{name}_scale", 1) for name in ROLES}
    roles[role] = roles[role] + x @ operator.down_dR @ operator.up_Rd
    results = []
    for output in (attend(operator(x, lambda t: t)), attention(*roles.values())):
        results.append([output, *torch.autograd.grad(output.sin().sum(), [x, *operator.parameters()])])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("role", ROLES)
def test_it_starts_as_shared(role, form):
    """Same logits from the same weights, and a gradient that leads away from them."""
    torch.manual_seed(1)
    settings = {"role_start": "signed", "low_rank_role": role}
    model = type(small_model("shared"))(small_config("shared-low-rank", operator_settings=settings, **FORMS[form]))
    plain = type(model)(small_config("shared", operator_settings={"role_start": "signed"}, **FORMS[form]))
    plain.load_state_dict(model.state_dict(), strict=False)
    batch = small_batch()
    torch.testing.assert_close(model.eval()(**batch).logits, plain.eval()(**batch).logits)
    model(**batch).loss.backward()
    operator = model.bert.encoder.layer[0].attention.self
    assert operator.up_Rd.grad.abs().max() > 0
    assert operator.down_dR.abs().max() > 0


def test_it_says_why_it_does_not_take_the_kernels():
    assert small_model("shared-low-rank").attention_core[:2] == ("sdpa", NOT_ONE_TENSOR)
    with pytest.raises(TriuneError, match=NOT_ONE_TENSOR):
        small_model("shared-low-rank", attn_implementation="one_tensor")(**small_batch())


def test_what_a_decoder_keeps():
    kept = {}
    for role in ROLES:
        settings = operators.settings_for("shared-low-rank", {"low_rank": 2, "low_rank_role": role})
        kept[role] = evaluate(operators.get("shared-low-rank").costs(settings).cached, SHAPE)
    assert kept == {"query": 12, "key": 14, "value": 14}


def test_a_rank_must_be_one():
    with pytest.raises(TriuneError, match="low_rank must be at least 1, not 0"):
        small_config("shared-low-rank", operator_settings={"low_rank": 0})
