"""Attention alone: what is compared computes the same, and the figures follow from each other."""

import json

import pytest
import torch

from tests.benchmarks.conftest import ABSENT
from triune.benchmarks.attention import (
    DIRECTIONS,
    KERNEL,
    SHARED,
    AttentionSettings,
    _contestants,
    _shapes,
    attention_work,
    bench_attention,
)
from triune.benchmarks.packed import LIKE, draw_lengths, packings

CPU = torch.device("cpu")


def test_the_command(command, tmp_path, check_results):
    out = tmp_path / "out"
    given = ["--tokens", 64, "--lengths", "8,32", "--heads", 2, "--head-width", 4, "--repeats", 3, "--out", out]
    result = command("bench", "attention", *given)
    assert result.returncode == 0, result.stderr
    record = json.loads((out / "attention.json").read_text())
    check_results(record)
    rows = record["results"]
    assert len(rows) == 2 * 2 * 5
    assert {one["failed"] for one in rows if one["contestant"] == KERNEL} == {ABSENT}
    assert record["kernel"] == f"absent: {ABSENT}"
    for one in (one for one in rows if one["failed"] is None):
        others = [other for other in rows if (other["shape"], other["direction"]) == (one["shape"], one["direction"])]
        times = [other["milliseconds"] for other in others if other["operator"] == "standard"]
        assert one["times_faster"] == min(times) / one["milliseconds"]
    figure = (out / "attention-roofline.svg").read_text()
    assert figure.lstrip().startswith("<?xml")
    assert "Attention, forward + backward: 64 tokens, 2 heads × 4, float32" in result.stdout
    assert f"not measured: {KERNEL} at 8, 32: {ABSENT}" in result.stdout
    assert torch.__version__ in result.stdout
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("causal", [False, True])
def test_all_on_one_tensor_compute_the_same(causal):
    settings = AttentionSettings(64, (16,), 2, 4, "float32", causal)
    (shape,) = _shapes(settings, CPU)
    outputs = {}
    for name, kind, attend in _contestants(shape):
        *inputs, gradient = shape.inputs(kind)[0]
        output = attend(*inputs)
        assert output.shape == gradient.shape
        outputs[name] = output, *torch.autograd.grad(output, inputs, gradient, allow_unused=True)
    value = shape.inputs("shared")[0][2]
    torch.testing.assert_close(outputs[f"{KERNEL}, without v"][0] * value, outputs[KERNEL][0])
    for one, other in (("SDPA flash", "SDPA math"), (SHARED, KERNEL)):
        torch.testing.assert_close(outputs[one], outputs[other], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("causal", [False, True])
def test_packed_and_padded_compute_the_same(causal):
    settings = AttentionSettings(200, (), 2, 4, "float32", causal, packed=True)
    for shape in _shapes(settings, CPU):
        attends = {name: attend for name, _, attend in _contestants(shape)}
        packed, score, value, _ = shape.inputs("shared")[0]
        real = shape._make("shared, padded")[0].detach() * 0
        seen = torch.arange(shape.length) < torch.tensor(shape.packing.lengths)[:, None]
        real[seen] = packed.detach()
        through_sdpa = attends[f"{SHARED}, padded"](real, score, value)[seen]
        torch.testing.assert_close(attends[f"{KERNEL}, packed"](packed, score, value), through_sdpa)


@pytest.mark.usefixtures("kernel")
def test_packed_results(check_results):
    record = bench_attention(AttentionSettings(200, (), 2, 4, "float32", packed=True, repeats=2))
    check_results(record)
    assert [one["name"] for one in record["packings"]] == list(LIKE)
    failed = {one["contestant"]: one["failed"] for one in record["results"] if one["failed"]}
    assert failed == {"flash varlen_attn, packed": "varlen_attn needs a CUDA device"}
    for one, packing in zip(record["results"][:: 2 * 4], packings(200), strict=True):
        assert one["flops"] == 4 * 8 * sum(length**2 for length in packing.lengths)


def test_work_by_hand():
    settings = AttentionSettings(65536, (128,), 12, 64, "bfloat16")
    pairs = 65536 * 128
    forward, both = DIRECTIONS
    assert attention_work(settings, pairs, forward, "standard") == (25_769_803_776, 402_653_184)
    assert attention_work(settings, pairs, forward, "shared") == (25_769_803_776, 201_326_592)
    # backward: 5 products; reads 3 inputs, output and its gradient, writes 3 gradients (1 and 1 where one is shared)
    assert attention_work(settings, pairs, both, "standard") == (3.5 * 25_769_803_776, 12 * 100_663_296)
    assert attention_work(settings, pairs, both, "shared") == (3.5 * 25_769_803_776, 6 * 100_663_296)


def test_causal_attention_has_half_of_the_pairs():
    full, half = (next(_shapes(AttentionSettings(64, (16,), 2, 4, "float32", causal), CPU)) for causal in (False, True))
    assert (full.pairs, half.pairs) == (4 * 16**2, 2 * 16**2)


def test_a_backend_that_cannot_is_a_row_with_its_reason():
    """PyTorch's flash attention on a CPU has no dropout."""
    record = bench_attention(AttentionSettings(64, (8,), 2, 4, "float32", dropout=0.1, repeats=2))
    flash, math = record["results"][:2]
    assert (flash["contestant"], math["contestant"]) == ("SDPA flash", "SDPA math")
    assert flash["failed"]
    assert math["times_faster"] == 1.0


@pytest.mark.parametrize("like", LIKE)
def test_drawn_lengths(like):
    mean, most = LIKE[like]
    lengths = draw_lengths(65536, mean, most)
    assert lengths == draw_lengths(65536, mean, most)
    assert sum(lengths) == 65536
    assert min(lengths) >= 1
    assert max(lengths) <= most
    assert sum(lengths) / len(lengths) == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (["--dtype", "bf16"], "unknown dtype 'bf16': there are bfloat16"),
        (["--tokens", "100", "--lengths", "32"], "sequences of 32 do not divide 100 tokens"),
        (["--lengths", "32,x"], "'x' is none"),
        (["--lengths", ","], "--lengths names nothing"),
        (["--packed", "--lengths", "32"], "leave --lengths out"),
        (["--dropout", "1.0"], "--dropout"),
        (["--heads", "0"], "--heads must be at least 1"),
        (["--repeats", "0"], "--repeats"),
    ],
)
def test_mistakes(given, word, command):
    result = command("bench", "attention", *given)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert word in result.stderr


def test_a_file_in_the_place_of_the_folder_is_said_before_anything_is_measured(command, tmp_path, monkeypatch):
    monkeypatch.delattr("triune.benchmarks.attention.bench_attention")
    (tmp_path / "file").write_text("")
    result = command("bench", "attention", "--out", tmp_path / "file")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert "is not a folder" in result.stderr
