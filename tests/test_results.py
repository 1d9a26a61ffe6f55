"""The published results: every page is made again from its records, and every figure in words is on a page."""

import re
from pathlib import Path

import pytest

from triune.report.gather import gather
from triune.report.page import KINDS, write_report

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SCALES = sorted(folder.name for folder in (RESULTS / "records").iterdir())


@pytest.mark.parametrize("scale", SCALES)
def test_pages_are_what_the_records_give(scale, tmp_path):
    records = RESULTS / "records" / scale
    found = gather([records])  # once for both: tests of significance take their time
    for kind in ("html", "md"):
        made = write_report([records], tmp_path / f"page.{kind}", kind, found)
        assert made.read_text() == (RESULTS / scale / KINDS[kind]).read_text()


def test_figures_in_words_are_those_of_a_page():
    """Whole lines, so that a figure keeps what it is of; commands and names in code say nothing that was measured."""
    lines = {line for scale in SCALES for line in (RESULTS / scale / KINDS["md"]).read_text().splitlines()}
    words = (RESULTS / "README.md").read_text()
    said = [line for line in words.splitlines() if re.search(r"\d\.\d", re.sub("`.*?`", "", line))]
    assert said
    assert [line for line in said if line not in lines] == []
