"""The one-tensor kernels on a GPU: all shapes and types, and what PyTorch does with operators."""

import pytest
import torch

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from one_tensor_checks import Case, check, errors, poisoned_memory, relative  # noqa: E402

from triune import TriuneConfig, TriuneForMaskedLM  # noqa: E402
from triune.kernels import one_tensor  # noqa: E402
from triune.kernels.bias_gelu import bias_gelu  # noqa: E402
from triune.kernels.one_tensor import call, hopper  # noqa: E402
from triune.kernels.one_tensor.reference import one_tensor_reference  # noqa: E402

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
VARIANTS = {
    "as it is": {},
    "without values": {"values": False},
    "rotary": {"rotary": True},
    "causal": {"causal": True},
    "no self": {"mask_diagonal": True},
    "dropout": {"dropout": 0.2},
    "dropout, causal, rotary": {"dropout": 0.2, "causal": True, "rotary": True},
}
MASKED = {**VARIANTS, "masked": {"masked": True}}


@pytest.fixture(autouse=True)
def small_gpu(monkeypatch):
    """The kernels that want a sequence for every multiprocessor take these few too, and programs go round."""
    monkeypatch.setattr(call, "multiprocessors", lambda device: 1)


def on_gpu(lengths, **options):
    return Case(lengths, device="cuda", **{"width": 64, **options})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 127, 128, 192, 256, 320, 384, 448, 511, 512, 1000])
def test_lengths(length, dtype):
    for width in (32, 64, 128) if length in (1, 65, 128, 511) else (64,):
        check(on_gpu([length] * 3, dtype=dtype, width=width))
    if length % 64 == 0:
        check(on_gpu([length] * 3, dtype=dtype, values=False))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [40, 128, 200])
