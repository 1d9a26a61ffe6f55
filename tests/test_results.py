"""The published results: every page is made again from its records, and every figure in words is on a page."""

import json
import re
from pathlib import Path
from statistics import mean

import pytest

from triune.report.answer_primary import primary
from triune.report.gather import gather
from triune.report.page import KINDS, write_report

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SCALES = sorted(folder.name for folder in (RESULTS / "records").iterdir())


@pytest.fixture(scope="module")
def gathered():
    """Once for all: tests of significance take their time."""
    return {scale: gather([RESULTS / "records" / scale]) for scale in SCALES}


@pytest.mark.parametrize("scale", SCALES)
def test_pages_are_what_the_records_give(scale, gathered, tmp_path):
    records, found = RESULTS / "records" / scale, gathered[scale]
    for kind in ("html", "md"):
        made = write_report([records], tmp_path / f"page.{kind}", kind, found)
        assert made.read_text() == (RESULTS / scale / KINDS[kind]).read_text()


@pytest.mark.parametrize("page", ["README.md", "levers.md", "../rolled.md"])
def test_figures_in_words_are_those_of_a_page(page):
    """Whole lines, so that a figure keeps what it is of; commands and names in code say nothing that was measured."""
    lines = {line for scale in SCALES for line in (RESULTS / scale / KINDS["md"]).read_text().splitlines()}
    words = (RESULTS / page).read_text()
    said = [line for line in words.splitlines() if re.search(r"\d\.\d", re.sub("`.*?`", "", line))]
    assert said
    assert [line for line in said if line not in lines] == []


def test_the_first_screen_says_what_the_tests_support(gathered):
    """In words: whoever lands records with another answer has to write another sentence."""
    loss, score = primary(gathered["sprint"]).measures
    assert (loss.ahead, score.ahead) == ("standard", None)
    first_screen = " ".join((RESULTS.parents[1] / "README.md").read_text().partition("## ")[0].split())
    assert "with shared weights are shown to reach a worse pre-training loss than those with separate" in first_screen
    assert "no difference in their mean score over nine GLUE and SQuAD tasks is shown" in first_screen
    loss, score = primary(gathered["base"]).measures
    assert loss.difference.effect > 0 > score.difference.effect
    assert not any(one.tested for one in (loss, score))
    assert all(one.better is None for one in gathered["base"].comparisons)
    assert "Of base size, pre-trained once each, `shared` is behind in both (not tested)" in first_screen
    assert "on no task is a difference shown" in first_screen


def test_shares_and_sizes_in_words_are_those_of_the_records():
    """What no table of a page has: what rolled slices and halves take away of a distance, and the narrower model."""
    ablations = RESULTS / "records" / "sprint" / "ablations"
    confirmed = json.loads((ablations / "confirmed.json").read_text())["variants"]
    losses = {one["name"]: one["validation_losses"] for one in confirmed}
    seeds = zip(losses["standard"], losses["shared-signed"], losses["rolled"], strict=True)
    shares = [round(100 * (shared - rolled) / (shared - standard)) for standard, shared, rolled in seeds]
    levers, page = ((RESULTS / name).read_text() for name in ("levers.md", "../rolled.md"))
    assert f"is {shares[0]}, {shares[1]} and {shares[2]} %" in page
    assert f"{min(shares)} to {max(shares)} % of the distance" in levers
    turned = zip(*(losses[f"{name}-rotary"] for name in ("standard", "rolled", "rolled-halves")), strict=True)
    shares = [round(100 * (ones - halves) / (ones - standard)) for standard, ones, halves in turned]
    assert all(f"away {min(shares)} to {max(shares)} % of what" in text for text in (levers, page))
    narrow = json.loads((ablations / "standard-narrow" / "seed-1" / "run.json").read_text())["recipe"]["model"]
    assert f"(width {narrow['width']}, feed-forward {narrow['feed_forward']:,};" in levers


def test_what_words_say_of_base_size_is_in_its_records(gathered):
    found, words = gathered["base"], (RESULTS / "README.md").read_text()
    runs = {run["label"]: run for run in found["pretraining"]}
    rows = {label: [row for row in run["metrics"] if "validation_loss" in row] for label, run in runs.items()}
    apart = [b["validation_loss"] - a["validation_loss"] for a, b in zip(rows["standard"], rows["shared"], strict=True)]
    assert "behind at every evaluation, by a quarter of a nat at the first and by a third of that at the end" in words
    assert min(apart) > 0
    assert apart[0] == pytest.approx(1 / 4, abs=0.01)
    assert apart[-1] / apart[0] == pytest.approx(1 / 3, abs=0.03)
    assert "after 81 % of its tokens, in a little less time than all of them took `shared`" in words
    there = next(row for row in rows["standard"] if row["validation_loss"] <= runs["shared"]["validation_loss"])
    assert round(100 * there["tokens"] / runs["standard"]["tokens"]) == 81
    assert 0.95 < there["elapsed"] / rows["shared"][-1]["elapsed"] < 1
    assert "steps are a sixth shorter" in words
    assert runs["standard"]["tokens_per_second"] / runs["shared"]["tokens_per_second"] == pytest.approx(5 / 6, abs=0.01)
    effects = {one.task: one.effect for one in found.comparisons}
    assert "is CoLA and SQuAD, five and two points" in words
    assert round(effects.pop("CoLA")) == -5
    assert round(effects.pop(next(task for task in effects if task.startswith("SQuAD")))) == -2
    assert len(effects) == 8
    assert max(map(abs, effects.values())) < 1 / 3  # "within a third of a point of each other"
    swapped = [one.effect for one in found.noise_comparisons if one.task.endswith("swapped words")]
    assert "swapped words `shared` loses less on all three tasks" in words
    assert len(swapped) == 3
    assert min(swapped) > 0
    lost = {}
    for record in found["noise"]:
        clean, *levels = (mean(level["scores"]) for level in record["curves"]["gaussian"])
        lost.setdefault((record["task"], record["model"]), []).append(clean - min(levels))
    assert "Gaussian noise costs both little more than one point at most" in words
    assert 1 < max(map(mean, lost.values())) < 1.5
