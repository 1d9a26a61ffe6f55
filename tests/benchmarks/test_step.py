"""The training step: the same batches and masked positions for all."""

import json
import random

import pytest
import torch

from tests.benchmarks.conftest import ABSENT
from triune.benchmarks import contestants, step
from triune.benchmarks.random_blocks import RandomBlocks
from triune.benchmarks.step import StepSettings, bench_step
from triune.benchmarks.tables import step_tables
from triune.data.prepare import prepare
from triune.data.tokenizer import train_tokenizer
from triune.training.pretrain import masking_of
from triune.training.recipe import load_recipe

TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feed_forward=32", "training.sequences=4"]
SETTINGS = StepSettings("pocket", ("standard", "shared"), steps=5, length=8)


@pytest.fixture(scope="module")
def recipe():
    return load_recipe("pocket", TINY)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    draw = random.Random(0)
    words = [a + b for a in "bdfgklmn" for b in "aeiou"]
    lines = [" ".join(draw.choices(words, k=20)) for _ in range(100)]
    (folder / "text.txt").write_text("\n\n".join(lines))
    tokenizer = train_tokenizer(folder / "text.txt", 200, folder / "tokenizer")
    prepare(folder / "text.txt", tokenizer, folder / "blocks", 16, valid_fraction=0.1, workers=1)
    return folder / "blocks"


def test_the_command(command, tmp_path, check_results, recipe):
    written = tmp_path / "tiny.yaml"
    written.write_text(recipe.to_yaml())
    result = command("bench", "step", written, "--length", 8, "--tokens", 16, "--steps", 5, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "out/step.json").read_text())
    check_results(record)
    theirs, standard, shared, kernel = record["results"]
    names = ["transformers BERT", "triune standard", "triune shared", "triune shared, one-tensor kernel"]
    assert [one["contestant"] for one in record["results"]] == names
    assert ABSENT in kernel["failed"]
    for one in (theirs, standard, shared):
        assert one["times_faster"] == theirs["milliseconds"] / one["milliseconds"]
        assert one["tokens_per_second"] == pytest.approx(16 / (one["milliseconds"] / 1e3))
        assert one["peak_bytes"] is None
    assert (record["settings"]["sequences"], record["settings"]["steps_a_round"]) == (2, 1)
    assert (tmp_path / "out/step-roofline.svg").is_file()
    assert "2 sequences of 8 tokens, 1 layers × 16, float32" in result.stdout


def test_only_one_or_two(command, tmp_path, check_results, recipe):
    written = tmp_path / "tiny.yaml"
    written.write_text(recipe.to_yaml())
    given = ["bench", "step", written, "--length", 8, "--tokens", 16, "--steps", 5, "--out", tmp_path / "out"]
    result = command(*given, "--only", "shared, standard")
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "out/step.json").read_text())
    check_results(record)
    standard, shared, kernel = record["results"]
    assert record["settings"]["only"] == ["shared", "standard"]
    assert (standard["contestant"], shared["contestant"]) == ("triune standard", "triune shared")
    assert ABSENT in kernel["failed"]
    for one in (standard, shared):
        assert (one["times_faster"], one["reference"], one["memory_ratio"]) == (None, None, None)
    (table,) = step_tables(record)
    assert table.rows[0][table.columns.index("faster")] == "–"
    assert not any("transformers'" in note for note in table.notes)
    assert [line.split(" (")[0] for line in result.stderr.splitlines()] == [
        "warm: triune standard",
        "warm: triune shared",
        "not measured: triune shared, one-tensor kernel",
    ]
    again = command(*given, "--only", "shared,sharde")
    names = "transformers BERT; triune standard; triune shared; triune shared, one-tensor kernel"
    assert again.returncode == 2
    assert again.stderr == f"triune: error: no contestant's name contains 'sharde': there are {names}\n"


def test_with_all_of_them_ratios_are_explained(recipe):
    (table,) = step_tables(bench_step(SETTINGS, recipe, None))
    assert any("transformers' rows" in note for note in table.notes)