@pytest.mark.parametrize("name", MASKED)
def test_variants(name, length, dtype):
    check(on_gpu([length] * 5, dtype=dtype, **MASKED[name]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("longest", [50, 512])
@pytest.mark.parametrize("name", VARIANTS)
def test_packed(name, longest, dtype):
    lengths = torch.randint(1, longest + 1, (24,), generator=torch.Generator().manual_seed(3)).tolist()
    check(on_gpu([*lengths, 1, longest], dtype=dtype, packed=True, **VARIANTS[name]))


@pytest.mark.skipif(
    not torch.cuda.is_available() or hopper.unusable(torch.device("cuda", 0)) is not None, reason="needs a Hopper GPU"
)
@pytest.mark.parametrize("length", [tiles * 64 for tiles in hopper.BACKWARD])
def test_hopper_kernels_run(length):
    """With zeros in v, whose gradient is divided by it, and a gradient whose heads lie outside."""
    case = on_gpu([length] * 3, dtype=torch.bfloat16)
    shared, score_scale, value_scale = (tensor.requires_grad_() for tensor in case.tensors())
    with torch.no_grad():
        value_scale[0, :5] = 0.0
    d_output = case.random(2, 3 * length, 64).to(torch.bfloat16).transpose(0, 1)
    one_tensor.launched()
    output = one_tensor.attention(shared, score_scale, value_scale, max_length=length)
    grads = torch.autograd.grad(output, (shared, score_scale, value_scale), d_output)
    assert one_tensor.launched() == {"hopper forward": 1, "hopper backward": 1}
    exact_inputs = [tensor.detach().double().requires_grad_() for tensor in (shared, score_scale, value_scale)]
    exact = one_tensor_reference(*exact_inputs, max_length=length)
    for found, expected in zip(grads, torch.autograd.grad(exact, exact_inputs, d_output.double()), strict=True):
        assert relative(found, expected) < 1.2e-2


@pytest.mark.parametrize("length", [64, 128, 256, 512])
def test_sequences_left_to_the_exact_kernel_change_no_others(length):
    """One sequence has scores too large for one exponential; with it in the batch, the others get the same bits."""
    case = on_gpu([length] * 5, dtype=torch.bfloat16)
    shared, score_scale, value_scale = case.tensors()
    d_output = case.random(*shared.shape).to(torch.bfloat16)
    found = []
    for factor in (1.0, 30.0):
        scaled = shared.clone()
        scaled[length : 2 * length] *= factor
        scaled.requires_grad_()
        output = one_tensor.attention(scaled, score_scale, value_scale, max_length=length)
        found.append((output, *torch.autograd.grad(output, scaled, d_output)))
    for once, again in zip(*found, strict=True):
        assert torch.isfinite(again).all()
        assert torch.equal(once[:length], again[:length])
        assert torch.equal(once[2 * length :], again[2 * length :])
        assert not torch.equal(once[length : 2 * length], again[length : 2 * length])


@pytest.mark.parametrize("length", [65, 128, 256, 512])
def test_few_sequences(monkeypatch, length):
    """Fewer than the GPU has multiprocessors: they are shared out."""
    monkeypatch.undo()
    case = on_gpu([length] * 3, dtype=torch.bfloat16)
    one_tensor.launched()
    check(case)
    assert "forward" in one_tensor.launched()


def test_many_heads_and_sequences(monkeypatch):
    """More programs than a GPU runs at a time, so that persistent ones go round."""
    monkeypatch.undo()
    for length in (48, 128, 192, 256, 512):
        check(on_gpu([length] * 300, dtype=torch.bfloat16, heads=12))


@pytest.mark.parametrize("length", [64, 128, 256, 300, 512])
@pytest.mark.parametrize("size", [2.0, 3.0, 4.0])
def test_large_scores_are_no_worse_than_in_sdpa(size, length):
    """Rounding of S∘c to half precision costs both the same; ours rounds the two directions of a score apart."""
    case = on_gpu([length] * 8, dtype=torch.bfloat16, size=size, values=False)
    ours = errors(case)
    case = on_gpu([length] * 8, dtype=torch.bfloat16, size=size, values=False)
    shared, score_scale, _ = case.tensors()
    d_output = case.random(*shared.shape).to(case.dtype)
    theirs = []
    for exact in (False, True):
        s, c = (tensor.double() if exact else tensor for tensor in (shared, score_scale))
        s, c = s.detach().requires_grad_(), c.detach().requires_grad_()
        if exact:
            output = one_tensor_reference(s, c, max_length=length)
        else:
            heads = s.unflatten(0, (8, length)).transpose(1, 2)
            query = heads * c.to(s.dtype)[:, None]
            output = torch.nn.functional.scaled_dot_product_attention(query, heads, heads, scale=1.0)
            output = output.transpose(1, 2).flatten(0, 1)
        theirs.append((output, *torch.autograd.grad(output, (s, c), d_output.to(output.dtype))))
    for name, ran, exact in zip(("output", "d_shared", "d_score"), *theirs, strict=True):
        assert ours[name] < 2.5 * relative(ran, exact) + 5e-3, name


@pytest.mark.parametrize("length", [64, 128, 256, 300, 512])
@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_scores_and_one_hot_rows(dtype, length):
    """Scores of ±1e4 whose gaps are far above rounding: each row has one key, whose state it takes."""
    tokens, width = 4 * length, 64
    generator = torch.Generator().manual_seed(0)
    corners = torch.randint(0, 2, (tokens, 1, width), generator=generator) * 2.0 - 1.0
    shared = (corners * 12.5).to("cuda", dtype).requires_grad_()
    score_scale = torch.ones(1, width, device="cuda", requires_grad=True)  # own scores are 12.5²·64 = 10,000
    with poisoned_memory():
        output = one_tensor.attention(shared, score_scale, max_length=length)
        grads = torch.autograd.grad(output, (shared, score_scale), torch.ones_like(output))
    torch.testing.assert_close(output, shared, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grads[0], torch.ones_like(shared), rtol=1e-2, atol=1e-2)
    assert torch.isfinite(grads[1]).all()
    negative = one_tensor.attention(shared, -score_scale, max_length=length)
    exact = one_tensor_reference(shared.double(), -score_scale.double(), max_length=length)
    torch.testing.assert_close(negative.double(), exact, rtol=2e-2, atol=2e-2)


def test_compiled_whole_captured_and_checkpointed():
    case = on_gpu([128] * 4, dtype=torch.bfloat16)
    shared, score_scale, value_scale = (tensor.clone().requires_grad_() for tensor in case.tensors())

    def run(shared):
        return one_tensor.attention(shared, score_scale, value_scale, max_length=128).float().square().mean()

    plain = torch.autograd.grad(run(shared), shared)[0]
    compiled = torch.compile(run, fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(shared), shared)[0], plain)
    captured = torch.compile(run, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        torch.testing.assert_close(torch.autograd.grad(captured(shared), shared)[0].clone(), plain)
    again = torch.utils.checkpoint.checkpoint(run, shared, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(again, shared)[0], plain)


def test_a_graph_draws_dropout_anew():
    shared, score_scale, _ = on_gpu([64] * 2, dtype=torch.bfloat16).tensors()
    one_tensor.attention(shared, score_scale, max_length=64, dropout=0.5)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = one_tensor.attention(shared, score_scale, max_length=64, dropout=0.5)
    seen = []
    for _ in range(2):
        graph.replay()
        seen.append(output.clone())
    assert not torch.equal(*seen)


def test_opcheck():
    from triune.kernels.one_tensor.ops import one_tensor_backward, one_tensor_forward

    tensors = [tensor.clone().requires_grad_() for tensor in on_gpu([40] * 2, dtype=torch.bfloat16).tensors()]
    rest = (None, None, None, None, None, 40, 0.0, False, False)
    torch.library.opcheck(one_tensor_forward, (*tensors, *rest, True))
    output, levels = one_tensor_forward(*tensors, *rest, True)
    plain = [tensor.detach() for tensor in (output, tensors[0], output, levels, *tensors[1:])]
    torch.library.opcheck(one_tensor_backward, (*plain, *rest))


def test_the_same_every_time():
    shared, score_scale, value_scale = (
        tensor.clone().requires_grad_() for tensor in on_gpu([200] * 40, dtype=torch.bfloat16, heads=4).tensors()
    )
    runs = []
    for _ in range(3):
        output = one_tensor.attention(shared, score_scale, value_scale, max_length=200)
        runs.append(torch.autograd.grad(output.square().sum(), (shared, score_scale, value_scale)))
    for run in runs[1:]:
        assert all(torch.equal(one, other) for one, other in zip(runs[0], run, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_bias_gelu(dtype):
    torch.manual_seed(0)
    x = (2 * torch.randn(3, 333, 3072, device="cuda")).to(dtype).requires_grad_()
    bias = torch.randn(3072, device="cuda", requires_grad=True)
    d_output = torch.randn_like(x)
    with poisoned_memory():
        ours = bias_gelu(x, bias)
        grads = torch.autograd.grad(ours, (x, bias), d_output)
    exact_x, exact_bias = (tensor.detach().double().requires_grad_() for tensor in (x, bias))
    exact = torch.nn.functional.gelu(exact_x + exact_bias)
    assert relative(ours, exact) < 4e-3
    exact_grads = torch.autograd.grad(exact, (exact_x, exact_bias), d_output.double())
    assert relative(grads[0], exact_grads[0]) < 4e-3
    assert relative(grads[1], exact_grads[1]) < 1e-5


def model_of(attention, **options):
    torch.manual_seed(0)
    config = TriuneConfig(
        operator="shared", operator_settings={"role_start": "normal"}, hidden_size=128, num_attention_heads=2,
        num_hidden_layers=2, intermediate_size=256, vocab_size=500, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation=attention, **options,
    )  # fmt: skip
    return TriuneForMaskedLM(config).cuda()


@pytest.mark.parametrize("options", [{}, {"position": "rotary"}, {"norm_position": "pre"}, {"mask_diagonal": True}])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_models(options, padded, compiled):
    if compiled and padded and options.get("mask_diagonal"):
        pytest.skip("goes to SDPA")
    ids = torch.randint(5, 500, (4, 70), device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    mask = torch.ones_like(ids)
    if padded:
        for row, length in enumerate((70, 3, 41, 64)):
            mask[row, length:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    found = []
    for attention in ("one_tensor", "eager"):
        model = model_of(attention, **options)
        run = torch.compile(model) if compiled and attention == "one_tensor" else model
        outputs = run(input_ids=ids, attention_mask=mask if padded else None, labels=labels)
        outputs.loss.backward()
        found.append((outputs.logits * mask[..., None], [p.grad for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-3, atol=1e-3)
    for ours, exact in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(ours, exact, rtol=2e-2, atol=2e-4)


def test_half_precision_models_say_what_ran():
    model = model_of("triune").bfloat16()  # unfolded, and no autocast
    assert model.attention_core.name == "one-tensor"
    assert model.feed_forward_core.name == "bias-gelu"
    assert model.attention_core_for(torch.ones(1, 1, 4, 4, device="cuda")).name == "sdpa"
    ids = torch.randint(5, 500, (2, 30), device="cuda")
    fused = model(input_ids=ids).logits
    model.set_attn_implementation("sdpa")
    model.config.fused_gelu = False
    torch.testing.assert_close(fused, model(input_ids=ids).logits, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("wrapper", ["ddp", "fsdp"])
def test_distributed_wrappers(wrapper, tmp_path):
    import torch.distributed as dist

    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model, plain = model_of("one_tensor"), model_of("one_tensor")
        ids = torch.randint(5, 500, (2, 64), device="cuda")
        if wrapper == "ddp":
            model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
        else:
            from torch.distributed.fsdp import fully_shard

            for layer in model.base_model.encoder.layer:
                fully_shard(layer)
            fully_shard(model)
        losses = []
        for one in (model, plain):
            optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
            for _ in range(3):
                loss = one(input_ids=ids, labels=ids).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    finally:
        dist.destroy_process_group()
