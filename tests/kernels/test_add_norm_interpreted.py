"""Residual sum and norm through Triton's interpreter."""

import os

import pytest
import torch

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.interpreted,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1: `make test`"),
]

from one_tensor_checks import poisoned_memory, relative, results  # noqa: E402
from transformers.models.bert.modeling_bert import BertOutput  # noqa: E402

from triune.kernels.add_norm import add_norm, ops, unsupported  # noqa: E402
from triune.models.layers import TriuneAttention  # noqa: E402
from triune.testing import small_batch, small_model  # noqa: E402

EPS = 1e-5
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 1e-3}  # the interpreter cuts off where a GPU rounds


def made(shape, dtype):
    torch.manual_seed(0)
    bias, weight, beta, next_bias = (torch.randn(shape[-1]) for _ in range(4))
    x, residual = torch.randn(shape).to(dtype), (1 + 2 * torch.randn(shape)).to(dtype)
    return [tensor.requires_grad_() for tensor in (x, bias, residual, 1 + weight, beta, next_bias)]


def exactly(x, bias, residual, weight, beta, next_bias):
    h = x + bias + residual
    return h + next_bias, torch.nn.functional.layer_norm(h, h.shape[-1:], weight, beta, EPS)


def check(shape, dtype):
    given = made(shape, dtype)
    exact_given = [tensor.detach().double().requires_grad_() for tensor in given]
    d_results = [torch.randn(shape).to(dtype) for _ in range(2)]
    with poisoned_memory():
        ours = add_norm(*given, EPS)
        grads = torch.autograd.grad(ours, given, d_results)
    exact = exactly(*exact_given)
    exact_grads = torch.autograd.grad(exact, exact_given, [d_result.double() for d_result in d_results])
    for found, want, like in zip((*ours, *grads), (*exact, *exact_grads), (*given[:1] * 2, *given), strict=True):
        assert (found.dtype, found.shape) == (like.dtype, like.shape)
        assert relative(found.detach(), want.detach()) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("width", [96, 384, 768])
@pytest.mark.parametrize("rows", [1, 7, 130])
def test_against_float64(rows, width, dtype):
    check((rows, width), dtype)


def test_wide_rows():
    """Tiles of fewer rows, the last of which is not full."""
    check((3, 2048), torch.float16)


@pytest.mark.parametrize("tile", [1, 2, 4])
def test_programs_that_walk(tile, monkeypatch):
    """Few programs for many rows, of which the last has fewer or none."""
    monkeypatch.setattr(ops, "PARTS", 4)
    monkeypatch.setattr(ops, "ROWS", tile)
    for shape in ((3, 7, 96), (9, 40)):
        check(shape, torch.bfloat16)


def test_sums_are_not_rounded():
    """The vectors' gradients are float32 sums: with d_normed = 0 that of either bias is the sum of d_onward."""
    given = made((64, 96), torch.bfloat16)
    onward, _ = add_norm(*given, EPS)
    d_onward = torch.randn(64, 96).bfloat16()
    for grad in torch.autograd.grad(onward, (given[1], given[5]), d_onward):
        torch.testing.assert_close(grad, d_onward.float().sum(0), rtol=1e-6, atol=1e-5)


def test_strided():
    x, bias, residual, *others = (tensor.detach() for tensor in made((6, 64), torch.float16))
    spread = torch.stack([x, residual], -1)
    ours = add_norm(spread[..., 0], bias, spread[..., 1], *others, EPS)
    for found, want in zip(ours, add_norm(x, bias, residual, *others, EPS), strict=True):
        assert torch.equal(found, want)


def test_no_rows():
    given = made((0, 5, 96), torch.bfloat16)
    ours = add_norm(*given, EPS)
    assert [tuple(result.shape) for result in ours] == [(0, 5, 96)] * 2
    for grad, tensor in zip(torch.autograd.grad(ours[0].sum() + ours[1].sum(), given), given, strict=True):
        assert torch.equal(grad, torch.zeros_like(tensor))


def test_opcheck():
    given = made((3, 40), torch.float16)
    torch.library.opcheck(ops.add_norm_forward, (*given, EPS))
    x, _, residual, weight, _, next_bias = (tensor.detach() for tensor in given)
    torch.library.opcheck(ops.add_norm_backward, (x, x, residual, torch.randn(3), torch.rand(3), weight, next_bias))


def test_unsupported():
    device = torch.device("cpu")
    assert unsupported(device, torch.bfloat16, 2048) is None
    assert unsupported(device, torch.float32, 768) == "torch.float32 is not one of bfloat16, float16"
    assert unsupported(device, torch.bfloat16, 2049) == "states are 2049 wide, more than 2048"
    assert unsupported(torch.device("meta"), torch.bfloat16, 768) == "no CUDA device"


# In float16: the interpreter has no bfloat16 products, which the one-tensor core needs.
CORES = [("shared", "one_tensor"), ("shared", "sdpa"), ("standard", "sdpa")]


def half_model(operator, attention="sdpa", **options):
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96}  # heads that the kernels take
    return small_model(operator, norm_position="pre", attn_implementation=attention, **sizes, **options)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(("operator", "attention"), CORES)
def test_models(operator, attention, autocast):
    """With the kernel and without it: as near to float64 as each other, in logits and every gradient."""
    model, batch = half_model(operator, attention), small_batch()
    exact = half_model(operator, "eager").double()
    exact.config.fused_norm = False
    if not autocast:
        model = model.half()
        exact.load_state_dict(model.state_dict())
    truth = results(exact, batch)
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        assert model.norm_core == ("add-norm", "fused_norm is true")
    fused = results(model, batch, autocast)
    model.config.fused_norm = False
    assert model.norm_core == ("pytorch", "fused_norm is false")
    plain = results(model, batch, autocast)
    assert fused.keys() == plain.keys() == truth.keys()
    assert not torch.equal(fused["logits"], plain["logits"])  # two ways, not one
    for name, want in truth.items():
        assert relative(fused[name], want) < 2 * relative(plain[name], want) + 1e-2, name