def test_arithmetic_by_hand(recipe):
    theirs, standard, shared, _ = bench_step(SETTINGS, recipe, None)["results"]
    d, feed_forward, words, length, tokens = 16, 32, 30_522, 8, 4 * 8
    rest = 4 * length * d + 2 * d * d + 4 * d * feed_forward
    head = 2 * d * d + 2 * d * words
    assert theirs["flops"] == pytest.approx(3 * tokens * (6 * d * d + rest + head))
    assert standard["flops"] == pytest.approx(3 * tokens * (6 * d * d + rest + 0.15 * head))
    assert shared["flops"] == pytest.approx(3 * tokens * (2 * d * d + 2 * d + rest + 0.15 * head))
    assert standard["bytes"] == 44 * standard["parameters"]
    assert standard["parameters"] - shared["parameters"] == 2 * (d * d + d) - 3 * d


def test_sizes_are_the_same_where_positions_are(recipe):
    """But for the recipe's rotary positions and pre-norm, our standard model is BERT."""
    like_bert = load_recipe("pocket", [*TINY, "model.position=absolute", "model.norm_position=post"])
    theirs, standard = bench_step(StepSettings("pocket", ("standard",), 5, 8), like_bert, None)["results"]
    assert theirs["parameters"] == standard["parameters"]


def test_all_see_the_same_masked_positions(recipe):
    blocks = RandomBlocks(8, 4)
    batch = masking_of(recipe, blocks, 1)(blocks.batch([0, 1, 2, 3])["input_ids"], torch.arange(4))
    theirs = step._everywhere(batch)
    assert theirs["input_ids"] is batch["input_ids"]
    torch.testing.assert_close(theirs["labels"].gather(1, batch["masked_positions"]), batch["labels"])
    assert (theirs["labels"] != -100).sum() == (batch["labels"] != -100).sum() == 4  # one of eight positions a row


def test_contestants_take_the_same_batches_in_the_same_order(recipe, monkeypatch):
    seen: dict[int, list] = {}

    class Noting(step.TriuneForMaskedLM):
        def forward(self, input_ids, **rest):
            seen.setdefault(id(self), []).append(input_ids.clone())
            return super().forward(input_ids, **rest)

    monkeypatch.setattr(step, "TriuneForMaskedLM", Noting)
    bench_step(StepSettings("pocket", ("standard", "qkv-tied"), 5, 8, library=False), recipe, None)
    standard, tied, *_ = seen.values()
    count = min(len(standard), len(tied))
    assert count >= 3
    torch.testing.assert_close(standard[:count], tied[:count])
    assert not torch.equal(standard[0], standard[1])


def test_prepared_text(prepared, recipe):
    settings = StepSettings("pocket", ("shared",), 5, 16, library=False)
    record = bench_step(settings, recipe, prepared)
    assert record["settings"]["source"] == "prepared text"
    shared, _ = record["results"]
    assert shared["failed"] is None
    assert shared["times_faster"] is None


def test_compiled_contestants(recipe, monkeypatch):
    asked = []
    monkeypatch.setattr(contestants.torch, "compile", lambda model, **how: asked.append(how) or model)
    record = bench_step(StepSettings("pocket", ("standard",), 5, 8, compile=True), recipe, None)
    rows = {one["contestant"]: one["compiled"] for one in record["results"]}
    compiled = {"transformers BERT, compiled": "default", "triune standard": "default"}
    assert rows == {"transformers BERT": "none", **compiled}
    assert asked == [
        {"mode": "default", "dynamic": False, "fullgraph": whole} for whole in (False, True)
    ]  # ours is one graph


def test_one_that_fails_is_a_row(recipe, monkeypatch, check_results):
    def broken(config):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(step, "BertForMaskedLM", broken)
    record = bench_step(SETTINGS, recipe, None)
    check_results(record)
    theirs, standard, *_ = record["results"]
    assert theirs["failed"] == "CUDA out of memory"
    assert (standard["failed"], standard["times_faster"]) == (None, None)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (["pokcet"], "unknown recipe 'pokcet'"),
        (["pocket", "--tokens", "100"], "sequences of 64 do not divide 100 tokens"),
        (["pocket", "--operator", "sharde"], "unknown operator 'sharde'"),
        (["pocket", "--data", "nowhere"], "there is no prepared folder 'nowhere'"),
        (["pocket", "--data", "{prepared}"], "blocks of 16 tokens, not 64"),
        (["pocket", "--steps", "0"], "--steps"),
        (["pocket", "--only", ","], "--only names nothing"),
    ],
)
def test_mistakes(given, word, command, prepared):
    result = command("bench", "step", *(one.format(prepared=prepared) for one in given))
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert word in result.stderr
