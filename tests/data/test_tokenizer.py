"""Tokenizers: the same text gives the same files, AutoTokenizer loads them, mistakes are one line."""

import json
import os
import random
import shutil
import subprocess
import sys

import pytest
from transformers import AutoTokenizer

from triune.data.sources import Source
from triune.data.tokenizer import describe_tokenizer, load_tokenizer, train_tokenizer, word_starts
from triune.errors import TriuneError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Words of random syllables: many pairs are equally frequent, which is where training used to differ."""
    draw = random.Random(5)
    syllables = ["ka", "lo", "mi", "té", "su", "ren", "Ta", "vo", "qui", "zo"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(400)]
    documents = [" ".join(draw.choices(words, k=60)) + " – 汉字, ##head [MASK]!" for _ in range(120)]
    path = tmp_path_factory.mktemp("corpus") / "a.txt"
    path.write_text("\n\n".join(documents), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    return train_tokenizer(corpus, 300, tmp_path_factory.mktemp("tokenizer") / "new")


def test_training_is_the_same_in_every_process(corpus, trained, tmp_path):
    program = (
        "import sys; from triune.data.tokenizer import train_tokenizer; train_tokenizer(sys.argv[1], 300, sys.argv[2])"
    )
    runs = []
    for number, threads in enumerate(["1", "2", "4"]):
        environment = {"PYTHONHASHSEED": str(number), "RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "true"}
        command = [sys.executable, "-c", program, str(corpus), str(tmp_path / str(number))]
        runs.append(subprocess.Popen(command, env={**os.environ, **environment}))
    assert [run.wait() for run in runs] == [0, 0, 0]
    for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json"):
        assert {(tmp_path / str(i) / name).read_bytes() for i in range(3)} == {(trained / name).read_bytes()}


def test_auto_tokenizer_loads_it(trained):
    tokenizer = AutoTokenizer.from_pretrained(trained)
    assert tokenizer.is_fast
    assert len(tokenizer) == 300
    assert tokenizer.convert_ids_to_tokens(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = tokenizer("KALOMI té").tokens()
    assert (tokens[0], tokens[-1]) == ("[CLS]", "[SEP]")
    assert "".join(tokens[1:-1]).replace("##", "") == "kalomite"
    assert tokenizer("a", "b")["token_type_ids"][-1] == 1


def test_how_it_was_trained_leaves_no_trace(trained):
    saved = json.loads((trained / "tokenizer.json").read_text())
    assert sorted(token["content"] for token in saved["added_tokens"]) == sorted(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    )
    assert saved["truncation"] is saved["padding"] is None
    tokenizer = load_tokenizer(trained)
    assert tokenizer.tokenize("##ka")[:2] in (["#", "#"], ["[UNK]", "[UNK]"])
    pieces = (trained / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert pieces == tokenizer.convert_ids_to_tokens(range(300))
    assert not {"##–", "##汉", "##,"} & set(pieces)  # these never continue a word
    assert {"–", "汉", ",", "##k"} <= set(pieces)


def test_case_weights_and_frequency_matter(corpus, trained, tmp_path):
    cased = load_tokenizer(train_tokenizer(corpus, 300, tmp_path / "cased", lowercase=False))
    assert any(piece != piece.lower() for piece in cased.get_vocab() if not piece.startswith("["))
    assert cased.tokenize("TÉ") != cased.tokenize("té")
    rare = load_tokenizer(train_tokenizer(Source(corpus, 1.5), 4000, tmp_path / "rare", min_frequency=500))
    assert len(rare) < 300


def test_a_tokenizer_is_replaced_and_anything_else_refused(corpus, trained, tmp_path):
    out = shutil.copytree(trained, tmp_path / "out")
    (out / "tokenizer.json").write_text("damaged")
    (out / "added_tokens.json").write_text("{}")
    assert train_tokenizer(corpus, 300, out) == out
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (out / "config.json").write_text("{}")  # a model's folder
    with pytest.raises(TriuneError, match="holds something else; give an empty or new folder") as caught:
        train_tokenizer(corpus, 400, out)
    assert str(out) in str(caught.value)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before | {"config.json": b"{}"}


def test_a_bare_vocabulary_loads(trained, tmp_path):
    (tmp_path / "vocab.txt").write_bytes((trained / "vocab.txt").read_bytes())
    bare, full = load_tokenizer(tmp_path), load_tokenizer(trained)
    assert bare("KALOMI té, [MASK] ##a")["input_ids"] == full("KALOMI té, [MASK] ##a")["input_ids"]
    assert describe_tokenizer(bare)["vocabulary_sha256"] == describe_tokenizer(full)["vocabulary_sha256"]
    starts = word_starts(bare, 300)
    assert all(bool(starts[i]) != piece.startswith("##") for piece, i in bare.get_vocab().items())


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (None, "there is no tokenizer folder"),
        ({}, "not a tokenizer's folder"),
        ({"vocab.txt": "a\nb\n"}, r"lacks \[PAD\]"),
        ({"tokenizer.json": "{"}, "cannot load tokenizer"),
        ({"tokenizer_config.json": "{}"}, "not a tokenizer's folder"),
        ({"config.json": "{}"}, r"has no tokenizer beside it: save .* by tokenizer.save_pretrained\('.*tokenizer'\)"),
    ],
)
def test_mistakes_are_one_line(tmp_path, files, said):
    folder = tmp_path / "tokenizer"
    for name, content in (files or {}).items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    if files == {}:
        folder.mkdir()
    with pytest.raises(TriuneError, match=said) as caught:
        load_tokenizer(folder)
    assert "\n" not in str(caught.value)


def test_names_of_no_tokenizer(corpus, tmp_path):
    with pytest.raises(TriuneError, match="there is no folder 'nobody/nothing' here, and cannot load tokenizer"):
        load_tokenizer("nobody/nothing")
    with pytest.raises(TriuneError, match="too small"):
        train_tokenizer(corpus, 20, tmp_path / "out")
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(TriuneError, match="no text"):
        train_tokenizer(tmp_path / "empty.txt", 300, tmp_path / "out")


def test_what_cannot_be_read_is_said(tmp_path):
    (tmp_path / "text.jsonl").write_bytes(
        b'{"text": "a word and another word"}\n{"text": \n{"text": "bad \xff byte"}\n'
    )
    lines = []
    train_tokenizer(tmp_path / "text.jsonl", 200, tmp_path / "out", min_frequency=1, say=lines.append)
    assert len(lines) == 1
    assert "2 documents" in lines[0]
    assert "1 documents with malformed UTF-8" in lines[0]
    assert "1 broken records" in lines[0]
