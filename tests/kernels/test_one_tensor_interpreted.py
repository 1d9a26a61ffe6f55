"""The one-tensor kernels through Triton's interpreter: small shapes, float32 and float16 (it has no bfloat16)."""

import os

import pytest
import torch

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.interpreted,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1: `make test`"),
]

from one_tensor_checks import Case, check, errors, kept_weights  # noqa: E402

from triune.kernels import one_tensor  # noqa: E402
from triune.kernels.one_tensor import launch  # noqa: E402

PLAIN = {
    "as it is": {},
    "without values": {"values": False},
    "rotary": {"rotary": True},
    "masked": {"masked": True},
    "causal": {"causal": True},
    "no self": {"mask_diagonal": True},
    "no self, causal": {"mask_diagonal": True, "causal": True},
    "dropout": {"dropout": 0.3},
    "dropout, causal, rotary": {"dropout": 0.3, "causal": True, "rotary": True},
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("length", [1, 2, 20, 33])
def test_against_float64(name, length):
    check(Case([length, length], **PLAIN[name]))


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "masked"])
def test_packed(name):
    check(Case([5, 17, 1, 0, 33], packed=True, **PLAIN[name]))


@pytest.mark.parametrize("width", [64, 128])
def test_head_widths(width):
    check(Case([20], width=width))


@pytest.mark.parametrize("name", PLAIN)
def test_half_precision_takes_the_kernels_of_short_sequences(name):
    check(Case([40, 40], dtype=torch.float16, **PLAIN[name]))


@pytest.fixture
def one_way(monkeypatch):
    """The path that on a GPU is bfloat16's, here in float32, for long sequences and (asked for) for short ones."""

    def force(short):
        original = launch.run_backward

        def run(*args):
            symmetric = args[4].scores_stay_symmetric
            return original(*args, short=short and symmetric, symmetric=symmetric)

        monkeypatch.setattr("triune.kernels.one_tensor.ops.run_backward", run)

    return force


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("name", ["as it is", "without values", "rotary", "no self"])
def test_one_exponential_for_both_directions(one_way, name, short):
    one_way(short)
    check(Case([40, 40], **PLAIN[name]))
    check(Case([5, 17, 1, 0, 33], packed=True, **PLAIN[name]))


@pytest.mark.parametrize("short", [False, True])
def test_scores_too_large_for_one_exponential(one_way, short):
    one_way(short)
    # Levels of several thousand are rounded in float32 to about 1e-4, and so are weights.
    check(Case([40, 40], size=30.0), tolerance=3e-3)


def test_scores_far_above_a_tokens_own():
    """The forward kernel's shift is a token's own score: a row that overflows under it is computed again."""
    case = Case([70], heads=1)
    shared, _, _ = case.tensors()
    with torch.no_grad():
        shared[:35] *= 20.0
    score_scale = -torch.ones(1, 32)  # own scores are the lowest
    output = one_tensor.attention(shared, score_scale, max_length=70)
    assert torch.isfinite(output).all()
    from triune.kernels.one_tensor.reference import one_tensor_reference

    exact = one_tensor_reference(shared.double(), score_scale.double(), max_length=70)
    torch.testing.assert_close(output.double(), exact, rtol=1e-2, atol=1e-3)


def test_zero_in_the_value_vector(monkeypatch):
    """The kernels divide by it in the end: its gradient must be right where it is zero."""
    original = Case.tensors

    def with_zeros(self):
        shared, score_scale, value_scale = original(self)
        value_scale[:, ::3] = 0.0
        return shared, score_scale, value_scale

    monkeypatch.setattr(Case, "tensors", with_zeros)
    check(Case([20, 20]))


def test_all_keys_masked_gives_zeros():
    case = Case([10, 10], values=False)
    shared, score_scale, _ = case.tensors()
    shared.requires_grad_()
    mask = torch.tensor([True] * 10 + [False] * 10)
    output = one_tensor.attention(shared, score_scale, max_length=10, key_mask=mask)
    assert (output[10:] == 0).all()
    assert (output[:10] != 0).any()
    (gradient,) = torch.autograd.grad(output.sum(), shared)
    assert torch.isfinite(gradient).all()
    assert (gradient[10:] == 0).all()


