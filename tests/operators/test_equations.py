"""Our operators against the paper's equations, written out a second time and another way: head by head."""

import math

import pytest
import torch

from triune import TriuneError, operators
from triune.operators import AttentionShape
from triune.operators.formula import as_text, evaluate
from triune.testing import attend

SHAPE = AttentionShape(width=12, heads=3)


def built(name, **settings):
    operator = operators.build(name, SHAPE, settings).double()
    with torch.no_grad():
        for parameter in operator.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return operator


def head_by_head(q, k, v, pair=None):
    """softmax(q·U·kᵀ/√D)·v for each head on its own slice of (B, T, d)."""
    outputs = []
    for head, (q_h, k_h, v_h) in enumerate(zip(*(x.split(4, dim=-1) for x in (q, k, v)), strict=True)):
        left = q_h if pair is None else q_h @ pair[head]
        scores = left @ k_h.transpose(1, 2) / math.sqrt(4)
        outputs.append(torch.softmax(scores, dim=-1) @ v_h)
    return torch.cat(outputs, dim=-1)


def expected(name, op, x):
    if name == "standard":
        return head_by_head(op.query(x), op.key(x), op.value(x))
    if name == "symmetric":
        return head_by_head(op.query_key(x), op.query_key(x), op.value(x))
    if name == "pairwise":
        return head_by_head(op.query_key(x), op.query_key(x), op.value(x), op.pair_NDD)
    if name == "kv-tied":
        return head_by_head(op.query(x), op.key_value(x), op.key_value(x))
    s = op.shared(x)
    if name == "qkv-tied":
        return head_by_head(s, s, s)
    return head_by_head(s * op.query_scale, s * op.key_scale, s * op.value_scale)


@pytest.mark.parametrize("name", ["standard", "symmetric", "pairwise", "shared", "kv-tied", "qkv-tied"])
def test_equation(name):
    operator = built(name)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    ours = attend(operator(x, lambda t: t)).flatten(-2)
    torch.testing.assert_close(ours, expected(name, operator, x))


@pytest.mark.parametrize(
    ("role_vectors", "scales"),
    [
        ("joint", lambda op: (op.query_scale, 1, op.value_scale)),
        ("value", lambda op: (1, 1, op.value_scale)),
        ("none", lambda op: (1, 1, 1)),
    ],
)
def test_role_vector_ablations(role_vectors, scales):
    operator = built("shared", role_vectors=role_vectors)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    dq, dk, dv = scales(operator)
    s = operator.shared(x)
    ours = attend(operator(x, lambda t: t)).flatten(-2)
    torch.testing.assert_close(ours, head_by_head(s * dq, s * dk, s * dv))
    costs = type(operator).costs(operator.settings)
    weights = sum(p.numel() for n, p in operator.named_parameters() if not n.endswith("bias"))
    assert evaluate(costs.weights, SHAPE) == weights


def test_shared_makes_no_third_copy():
    """Keys and values are the projection's output itself; only the scaled queries are new memory."""
    roles = built("shared")(torch.randn(2, 5, 12, dtype=torch.float64), lambda t: t)
    assert roles.key_BNTD is roles.value_BNTD
    assert roles.query_BNTD.data_ptr() != roles.key_BNTD.data_ptr()
    assert roles.output_scale_ND is not None


def test_shared_keeps_bfloat16():
    """Role vectors in float32 must not lift activations under autocast."""
    operator = operators.build("shared", SHAPE)
    operator.initialize(0.02)
    with torch.autocast("cpu", torch.bfloat16):
        roles = operator(torch.randn(1, 3, 12), lambda t: t)
    assert {roles.query_BNTD.dtype, roles.key_BNTD.dtype, roles.output_scale_ND.dtype} == {torch.bfloat16}


