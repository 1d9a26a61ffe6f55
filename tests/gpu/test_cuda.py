"""On a CUDA device: `make test-gpu`. Every operator, core and dtype; compiled; with dropout and padding."""

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from triune import TriuneForMaskedLM, TriuneModel, operators, preset
from triune.kernels.add_norm import add_norm
from triune.kernels.packing import Packing
from triune.kernels.reference import reference_attention
from triune.kernels.rotary import rotary_tables, rotate, rotate_in_one_pass
from triune.operators import AttentionShape
from triune.testing import FORMS, attend
from triune.training.masking import Masking

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 4e-2, torch.float16: 6e-3}


@pytest.mark.parametrize("tokens", [1, 63, 128, 511])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("operator", operators.names())
def test_cores_against_float64(operator, dtype, tokens):
    shape = AttentionShape(256, 4)
    built = operators.build(operator, shape).cuda()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(torch.randn_like(parameter) / 16)
    hidden = torch.randn(3, tokens, 256, device="cuda")
    lengths = torch.tensor([tokens, (tokens + 1) // 2, 0], device="cuda")
    visible = (torch.arange(tokens, device="cuda") < lengths[:, None])[:, None, None, :]
    mask = visible.expand(3, 1, tokens, tokens)
    built, hidden = built.to(dtype), hidden.to(dtype)
    truth = attend(built.double()(hidden.double(), lambda x: x), mask)
    roles = built.to(dtype)(hidden, lambda x: x)
    for core in (reference_attention, ALL_ATTENTION_FUNCTIONS["sdpa"]):
        module = torch.nn.Identity().eval()
        module.is_causal = False
        output, _ = core(module, *roles[:3], mask, scaling=roles.scale)
        output = output if roles.output_scale_ND is None else output * roles.output_scale_ND
        assert output.isfinite().all()
        tolerance = TOLERANCE[dtype] * (1 + truth.abs().max().item())
        # The third row is all padding. It is finite everywhere, and zero but for cuDNN, which leaves it unmasked.
        torch.testing.assert_close(output[:2].double(), truth[:2], rtol=TOLERANCE[dtype], atol=tolerance)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("operator", operators.names())
def test_compiled_training_step(operator, form):
    """bfloat16 autocast, padding, compiled whole: finite, and the loss of the uncompiled model."""
    torch.manual_seed(0)
    config = preset("mini", operator=operator, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **FORMS[form])
    model = TriuneForMaskedLM(config).cuda()
    tokens = torch.randint(1000, 2000, (8, 96), device="cuda")
    mask = torch.ones_like(tokens)
    mask[3:, 50:] = 0
    labels = tokens.masked_fill(mask == 0, -100)  # padding may run packed, and be nothing then
    losses = []
    torch._dynamo.reset()
    for run in (model, torch.compile(model, fullgraph=True)):
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(tokens, mask, labels=labels).loss
        loss.backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
        losses.append(loss.item())
    assert abs(losses[0] - losses[1]) < 2e-2


def test_token_types_that_are_left_out_are_zeros():
    model = TriuneForMaskedLM(preset("mini", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)).cuda()
    tokens = torch.randint(1000, 2000, (8, 96), device="cuda")
    table = model.bert.embeddings.token_type_embeddings.weight
    found = []
    for types in (None, torch.zeros_like(tokens)):
        loss = model(tokens, token_type_ids=types, labels=tokens).loss
        found.append((loss, torch.autograd.grad(loss, table)[0]))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("operator", ["standard", "shared"])
def test_inference_is_one_cuda_graph(operator):
    """Pieces would be launched one by one from Python, which takes longer than all that they compute."""
    model = TriuneModel(preset("mini", operator=operator), add_pooling_layer=False).cuda().bfloat16().eval()
    tokens = torch.randint(1000, 2000, (2, 128), device="cuda")
    torch._dynamo.reset()
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)

    @torch.inference_mode()
    def run():
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(input_ids=tokens).last_hidden_state.clone()

    for _ in range(3):  # compile, record, replay
        found = run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    assert sum(event.name == "cudaGraphLaunch" for event in profile.events()) == 1
    with torch.inference_mode():
        torch.testing.assert_close(found, model(input_ids=tokens).last_hidden_state, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("operator", operators.names())
def test_learns_with_dropout(operator):
    torch.manual_seed(0)
    model = TriuneForMaskedLM(preset("mini", operator=operator, norm_position="pre", masked_only_loss=True)).cuda()
    tokens = torch.randint(1000, 1040, (16, 64), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    losses = []
    for _ in range(60):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("heads", [12, 5])
@pytest.mark.parametrize("rows", [1, 3])  # of positions: one for all, or one each
def test_rotation(rows, heads):
    """Against float64, on heads as a projection of three roles leaves them."""
    pytest.importorskip("triton")
    torch.manual_seed(0)
    joint = torch.randn(3, 77, 3 * heads * 64, device="cuda").bfloat16()
    x = joint[..., : heads * 64].unflatten(-1, (heads, 64)).transpose(1, 2).requires_grad_()
    cos, sin = rotary_tables(torch.randint(0, 500, (rows, 77), device="cuda"), 64, 10_000.0)
    exact = x.detach().double().requires_grad_()
    ours, want = rotate_in_one_pass(x, cos, sin), rotate(exact, cos.double(), sin.double())
    d_output = torch.randn_like(ours)
    grads = torch.autograd.grad(ours, x, d_output), torch.autograd.grad(want, exact, d_output.double())
    for found, right in ((ours, want), (grads[0][0], grads[1][0])):
        assert ((found.double() - right).norm() / right.norm()).item() < 4e-3


def test_rotary_models_with_the_kernel():
    """Compiled to one graph, forward and backward, with the gradients of queries and keys as without it."""
    pytest.importorskip("triton")
    torch.manual_seed(0)
    # Dropped states would be others each time.
    nothing_dropped = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = preset("mini", operator="standard", norm_position="pre", position="rotary", **nothing_dropped)
    model = TriuneForMaskedLM(config).cuda()
    tokens = torch.randint(1000, 2000, (16, 128), device="cuda")
    found = {}
    for fused in (False, True):
        model.config.fused_rotary = fused
        torch._dynamo.reset()
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            assert model.rotary_core.name == ("rotate" if fused else "pytorch")
            torch.compile(model, fullgraph=True)(tokens, labels=tokens).loss.backward()
        turned = [one for name, one in model.named_parameters() if name.endswith(("query.weight", "key.weight"))]
        # Of these alone: in a new model they are so small that among all gradients nobody would see a wrong turn.
        found[fused] = torch.cat([one.grad.flatten() for one in turned])
    assert ((found[True] - found[False]).norm() / found[False].norm()).item() < 5e-2


@pytest.mark.parametrize(("rows", "width"), [(65, 768), (4096, 384)])
def test_residual_sum_and_norm(rows, width):
    """Against float64, and the same bits again."""
    pytest.importorskip("triton")
    torch.manual_seed(0)
    x, residual, *d_results = (torch.randn(rows, width, device="cuda").bfloat16() for _ in range(4))
    bias, weight, beta, next_bias = (torch.randn(width, device="cuda") for _ in range(4))
    given = [tensor.requires_grad_() for tensor in (x, bias, residual, 1 + weight, beta, next_bias)]
    found = []
    for _ in range(2):
        results = add_norm(*given, 1e-5)
        found.append((*results, *torch.autograd.grad(results, given, d_results)))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    exact_given = [tensor.detach().double().requires_grad_() for tensor in given]
    x, bias, residual, weight, beta, next_bias = exact_given
    h = x + bias + residual
    exact = (h + next_bias, torch.nn.functional.layer_norm(h, (width,), weight, beta, 1e-5))
    exact_grads = torch.autograd.grad(exact, exact_given, [d_result.double() for d_result in d_results])
    limits = [4e-3] * 6 + [1e-5] * 2  # what is summed for beta and the next bias is not rounded
    for ours, want, limit in zip(found[0], (*exact, *exact_grads), limits, strict=True):
        assert (ours.double() - want).norm() < limit * want.norm()


def test_masks_are_made_without_waiting_for_the_device():
    masking = Masking(seed=1, vocab_size=2000, mask_id=4, special_ids=(0, 1, 2, 3, 4))
    tokens, examples = torch.randint(5, 2000, (8, 128), device="cuda"), torch.arange(8, device="cuda")
    masking(tokens, examples)  # its tables are copied once
    torch.cuda.set_sync_debug_mode("error")
    try:
        batch = masking(tokens, examples)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    on_cpu = Masking(seed=1, vocab_size=2000, mask_id=4, special_ids=(0, 1, 2, 3, 4))(tokens.cpu(), examples.cpu())
    assert all(torch.equal(batch[name].cpu(), on_cpu[name]) for name in on_cpu)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_means_of_long_sequences(dtype):
    starts = torch.tensor([0, 512, 4096], dtype=torch.int32, device="cuda")
    states_1Md = torch.ones(1, 4096, 8, dtype=dtype, device="cuda")
    means = Packing(starts, 3584).mean_states(states_1Md)
    assert torch.equal(means, torch.ones_like(means))
    assert means.dtype == dtype