def test_dropout_keeps_the_share_it_should():
    case = Case([64] * 4, heads=4, dropout=0.25)
    kept = torch.stack(kept_weights(case)).float()
    # 65,536 draws: the mean is within four standard deviations, 0.0068; and rows, columns, heads differ.
    assert abs(kept.mean().item() - 0.75) < 0.007
    assert kept.mean(-1).std() < 0.08
    assert kept.mean(-2).std() < 0.08
    flat = kept.flatten(2).flatten(0, 1)
    together = torch.corrcoef(flat) - torch.eye(len(flat))
    assert together.abs().max() < 0.08
    torch.manual_seed(1)
    other = torch.stack(kept_weights(case)).float()
    assert (kept != other).float().mean() > 0.3


def test_dropout_follows_the_generator():
    shared, score_scale, _ = Case([20]).tensors()
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(one_tensor.attention(shared, score_scale, max_length=20, dropout=0.5))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_no_tokens():
    shared = torch.zeros(0, 2, 32, requires_grad=True)
    score_scale = torch.ones(2, 32, requires_grad=True)
    output = one_tensor.attention(shared, score_scale, max_length=8, cu_seqlens=torch.zeros(1, dtype=torch.int32))
    assert output.shape == (0, 2, 32)
    assert (torch.autograd.grad(output.sum(), score_scale)[0] == 0).all()


def test_a_wrong_kernel_would_be_seen():
    """The comparison itself: another c is far outside the tolerance."""
    case = Case([20])
    shared, score_scale, value_scale = case.tensors()
    right = one_tensor.attention(shared, score_scale, value_scale, max_length=20)
    wrong = one_tensor.attention(shared, -score_scale, value_scale, max_length=20)
    assert (right - wrong).norm() / right.norm() > 0.1
    assert errors(case)["output"] > 0


@pytest.mark.parametrize("options", [{}, {"dropout": 0.5}, {"save": False}])
def test_opcheck(options):
    from triune.kernels.one_tensor.ops import one_tensor_backward, one_tensor_forward

    shared, score_scale, value_scale = Case([20, 20]).tensors()
    seed = torch.tensor([7]) if "dropout" in options else None
    save = options.get("save", True)
    tensors = [tensor.clone().requires_grad_(save) for tensor in (shared, score_scale, value_scale)]
    rest = (None, None, None, None, seed, 20, options.get("dropout", 0.0), False, False)
    torch.library.opcheck(one_tensor_forward, (*tensors, *rest, save))
    if save:
        output, levels = one_tensor_forward(*tensors, *rest, True)
        plain = [tensor.detach() for tensor in (output, tensors[0], output, levels, *tensors[1:])]
        torch.library.opcheck(one_tensor_backward, (*plain, *rest))


def test_compiled_whole():
    shared, score_scale, value_scale = (tensor.clone().requires_grad_() for tensor in Case([20, 20]).tensors())

    def run(shared):
        return one_tensor.attention(shared * 2, score_scale, value_scale, max_length=20).square().sum()

    plain = torch.autograd.grad(run(shared), shared)[0]
    compiled = torch.autograd.grad(torch.compile(run, fullgraph=True, backend="aot_eager")(shared), shared)[0]
    torch.testing.assert_close(plain, compiled)


def test_checkpointed_layers_draw_the_same_dropout():
    shared = Case([20]).tensors()[0].clone().requires_grad_()
    score_scale = torch.full((2, 32), 0.2)

    def run(shared):
        return one_tensor.attention(shared, score_scale, max_length=20, dropout=0.5).square().sum()

    torch.manual_seed(3)
    plain = torch.autograd.grad(run(shared), shared)[0]
    torch.manual_seed(3)
    again = torch.utils.checkpoint.checkpoint(run, shared, use_reentrant=False)
    torch.testing.assert_close(plain, torch.autograd.grad(again, shared)[0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"max_length": 7}, "no whole number of sequences of 7"),
        ({"cu_seqlens": torch.tensor([0, 20])}, "cu_seqlens must be int32"),
        ({"key_mask": torch.ones(20, dtype=torch.bool), "mask_diagonal": True}, "key_mask goes neither"),
        ({"key_mask": torch.ones(19, dtype=torch.bool)}, "key_mask must be"),
        ({"max_length": 0}, "max_length must be at least 1"),
        ({"dropout": 1.5}, "dropout is a share"),
    ],
)
def test_wrong_calls(changed, message):
    shared, score_scale, _ = Case([20]).tensors()
    with pytest.raises(ValueError, match=message):
        one_tensor.attention(shared, score_scale, **{"max_length": 20, **changed})


