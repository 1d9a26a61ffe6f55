"""The encoder's forward pass."""

import json

import pytest

from triune.benchmarks import contestants, inference
from triune.benchmarks.inference import InferenceSettings, bench_inference

TINY = InferenceSettings("tiny", (2,), (8,), "float32", "none", repeats=2)


def test_the_command(command, tmp_path, check_results):
    out = tmp_path / "out"
    given = ["--size", "tiny", "--batches", "1,3", "--lengths", "8", "--repeats", 2, "--out", out]
    result = command("bench", "inference", *given)
    assert result.returncode == 0, result.stderr
    record = json.loads((out / "inference.json").read_text())
    check_results(record)
    rows = record["results"]
    names = ["transformers BERT", "triune standard", "triune shared, folded"]
    assert [(one["shape"], one["contestant"]) for one in rows] == [(s, n) for s in ("1 × 8", "3 × 8") for n in names]
    assert {one["failed"] for one in rows} == {None}
    for theirs, *ours in (rows[:3], rows[3:]):
        for one in (theirs, *ours):
            assert one["times_faster"] == theirs["milliseconds"] / one["milliseconds"]
            assert one["sequences_per_second"] == pytest.approx(one["batch"] / (one["milliseconds"] / 1e3))
    assert (out / "inference-roofline.svg").is_file()
    assert result.stdout.startswith("Encoder, forward: tiny (2 layers × 128), float32")
    assert "folded shared" not in result.stdout.splitlines()[0]


def test_only_one(command, tmp_path, check_results):
    given = ["--size", "tiny", "--batches", "1,3", "--lengths", "8", "--repeats", 2, "--out", tmp_path]
    result = command("bench", "inference", *given, "--only", "folded")
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "inference.json").read_text())
    check_results(record)
    assert record["settings"]["only"] == ["folded"]
    names = [(one["shape"], one["contestant"]) for one in record["results"]]
    assert names == [("1 × 8", "triune shared, folded"), ("3 × 8", "triune shared, folded")]
    assert [one["times_faster"] for one in record["results"]] == [None, None]
    said = [line.split(" (")[0] for line in result.stderr.splitlines()]
    assert said == [f"warm: {shape} × 8, triune shared, folded" for shape in (1, 3)]


def test_arithmetic_and_bytes_by_hand():
    d, feed_forward, layers, tokens = 128, 512, 2, 2 * 8
    theirs, standard, shared = bench_inference(TINY)["results"]
    attention, rest = 4 * 8 * d, 2 * d * d + 4 * d * feed_forward
    assert theirs["flops"] == standard["flops"] == tokens * layers * (6 * d * d + attention + rest)
    # shared: one product for the roles, and c and v of its formula
    assert shared["flops"] == tokens * layers * (2 * d * d + 2 * d + attention + rest)
    weights = layers * (4 * (d * d + d) + 2 * d * feed_forward + feed_forward + d + 4 * d)
    states = 2 * tokens * d * 4
    assert theirs["bytes"] == standard["bytes"] == 4 * weights + states
    # two products and their biases fewer, and a vector c for each layer
    assert shared["bytes"] == 4 * (weights - layers * (2 * (d * d + d) - d)) + states


def test_all_that_are_compiled_are_so_in_one_mode(monkeypatch):
    """Compiling itself takes long here: what is asked of it is noted, and the model given back."""
    asked = []

    def compile_(model, **how):
        asked.append((type(model).__name__, how))
        return model

    monkeypatch.setattr(contestants.torch, "compile", compile_)
    record = bench_inference(InferenceSettings("tiny", (1,), (8,), "float32", "reduce-overhead", repeats=1))
    how = {"mode": "reduce-overhead", "dynamic": False}
    ours = ("TriuneModel", how | {"fullgraph": True})
    assert asked == [("BertModel", how | {"fullgraph": False}), ours, ours]
    assert [one["compiled"] for one in record["results"]] == ["none", *["reduce-overhead"] * 3]
    assert record["results"][1]["contestant"] == "transformers BERT, compiled"


def test_one_that_fails_is_a_row(monkeypatch, check_results):
    def broken(*_, **__):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(inference, "BertModel", broken)
    record = bench_inference(TINY)
    check_results(record)
    theirs, *ours = record["results"]
    assert theirs["failed"] == "CUDA out of memory"
    assert [(one["failed"], one["times_faster"]) for one in ours] == [(None, None)] * 2


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (["--dtype", "half"], "unknown dtype 'half'"),
        (["--mode", "max-autotune"], "unknown --mode 'max-autotune': there are none, default, reduce-overhead"),
        (["--size", "huge"], "unknown size 'huge'"),
        (["--batches", "0"], "--batches takes whole numbers from 1"),
        (["--operator", "sharde"], "unknown operator 'sharde'"),
        (["--operator", "shared,rolled"], "--operator takes one here, which is measured beside standard, not shared, "),
        (["--only", "sharde"], "no contestant's name contains 'sharde': there are transformers BERT; triune standard"),
    ],
)
def test_mistakes(given, word, command):
    result = command("bench", "inference", *given)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert word in result.stderr
