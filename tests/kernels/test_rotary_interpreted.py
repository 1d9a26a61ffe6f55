"""Rotary positions in one pass, through Triton's interpreter."""

import os

import pytest
import torch

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.interpreted,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1: `make test`"),
]

from one_tensor_checks import poisoned_memory, relative, results  # noqa: E402

from triune.kernels.rotary import ops, rotary_tables, rotate, rotate_in_one_pass, unsupported  # noqa: E402
from triune.testing import small_batch, small_model  # noqa: E402


def made(batch, heads, tokens, width, rows=1):
    """Heads as a projection of three roles leaves them, and tables for one row of positions or for each."""
    torch.manual_seed(0)
    joint = torch.randn(batch, tokens, 3 * heads * width, dtype=torch.float16)
    x = joint[..., heads * width : 2 * heads * width].unflatten(-1, (heads, width)).transpose(1, 2)
    positions = torch.randint(0, 500, (rows, tokens))
    return x, rotary_tables(positions, width, 10_000.0)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 2), (2, 3, 5, 64), (3, 5, 33, 24, 3), (2, 12, 16, 32, 2), (1, 4, 70, 48), (2, 2, 3, 6, 2)]
)
def test_against_float64(sizes):
    x, (cos, sin) = made(*sizes)
    x = x.requires_grad_()
    exact = x.detach().double().requires_grad_()
    with poisoned_memory():
        ours = rotate_in_one_pass(x, cos, sin)
        d_output = torch.randn(x.shape, dtype=torch.float16)
        [grad] = torch.autograd.grad(ours, x, d_output)
    want = rotate(exact, cos.double(), sin.double())
    torch.testing.assert_close(ours.double(), want, rtol=1e-3, atol=1e-3)
    [grad_want] = torch.autograd.grad(want, exact, d_output.double())
    torch.testing.assert_close(grad.double(), grad_want, rtol=1e-3, atol=1e-3)


def test_strides_do_not_matter():
    x, tables = made(2, 3, 5, 8)
    want = rotate_in_one_pass(x, *tables)
    assert want.transpose(1, 2).is_contiguous()  # what SDPA reads, and its output takes after
    for other in (x.contiguous(), x.mT.contiguous().mT, x[:1].expand(2, -1, -1, -1)):
        first = other.shape[0] if other.stride(0) else 1
        assert torch.equal(rotate_in_one_pass(other, *tables)[:first], want[:first])
    assert torch.equal(rotate_in_one_pass(x, *(table.expand(2, -1, -1, -1) for table in tables)), want)
    assert torch.equal(rotate_in_one_pass(x, *(table.mT.contiguous().mT for table in tables)), want)


def test_opcheck_and_second_derivatives():
    x, tables = made(2, 2, 3, 8)
    x = x.detach().requires_grad_()
    torch.library.opcheck(ops.rotate, (x, *tables, False))
    torch.library.opcheck(ops.rotate, (x, *tables, True))
    [grad] = torch.autograd.grad(rotate_in_one_pass(x, *tables).square().sum(), x, create_graph=True)
    [second] = torch.autograd.grad(grad.sum(), x)
    torch.testing.assert_close(second, torch.full_like(second, 2.0), rtol=2e-3, atol=2e-3)  # |turned x|² is |x|²


def test_shapes_that_do_not_fit():
    x, (cos, sin) = made(2, 2, 3, 8)
    two, three = ((table.expand(rows, -1, -1, -1) for table in (cos, sin)) for rows in (2, 3))
    mixed = cos.expand(2, -1, -1, -1), sin
    strange_ones = [(x[0], cos, sin), (x, cos[..., :2], sin), (x, cos, sin[:, :, :2]), (x, *mixed), (x, *mixed[::-1])]
    strange_ones += [(x, *three), (x[:1], *two), (x[..., :7], cos[..., :3], sin[..., :3])]
    for strange in strange_ones:
        with pytest.raises(ValueError, match="tables must be"):
            rotate_in_one_pass(*strange)


def test_unsupported():
    assert unsupported(torch.device("cpu"), torch.bfloat16) is None
    assert unsupported(torch.device("cpu"), torch.float32) == "torch.float32 is not one of bfloat16, float16"
    assert unsupported(torch.device("meta"), torch.bfloat16) == "no CUDA device"


def turned_model(operator, attention="sdpa", **options):
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96}
    options = {"position": "rotary", "fused_rotary": True, **options}
    return small_model(operator, attn_implementation=attention, **sizes, **options)


@pytest.mark.parametrize("operator", ["standard", "symmetric", "pairwise", "rolled", "shared"])
def test_models(operator):
    """With the kernel and without it: as near to float64 as each other, in logits and every gradient."""
    model, batch = turned_model(operator).half(), small_batch()
    exact = turned_model(operator, "eager").double()
    exact.load_state_dict(model.state_dict())
    truth = results(exact, batch)
    assert model.rotary_core == ("rotate", "fused_rotary is true")
    fused = results(model, batch)
    model.config.fused_rotary = False
    assert model.rotary_core == ("pytorch", "fused_rotary is false")
    plain = results(model, batch)
    assert fused.keys() == plain.keys() == truth.keys()
    assert any(not torch.equal(fused[name], plain[name]) for name in truth)  # two ways, not one
    for name, want in truth.items():
        assert relative(fused[name], want) < 2 * relative(plain[name], want) + 1e-2, name


def test_what_turns_is_said():
    assert turned_model("standard").rotary_core == ("pytorch", "torch.float32 is not one of bfloat16, float16")
    assert turned_model("standard", position="absolute").half().rotary_core is None
    assert turned_model("shared", "one_tensor").half().rotary_core is None  # its kernels turn by themselves
    model = turned_model("standard")
    with torch.autocast("cpu", torch.float16):
        assert model.rotary_core == ("rotate", "fused_rotary is true")


def test_compiled_whole():
    """No break in the graph, and the rotation is one operator for queries and one for keys."""
    layer = turned_model("standard").half().base_model.encoder.layer[1]
    states = torch.randn(2, 5, 64).half()
    tables = rotary_tables(torch.arange(5)[None], 32, 10_000.0)
    seen = []

    def counting(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    compiled = torch.compile(layer, fullgraph=True, backend=counting)
    torch.testing.assert_close(compiled(states, rotary=tables), layer(states, rotary=tables), rtol=0, atol=0)
    assert sum("rotate" in name for name in seen) == 2