@pytest.mark.parametrize("name", ["as it is", "without values"])
@pytest.mark.parametrize("length", [65, 128])
def test_resident_backward(monkeypatch, name, length):
    """bfloat16's kernel for 65 to 128 tokens, in float32."""
    monkeypatch.setattr(
        launch.tiles, "is_resident", lambda length, width, bytes_each, plain, most: plain and most == 128
    )
    original = launch.run_backward
    monkeypatch.setattr(
        "triune.kernels.one_tensor.ops.run_backward", lambda *args: original(*args, short=True, symmetric=True)
    )
    ran = []
    kernel = launch.resident_backward_kernel
    monkeypatch.setattr(launch, "resident_backward_kernel", _watched(kernel, ran))
    check(Case([length] * 3, width=64, **PLAIN[name]))
    check(Case([length], width=64, size=30.0, **PLAIN[name]), tolerance=3e-3)
    assert len(ran) == 2


@pytest.mark.parametrize("name", ["as it is", "without values"])
@pytest.mark.parametrize("length", [129, 256])
def test_resident_forward(monkeypatch, name, length):
    """Half precision's kernel for 129 to 256 tokens."""
    ran = []
    monkeypatch.setattr(launch, "resident_forward_kernel", _watched(launch.resident_forward_kernel, ran))
    check(Case([length] * 2, heads=1, width=64, dtype=torch.float16, **PLAIN[name]))
    assert ran


@pytest.mark.parametrize("name", ["as it is", "without values", "rotary", "no self", "dropout"])
def test_short_and_long_sequences_of_a_packed_batch(monkeypatch, name):
    """Each kind gets its kernel where most are short; half precision's path, in float32."""
    is_mixed = launch.tiles.is_mixed
    monkeypatch.setattr(launch.tiles, "is_mixed", lambda length, width, _, mean: is_mixed(length, width, 2, mean))
    original = launch.run_backward
    monkeypatch.setattr(
        "triune.kernels.one_tensor.ops.run_backward",
        lambda *args: original(*args, symmetric=args[4].scores_stay_symmetric),
    )
    ran = {}
    for kernel in ("short_forward_kernel", "forward_kernel", "short_backward_kernel", "backward_kernel"):
        ran[kernel] = []
        monkeypatch.setattr(launch, kernel, _watched(getattr(launch, kernel), ran[kernel]))
    check(Case([5, 80, 17, 1, 0, 33, 64, 65, 20], packed=True, **PLAIN[name]))
    one_way = name != "dropout"
    assert [len(grids) for grids in ran.values()] == [1, 1, int(one_way), 1]
    if one_way:
        check(Case([5, 80, 17, 20, 3], packed=True, size=30.0, **PLAIN[name]), tolerance=3e-3)
    check(Case([60, 80, 65, 20], packed=True, **PLAIN[name]))  # most are long: one kernel for all
    assert len(ran["short_forward_kernel"]) == 1 + one_way


def _watched(kernel, ran):
    class Watched:
        def __getitem__(self, grid):
            ran.append(grid)
            return kernel[grid]

    return Watched()


