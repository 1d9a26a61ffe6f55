"""The models that come with the repository: small, safe, with a card, and able to do what is said of them."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import pipeline

import triune
from tests.test_documentation import ROOT
from triune.models.pretrained import VARIABLE

pytestmark = pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="models are in the repository, and not in the sdist"
)

NAMES = ("mini-shared", "mini-standard")
# A blank that grammar or habit fills, and words of which one is to be among the five likeliest.
BLANKS = {
    "he went [MASK] the house.": {"to", "into", "in", "from", "for", "at"},
    "she opened the [MASK] and looked out.": {"door", "window", "eyes", "gate", "curtain"},
    "one of [MASK] most important cities": {"the", "its", "his"},
    "he was born in [MASK] york.": {"new"},
    "the first world [MASK] began in 1914.": {"war"},
    "he was elected president of the united [MASK].": {"states"},
}


@pytest.fixture(params=NAMES)
def folder(request, monkeypatch) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    return Path(triune.pretrained(request.param))


def test_weights_are_small_and_no_code_comes_with_them(folder):
    kinds = {path.suffix for path in folder.iterdir()}
    assert kinds <= {".json", ".safetensors", ".md", ".txt"}
    assert "auto_map" not in json.loads((folder / "config.json").read_text())
    assert (folder / "model.safetensors").stat().st_size < 12e6
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {torch.bfloat16}


def test_they_are_the_same_but_for_the_operator():
    shared, standard = (json.loads((ROOT / "models" / name / "config.json").read_text()) for name in NAMES)
    assert {key for key in shared if shared[key] != standard.get(key)} <= {"operator", "operator_settings"}
    assert (shared["operator"], standard["operator"]) == ("shared", "standard")
    size = ("num_hidden_layers", "hidden_size", "vocab_size")
    assert [shared[key] for key in size] == [4, 256, 8192]
    assert len({(ROOT / "models" / name / "tokenizer.json").read_text() for name in NAMES}) == 1


def test_blanks_are_filled_as_grammar_and_habit_would(folder):
    fill = pipeline("fill-mask", str(folder), device="cpu", top_k=5)
    guesses = {text: {one["token_str"] for one in fill(text)} for text in BLANKS}
    assert [text for text, words in BLANKS.items() if not words & guesses[text]] == []


def test_the_card_says_what_it_saw_and_how_it_does(folder):
    card = (folder / "README.md").read_text()
    for part in ("license: ", "Wikipedia", "Licence of the text", "validation loss", "| CoLA", "## Not for"):
        assert part in card, part
    assert not re.search(r"(?<![\w.])/(root|work|home|tmp)/", card)


def test_figures_of_the_documentation_are_those_of_the_cards():
    """Every figure in the table of docs/models.md stands on the card of its column."""
    lines = (ROOT / "docs" / "models.md").read_text().splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("|")][2:]
    assert len(rows) >= 4
    for number, name in enumerate(NAMES, start=1):
        card = (ROOT / "models" / name / "README.md").read_text()
        figures = [figure for row in rows for figure in re.findall(r"\d[\d,.]*\d", row[number])]
        assert len(figures) >= len(rows)
        assert [figure for figure in figures if figure not in card] == []
