"""An epoch of fine-tuning against transformers' Trainer."""

import json

import pytest

from tests.samples import QUICK, sets
from triune.benchmarks.finetune import bench_finetune
from triune.training.finetune_recipe import load_finetune_recipe


def test_ours_are_the_epochs_of_the_training_time_study(samples):
    recipe = load_finetune_recipe("pocket-tasks", QUICK)
    record = bench_finetune(["rte"], samples.data, str(samples.tokenizer), "tiny", ["shared"], recipe, 16, 1)
    theirs, ours = record["results"]
    assert (theirs["contestant"], ours["contestant"]) == ("transformers", "triune shared")
    assert ours["how"].startswith("attention ")
    assert ours["how"].endswith("not captured, grouped by length")
    assert ours["milliseconds_a_step"] == pytest.approx(1e3 * ours["seconds"] / 2)
    assert ours["times_faster"] == theirs["seconds"] / ours["seconds"]
    assert record["ceilings"] is None


def test_the_command(samples, command, tmp_path):
    out = tmp_path / "out"
    given = ["--task", "rte", "--data-dir", samples.data, "--tokenizer", samples.tokenizer, "--size", "tiny"]
    more = ["--operator", "standard", "--rows", 16, "--rounds", 2, "--out", out, *sets()]
    result = command("bench", "finetune", *given, *more)
    assert result.returncode == 0, result.stderr
    record = json.loads((out / "finetune.json").read_text())
    assert [path.name for path in out.iterdir()] == ["finetune.json"]
    assert [one["contestant"] for one in record["results"]] == ["transformers", "triune standard"]
    for one in record["results"]:
        assert one["spread"][0] <= one["seconds"] <= one["spread"][1]
    assert record["settings"] == {"size": "tiny", "batch": 8, "precision": "float32", "rounds": 2}
    assert "An epoch of fine-tuning: tiny, batch 8, float32" in result.stdout
    assert "RTE" in result.stdout


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (["--task", ","], "--task names nothing"),
        (["--operator", "sharde"], "unknown operator 'sharde'"),
        (["--task", "rtee"], "did you mean 'rte'?"),
        (["--size", "huge"], "unknown size 'huge'"),
    ],
)
def test_mistakes(given, word, samples, command):
    common = ["--tokenizer", samples.tokenizer, "--data-dir", samples.data, "--task", "rte", "--rows", 16]
    result = command("bench", "finetune", *common, *given)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert word in result.stderr


@pytest.mark.parametrize("verb", ["bench-step", "bench-finetune"])
def test_the_verbs_before_are_gone(verb, command):
    assert command(verb).returncode == 2
