"""Rolled attention against its equation, written as one product over explicit head numbers."""

import math

import pytest
import torch

from triune import TriuneError, operators
from triune.kernels.dispatch import NOT_ONE_TENSOR
from triune.operators import AttentionShape
from triune.testing import attend, small_batch, small_config, small_model


def built(shape, **settings):
    torch.manual_seed(5)
    operator = operators.build("rolled", shape, settings).double()
    with torch.no_grad():
        for parameter in operator.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return operator


def expected(operator, x, query_roll, value_roll):
    """Head h from the slices h + a, h and h + b."""
    heads, width = operator.shape.heads, operator.shape.head_width
    s = operator.slices(x).unflatten(-1, (heads, width))
    scale = {name: getattr(operator, f"{name}_scale", torch.ones(s.shape[-2] * width)) for name in ("query", "key")}
    dv = getattr(operator, "value_scale", torch.ones(heads * width)).view(heads, width)
    dq, dk = (scale[name].view(heads, width) for name in ("query", "key"))
    q = torch.stack([s[:, :, (h + query_roll) % heads] for h in range(heads)], dim=2) * dq
    v = torch.stack([s[:, :, (h + value_roll) % heads] for h in range(heads)], dim=2) * dv
    weights = torch.softmax(torch.einsum("bihd,bjhd->bhij", q, s * dk) / math.sqrt(width), dim=-1)
    return torch.einsum("bhij,bjhd->bihd", weights, v)


@pytest.mark.parametrize("role_vectors", ["separate", "joint", "value", "none"])
@pytest.mark.parametrize(("query_roll", "value_roll"), [(1, 2), (1, 0), (0, 1), (-1, 3)])
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_equation_and_its_gradients(query_roll, value_roll, heads, role_vectors):
    rolls = {"query_roll": query_roll, "value_roll": value_roll}
    operator = built(AttentionShape(8 * heads, heads), role_vectors=role_vectors, **rolls)
    x = torch.randn(2, 5, 8 * heads, dtype=torch.float64, requires_grad=True)
    results = []
    for output in (attend(operator(x, lambda t: t)), expected(operator, x, query_roll, value_roll)):
        results.append([output, *torch.autograd.grad(output.sin().sum(), [x, *operator.parameters()])])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


def test_the_three_are_different_slices():
    """With three heads or more; in a model of two, two heads further is the head itself."""
    x = torch.randn(1, 3, 24, dtype=torch.float64)
    for heads, distinct in ((4, 3), (3, 3), (2, 2), (1, 1)):
        roles = built(AttentionShape(24, heads), role_vectors="none")(x, lambda t: t)[:3]
        assert len({tuple(role[0, 0].flatten().tolist()) for role in roles}) == distinct


def test_what_does_not_roll_is_not_copied():
    operator = built(AttentionShape(24, 4), query_roll=1, value_roll=0)
    roles = operator(torch.randn(2, 5, 24, dtype=torch.float64), lambda t: t)
    assert roles.key_BNTD.data_ptr() == roles.value_BNTD.data_ptr()
    roles = built(AttentionShape(24, 4))(torch.randn(2, 5, 24, dtype=torch.float64), lambda t: t)
    assert len({role.untyped_storage().data_ptr() for role in roles[:3]}) == 3


def test_rotated_scores_depend_on_the_distance_only():
    """The same tokens a few positions later have the same logits, whatever the role vectors became."""
    model = small_model("rolled", position="rotary").double()
    ids = small_batch()["input_ids"]
    positions = torch.arange(ids.shape[1])[None]
    with torch.no_grad():
        here, later = (model(ids, position_ids=positions + shift).logits for shift in (0, 9))
        swapped = model(ids, position_ids=positions.flip(1)).logits
    torch.testing.assert_close(later, here, rtol=1e-5, atol=1e-5)  # angles are float32
    assert not torch.allclose(swapped, here, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("role_vectors", ["separate", "joint", "value", "none"])
def test_folding_merges_the_vectors(role_vectors):
    shape, settings = AttentionShape(24, 4), {"role_vectors": role_vectors}
    operator, output = built(shape, **settings), torch.nn.Linear(24, 24).double()
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    before = output(attend(operator(x, lambda t: t)).flatten(-2))
    operator.fold(output)
    assert operator.state_dict().keys() == operators.build("rolled", shape, settings, folded=True).state_dict().keys()
    torch.testing.assert_close(output(attend(operator(x, lambda t: t)).flatten(-2)), before)


def test_it_says_why_it_does_not_take_the_kernels():
    assert small_model("rolled").attention_core[:2] == ("sdpa", NOT_ONE_TENSOR)
    with pytest.raises(TriuneError, match=NOT_ONE_TENSOR):
        small_model("rolled", attn_implementation="one_tensor")(**small_batch())


def test_a_checkpoint_of_one_is_not_the_other(tmp_path):
    small_model("rolled").save_pretrained(tmp_path)
    with pytest.raises(TriuneError, match="holds the operator 'rolled'"):
        type(small_model("shared")).from_pretrained(tmp_path, operator="shared")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"query_roll": 0, "value_roll": 0}, "which is the operator 'shared'"),
        ({"query_roll": 0.5}, "query_roll"),
        ({"role_vectors": "none", "role_start": "signed"}, "no vector to sign"),
    ],
)
def test_settings_that_do_not_apply(settings, says):
    with pytest.raises(TriuneError, match=says):
        small_config("rolled", operator_settings=settings)


def test_rolled_keeps_bfloat16():
    operator = operators.build("rolled", AttentionShape(24, 4))
    operator.initialize(0.02)
    with torch.autocast("cpu", torch.bfloat16):
        roles = operator(torch.randn(1, 3, 24), lambda t: t)
    assert {role.dtype for role in (*roles[:3], roles.output_scale_ND)} == {torch.bfloat16}