def test_starts_of_role_vectors():
    wide = AttentionShape(width=1024, heads=4)
    started = {}
    for start in ("ones", "normal", "signed"):
        operator = operators.build("shared", wide, {"role_start": start})
        operator.initialize(0.02)
        started[start] = operator
    ones, normal, signed = (started[start] for start in ("ones", "normal", "signed"))
    assert torch.equal(ones.query_scale, torch.ones(1024))
    assert torch.equal(ones.value_scale, torch.ones(1024))
    assert abs(normal.key_scale.mean().item() - 1) < 0.02
    assert abs(normal.key_scale.std().item() - 0.1) < 0.01
    c = signed.query_scale * signed.key_scale
    assert torch.equal(c.abs(), torch.ones(1024))
    assert 0.4 < (c < 0).float().mean().item() < 0.6
    assert torch.equal(signed.value_scale, torch.ones(1024))


def test_starts_of_pairwise():
    identity = operators.build("pairwise", SHAPE, {"pair_start": "identity"})
    identity.initialize(0.02)
    assert torch.equal(identity.pair_NDD, torch.eye(4).expand(3, 4, 4))
    normal = operators.build("pairwise", AttentionShape(256, 2), {"pair_start": "normal"})
    normal.initialize(0.02)
    assert abs(normal.pair_NDD.std().item() - 0.02) < 0.001


def test_standard_scores_are_not_symmetric():
    """The check of symmetry can fail."""
    roles = built("standard")(torch.randn(1, 5, 12, dtype=torch.float64), lambda t: t)
    scores = roles.query_BNTD @ roles.key_BNTD.transpose(-1, -2)
    assert (scores - scores.transpose(-1, -2)).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "weights", "biases", "flops"),
    [
        ("standard", "3d²", "3d", "6d² + 4Td"),
        ("symmetric", "2d²", "2d", "4d² + 4Td"),
        ("pairwise", "2d² + d²/m", "2d", "4d² + 2d²/m + 4Td"),
        ("shared", "d² + 3d", "d", "2d² + 4Td + 2d"),
    ],
)
def test_formulas_of_table_3(name, weights, biases, flops):
    costs = operators.get(name).costs(operators.settings_for(name, None))
    assert (as_text(costs.weights), as_text(costs.biases), as_text(costs.flops)) == (weights, biases, flops)


@pytest.mark.parametrize(("tokens", "percent"), [(128, 16.2), (512, 15.0)])
def test_layer_arithmetic_saved_by_shared(tokens, percent):
    """Output projection (2d²) and feed-forward (16d²) are the same for both."""
    base = AttentionShape(width=768, heads=12)
    total = {
        name: evaluate(operators.get(name).costs(operators.settings_for(name, None)).flops, base, tokens) + 18 * 768**2
        for name in ("standard", "shared")
    }
    assert round(100 * (1 - total["shared"] / total["standard"]), 1) == percent


@pytest.mark.parametrize("role_vectors", ["separate", "joint"])
def test_a_positive_score_sign_takes_the_absolute_value(role_vectors):
    operator = built("shared", role_vectors=role_vectors, score_sign="positive")
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    s = operator.shared(x)
    c = operator.query_scale * getattr(operator, "key_scale", 1.0)
    assert (c < 0).any()
    torch.testing.assert_close(
        attend(operator(x, lambda t: t)).flatten(-2), head_by_head(s * c.abs(), s, s * operator.value_scale)
    )
    output = torch.nn.Linear(12, 12).double()
    folded = operators.build("shared", SHAPE, {"role_vectors": role_vectors, "score_sign": "positive"}, folded=True)
    before = output(attend(operator(x, lambda t: t)).flatten(-2))
    operator.fold(output)
    assert operator.state_dict().keys() == folded.state_dict().keys()
    torch.testing.assert_close(output(attend(operator(x, lambda t: t)).flatten(-2)), before)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"role_vectors": "value", "score_sign": "positive"}, "has no vector to apply to"),
        ({"role_start": "signed", "score_sign": "positive"}, "leave that out"),
        ({"score_sign": "negative"}, "score_sign"),
    ],
)
def test_score_signs_that_cannot_be(settings, said):
    with pytest.raises(TriuneError, match=said):
        operators.build("shared", SHAPE, settings)
