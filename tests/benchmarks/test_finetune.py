"""An epoch of fine-tuning against transformers' Trainer."""

import json

import numpy as np
import pytest

from tests.samples import QUICK, sets
from triune.benchmarks import finetune
from triune.benchmarks.finetune import bench_finetune, real_flops
from triune.benchmarks.tables import finetune_tables
from triune.data.encoded import encode_pairs
from triune.data.tasks import get_task, load_split
from triune.data.tokenizer import load_tokenizer
from triune.models.presets import preset
from triune.training.finetune_recipe import load_finetune_recipe


@pytest.fixture
def bench(samples):
    recipe = load_finetune_recipe("pocket-tasks", QUICK)

    def run(*operators, tasks=("rte",), rows=12, rounds=1):
        return bench_finetune(
            list(tasks), samples.data, str(samples.tokenizer), "tiny", list(operators), recipe, rows, rounds
        )

    return run


def test_ours_are_the_epochs_of_the_training_time_study(bench, check_results):
    record = bench("shared")
    check_results(record)
    theirs, ours = record["results"]
    assert (theirs["contestant"], ours["contestant"]) == ("transformers", "triune shared")
    assert (theirs["operator"], ours["operator"]) == ("standard", "shared")
    assert ours["how"].startswith("attention ")
    assert ours["how"].endswith("not captured, grouped by length")
    assert ours["seconds"] == pytest.approx(ours["milliseconds"] / 1e3)
    assert ours["milliseconds_a_step"] == pytest.approx(1e3 * ours["seconds"] / 2)
    assert ours["times_faster"] == theirs["milliseconds"] / ours["milliseconds"]
    assert (ours["peak_bytes"], ours["memory_ratio"]) == (None, None)  # on a CPU


def test_arithmetic_is_that_of_real_tokens_each_row_at_its_own_length():
    d, feed_forward, layers = 128, 512, 2

    def by_hand(roles, length):
        return 3 * layers * length * (roles + 4 * length * d + 2 * d * d + 4 * d * feed_forward)

    lengths = np.array([5, 9, 5, 30])
    for operator, roles in (("standard", 6 * d * d), ("shared", 2 * d * d + 2 * d)):
        expected = sum(by_hand(roles, length) for length in (5, 9, 5, 30))
        assert real_flops(preset("tiny", operator=operator), lengths) == expected


def test_flops_and_bytes_have_one_definition_for_all(bench, samples):
    theirs, standard, shared = bench("standard", "shared")["results"]
    tokenizer = load_tokenizer(str(samples.tokenizer))
    given = load_split(get_task("rte"), "train", samples.data, 12)
    lengths = encode_pairs(tokenizer, given.first, given.second, given.labels, 32).lengths
    assert len(set(lengths.tolist())) > 1
    assert theirs["flops"] == standard["flops"] == real_flops(preset("tiny", operator="standard"), lengths)
    assert shared["flops"] == real_flops(preset("tiny", operator="shared"), lengths)
    for one in (theirs, standard, shared):
        assert one["bytes"] == 2 * 44 * one["parameters"]  # 12 rows are two batches of 8
    assert standard["parameters"] - shared["parameters"] == 2 * (2 * (128 * 128 + 128) - 3 * 128)


def test_each_is_made_when_its_turn_to_warm_up_comes(bench, monkeypatch):
    notes = []

    def noting(kind, who):
        class Noting(kind):
            def __init__(self, *given):
                notes.append(f"make {who}")
                super().__init__(*given)

            def warm_up(self):
                notes.append(f"warm {who}")
                super().warm_up()

            def epoch(self):
                notes.append(who)
                return super().epoch()

        return Noting

    monkeypatch.setattr(finetune, "_Theirs", noting(finetune._Theirs, "theirs"))
    monkeypatch.setattr(finetune, "Epochs", noting(finetune.Epochs, "ours"))
    record = bench("shared", rounds=2)
    assert notes == ["make theirs", "warm theirs", "make ours", "warm ours", "theirs", "ours", "ours", "theirs"]
    assert [one["samples"] for one in record["results"]] == [2, 2]


def test_one_that_fails_is_a_row(bench, monkeypatch, check_results, capsys):
    def broken(*_, **__):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(finetune, "Trainer", broken)
    record = bench("shared")
    check_results(record)
    theirs, ours = record["results"]
    assert theirs["failed"] == "CUDA out of memory"
    assert (ours["failed"], ours["times_faster"]) == (None, None)
    (table,) = finetune_tables(record)
    assert table.rows[0][2:] == ["–"] * 11
    assert table.rows[1][4] == f"{ours['seconds']:.2f}"
    assert table.rows[1][7] == "–"
    assert "not measured: transformers at RTE: CUDA out of memory" in table.notes
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" (")[0] for line in said] == ["not measured: RTE, transformers", "warm: RTE, triune shared"]


def test_the_command(samples, command, tmp_path, check_results):
    out = tmp_path / "out"
    given = ["--task", "rte,mrpc", "--data-dir", samples.data, "--tokenizer", samples.tokenizer, "--size", "tiny"]
    more = ["--operator", "standard", "--rows", 16, "--rounds", 2, "--out", out, *sets()]
    result = command("bench", "finetune", *given, *more)
    assert result.returncode == 0, result.stderr
    record = json.loads((out / "finetune.json").read_text())
    check_results(record)
    assert sorted(path.name for path in out.iterdir()) == ["finetune-roofline.svg", "finetune.json"]
    both = [(task, name) for task in ("RTE", "MRPC") for name in ("transformers", "triune standard")]
    assert [(one["task"], one["contestant"]) for one in record["results"]] == both
    assert record["settings"] == {"size": "tiny", "batch": 8, "precision": "float32", "rounds": 2}
    assert result.stdout.startswith("An epoch of fine-tuning: tiny, batch 8, float32")
    assert "…" not in result.stdout  # every column has room
    for task, name in both:
        (line,) = [line for line in result.stderr.splitlines() if line.startswith(f"warm: {task}, {name} (")]
        assert line.endswith(" s)")
    assert "warm:" not in result.stdout


def test_a_mistake_in_a_later_task_is_said_before_anything_is_measured(samples, command):
    given = ["--task", "rte,rtee", "--data-dir", samples.data, "--tokenizer", samples.tokenizer, "--size", "tiny"]
    result = command("bench", "finetune", *given, "--rows", 16)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr


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