def test_tuning_is_an_option(monkeypatch):
    """Off, nothing is tried; on, each shape once, and results stay right."""
    from triune.kernels.one_tensor import tuning
    from triune.kernels.one_tensor.tiles import Tiles

    tried = [Tiles(16, 16, 4, 1), Tiles(32, 16, 4, 1)]
    monkeypatch.setattr(launch.tiles, "candidates", lambda length, usual: tried)
    monkeypatch.setattr(tuning, "_found", {})
    check(Case([20]))
    assert not tuning.found()
    one_tensor.tune()
    try:
        check(Case([20]))
        found = tuning.found()
        assert {key[0] for key in found} == {"forward", "backward"}
        assert set(found.values()) <= {None, *tried}
        check(Case([20], seed=1))
        assert tuning.found() == found
    finally:
        one_tensor.tune(False)


@pytest.mark.parametrize("short", [False, True])
def test_very_low_levels_at_an_odd_length(one_way, short):
    """All scores far below zero, and columns beyond the end: those must not become infinite."""
    one_way(short)
    direction = torch.nn.functional.normalize(torch.ones(1, 32), dim=-1)
    shared = (torch.linspace(6.5, 11, 20)[:, None, None] * direction[None]).requires_grad_()
    score_scale = -torch.ones(1, 32)
    output = one_tensor.attention(shared, score_scale, max_length=20)
    exact_shared = shared.detach().double().requires_grad_()
    from triune.kernels.one_tensor.reference import one_tensor_reference

    exact = one_tensor_reference(exact_shared, score_scale.double(), max_length=20)
    (gradient,) = torch.autograd.grad(output.square().sum(), shared)
    (exact_gradient,) = torch.autograd.grad(exact.square().sum(), exact_shared)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-3, atol=1e-3)


def test_heads_far_apart_in_memory():
    """Offsets of heads beyond 2^31 elements, in a layout with heads outside; memory is reserved, not touched."""
    apart = 1_100_000_000
    storage = torch.empty(3 * apart, dtype=torch.float16)
    shared = storage.as_strided((4, 3, 32), (32, apart, 1))
    shared.copy_(torch.randn(4, 3, 32))
    score_scale = torch.full((3, 32), 0.2)
    output = one_tensor.attention(shared, score_scale, max_length=4)
    torch.testing.assert_close(output, one_tensor.attention(shared.contiguous(), score_scale, max_length=4))


def test_all_weights_dropped():
    shared = Case([4]).tensors()[0]
    assert (one_tensor.attention(shared, torch.ones(2, 32), max_length=4, dropout=1.0) == 0).all()


def test_precision_set_the_new_way(monkeypatch):
    """Reading the older setting would raise."""
    monkeypatch.setattr(torch.backends, "fp32_precision", "tf32")
    check(Case([20]))


def test_half_precision_models_without_autocast():
    import triune

    config = triune.TriuneConfig(hidden_size=64, num_attention_heads=2, num_hidden_layers=1, intermediate_size=64)
    torch.manual_seed(0)
    model = triune.TriuneModel(config).eval()
    ids = torch.randint(5, 500, (2, 9))
    exact = model(input_ids=ids).last_hidden_state
    model.half()
    assert model.attention_core.name == "one-tensor"
    torch.testing.assert_close(model(input_ids=ids).last_hidden_state.float(), exact, rtol=0.02, atol=0.02)


def test_what_was_launched_can_be_asked():
    case = Case([40, 40])
    shared, score_scale, _ = case.tensors()
    one_tensor.launched()
    output = one_tensor.attention(shared.requires_grad_(), score_scale, max_length=40)
    assert one_tensor.launched() == {"forward": 1}
    output.sum().backward()
    assert one_tensor.launched() == {"backward, both ways": 1}
    assert one_tensor.launched() == {}


def test_few_sequences_are_shared_out_among_programs(monkeypatch):
    """A program for each of them would leave most of a large GPU idle."""
    shared, score_scale, _ = Case([70, 70], width=32, dtype=torch.float16).tensors()
    found = []
    for multiprocessors, kernel in ((4, "short forward"), (5, "forward")):
        monkeypatch.setattr("triune.kernels.one_tensor.call.multiprocessors", lambda device, n=multiprocessors: n)
        one_tensor.launched()
        found.append(one_tensor.attention(shared, score_scale, max_length=70))
        assert one_tensor.launched() == {kernel: 1}
    torch.testing.assert_close(*found, rtol=2e-3, atol=2e-3)