def test_what_stands_in_the_way():
    model = half_model("shared").half()
    layer = model.base_model.encoder.layer[0]

    def reason(dtype=torch.float16):
        return layer.norm_core(torch.device("cpu"), dtype).reason

    assert reason() == "fused_norm is true"
    assert reason(torch.float32) == "torch.float32 is not one of bfloat16, float16"
    both = (layer.output, layer.attention.output)
    parts = [*both, *(one for part in both for one in (part.dense, part.dropout, part.LayerNorm))]
    for module in (layer.feed_forward_norm, *parts):
        hook = module.register_forward_hook(lambda *given: None)
        assert reason() == CHANGED
        hook.remove()
    hook = layer.attention.register_forward_hook(lambda *given: None)
    assert reason() == LOOKED_AT
    hook.remove()
    layer.output.dropout.p = 0.1
    assert reason() == "fused_norm is true"
    layer.train()
    assert reason() == "hidden states are dropped"
    layer.output.dropout.p = 0.0
    layer.chunk_size_feed_forward = 1
    assert reason() == "the feed-forward half runs in chunks"
    layer.chunk_size_feed_forward = 0
    assert reason() == "fused_norm is true"
    with torch.no_grad():
        assert reason() == "no gradients are computed, and what it saves is in theirs"
    model.config.norm_position = "post"
    assert reason() == "norm_position is 'post', not 'pre'"


CHANGED = "the norm or a projection beside it is more than that"
LOOKED_AT = "the attention is another, or a hook on it is to be shown the residual sum"


class OwnAttention(TriuneAttention):
    def forward(self, hidden_states, attention_mask=None, **others):
        states, maps = super().forward(hidden_states, attention_mask)
        return 2 * states, maps


class OwnOutput(BertOutput):
    def forward(self, states, residual):
        return super().forward(states, 0.5 * residual)


class Wrapped(torch.nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, states, mask=None, **others):
        states, maps = self.attention(states, mask)
        return 2 * states, maps


def change_chunk(layer):
    layer.feed_forward_chunk = lambda states: 3 * states


CHANGES = {
    "sandwich": (lambda layer: setattr(layer.output, "LayerNorm", torch.nn.LayerNorm(64).half()), CHANGED),
    "chunk": (change_chunk, CHANGED),
    "output": (lambda layer: setattr(layer.output, "__class__", OwnOutput), CHANGED),
    "wrapped": (lambda layer: setattr(layer, "attention", Wrapped(layer.attention)), LOOKED_AT),
    "attention": (lambda layer: setattr(layer.attention, "__class__", OwnAttention), LOOKED_AT),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_layer_that_was_changed_computes_one_function(name):
    """With gradients as without."""
    change, why = CHANGES[name]
    layer = half_model("shared").half().base_model.encoder.layer[1]
    states = torch.randn(2, 5, 64).half()
    before = layer(states)
    change(layer)
    assert layer.norm_core(states.device, states.dtype).reason == why
    found = layer(states)
    assert not torch.equal(found, before)
    with torch.no_grad():
        assert torch.equal(found, layer(states))


def test_shapes_that_do_not_fit():
    x, bias, residual, *others = (tensor.detach() for tensor in made((4, 96), torch.float16))
    for strange in ((x, bias, residual[:1], *others), (x, bias[:1], residual, *others)):
        with pytest.raises(ValueError, match="must have the shape of x"):
            add_norm(*strange, EPS)


def test_a_residual_in_another_dtype_is_left_to_pytorch():
    """Autocast in a layer that is given float32, as the embeddings of a model never do."""
    layer = half_model("standard").base_model.encoder.layer[1]
    with torch.autocast("cpu", torch.float16):
        states = layer(torch.randn(2, 5, 64))
    assert states.dtype == torch.float32
    assert states.isfinite().all()


def test_recorded_states_and_checkpointing():
    model, batch = half_model("standard", "eager").half(), small_batch()
    before = results(model, batch)
    recorded = model(**batch, output_attentions=True, output_hidden_states=True)
    assert (len(recorded.hidden_states), len(recorded.attentions)) == (3, 2)
    assert model.norm_core.name == "add-norm"  # though transformers' hooks stay
    again = model(**batch, output_attentions=True)
    for found, want in zip(again.attentions, recorded.attentions, strict=True):
        assert torch.equal(found, want)
    again = half_model("standard", "eager").half().train()
    again.gradient_checkpointing_enable()
    assert again.norm_core.name == "add-norm"
    for name, found in results(again, batch).items():
        torch.testing.assert_close(found, before[name], rtol=0, atol=0, msg=name)


@pytest.mark.parametrize(("operator", "attention"), CORES)
def test_compiled_whole(operator, attention):
    """Two kernels and no break in the graph."""
    layer = half_model(operator, attention).half().base_model.encoder.layer[1]
    states = torch.randn(2, 5, 64).half()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found, want = compiled(states), layer(states)
    torch.testing.assert_close(found, want, rtol=0, atol=0)
    d_output, parameters = torch.randn_like(want), list(layer.parameters())
    ours, plain = (torch.autograd.grad(states, parameters, d_output) for states in (found, want))
    for grad, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(grad, other, rtol=1e-2, atol=1e-2)
