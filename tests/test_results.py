"""The published results: every page is made again from its records, and every figure in words is on a page."""

import json
import re
from pathlib import Path

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
