"""The cores against each other over random shapes, dtypes and masks."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from triune import TriuneError, operators
from triune.kernels import dispatch
from triune.kernels.reference import reference_attention
from triune.kernels.rotary import rotary_tables, rotate
from triune.operators import AttentionShape
from triune.operators.role_vectors import RoleVectorAttention

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


class Core(torch.nn.Module):
    is_causal = False


def run(core, roles, mask, dropout=0.0, training=False):
    output, weights = core(
        Core().train(training), *roles[:3], mask, dropout=dropout, scaling=roles.scale, is_causal=False
    )
    return (output if roles.output_scale_ND is None else output * roles.output_scale_ND), weights


@st.composite
def cases(draw):
    rows, tokens = draw(st.integers(1, 3)), draw(st.integers(1, 19))
    heads, head_width = draw(st.integers(1, 4)), 2 * draw(st.integers(1, 9))
    lengths = draw(st.lists(st.integers(0, tokens), min_size=rows, max_size=rows))
    return {
        "operator": draw(st.sampled_from(operators.names())),
        "shape": AttentionShape(heads * head_width, heads),
        "hidden": (rows, tokens, heads * head_width),
        "dtype": draw(st.sampled_from(list(TOLERANCE))),
        "rotary": draw(st.booleans()),
        "lengths": draw(st.sampled_from([None, lengths])),  # 0: a row that is all padding
        "additive": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**20)),
    }


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_sdpa_equals_reference(case):
    """Outputs and input gradients, in every dtype, against the reference in float64 on the same numbers."""
    torch.manual_seed(case["seed"])
    dtype = case["dtype"]
    has_role_vectors = issubclass(operators.get(case["operator"]), RoleVectorAttention)
    settings = {"role_start": "ones"} if has_role_vectors else None  # heads of two have no halves
    operator = operators.build(case["operator"], case["shape"], settings).to(dtype)
    with torch.no_grad():
        for parameter in operator.parameters():
            parameter.copy_(torch.randn_like(parameter) / case["shape"].width ** 0.5)
    rows, tokens, _ = case["hidden"]
    mask = None
    if case["lengths"] is not None:
        visible = torch.arange(tokens) < torch.tensor(case["lengths"])[:, None]
        mask = visible[:, None, None, :].expand(rows, 1, tokens, tokens)
    hidden = torch.randn(case["hidden"], dtype=dtype)

    def both(core, as_dtype, as_mask):
        x = hidden.to(as_dtype, copy=True).requires_grad_()
        cos, sin = rotary_tables(torch.arange(tokens)[None], case["shape"].head_width, 10_000.0)
        turn = (lambda t: rotate(t, cos, sin)) if case["rotary"] else (lambda t: t)
        output, _ = run(core, operator.to(as_dtype)(x, turn), as_mask)
        (gradient,) = torch.autograd.grad(output.double().square().sum(), x)
        return output.detach(), gradient

    given_mask = mask
    if mask is not None and case["additive"]:
        given_mask = torch.where(mask, torch.zeros((), dtype=dtype), torch.finfo(dtype).min)
    truth, true_gradient = both(reference_attention, torch.float64, mask)
    for core, as_mask in ((reference_attention, given_mask), (ALL_ATTENTION_FUNCTIONS["sdpa"], mask)):
        output, gradient = both(core, dtype, as_mask)
        assert output.dtype == dtype
        tolerance = TOLERANCE[dtype]
        for ours, true in ((output, truth), (gradient, true_gradient)):
            assert ours.isfinite().all()
            torch.testing.assert_close(
                ours.double(), true, rtol=4 * tolerance, atol=4 * tolerance * (1 + true.abs().max().item())
            )
    if case["lengths"] is not None and 0 in case["lengths"]:
        assert truth[case["lengths"].index(0)].abs().max() == 0


def test_reference_gives_weights_that_sum_to_one():
    q = torch.randn(2, 3, 5, 4)
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    mask[1, :, :, 3:] = False
    _, weights = reference_attention(Core().eval(), q, q, q, mask)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5))
    assert weights[1, :, :, 3:].abs().max() == 0


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_dropout_keeps_the_mean_and_changes_with_the_seed(implementation):
    core = dispatch.choose(implementation).function
    q, v = torch.zeros(1, 1, 64, 8), torch.ones(1, 1, 64, 8)
    drawn = [core(Core().train(), q, q, v, None, dropout=0.5, scaling=1.0, is_causal=False)[0] for _ in range(20)]
    assert abs(torch.stack(drawn).mean().item() - 1) < 0.02
    assert not torch.equal(drawn[0], drawn[1])
    kept = core(Core().eval(), q, q, v, None, dropout=0.0, scaling=1.0, is_causal=False)[0]
    torch.testing.assert_close(kept, torch.ones_like(kept))


def test_choice_can_be_asked_for():
    assert dispatch.choose("eager")[:3] == ("reference", "attn_implementation is 'eager'", True)
    assert dispatch.choose("sdpa")[:3] == ("sdpa", "attn_implementation is 'sdpa'", False)
    with pytest.raises(TriuneError, match=r"there are eager, .*one_tensor.*, sdpa, triune"):
        dispatch.choose("sdap")


def test_rotary_depends_on_distance_and_keeps_length():
    x, y = torch.randn(2, 1, 1, 1, 16).unbind()

    def turned(t, position):
        return rotate(t, *rotary_tables(torch.tensor([[position]]), 16, 10_000.0))

    torch.testing.assert_close(turned(x, 0), x)
    torch.testing.assert_close(turned(x, 7).norm(), x.norm())
    torch.testing.assert_close((turned(x, 3) * turned(y, 8)).sum(), (turned(x, 90) * turned(y, 95)).sum())
    assert (turned(x, 3) * turned(y, 8)).sum() != (turned(x, 3) * turned(y, 9)).sum()
