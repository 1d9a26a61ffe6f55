"""Tests run offline, on one thread a process: two processes share the machine (pytest -n 2)."""

import io
import os
import random
import sys
from types import SimpleNamespace

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch

torch.set_num_threads(1)

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "one", "small", "red", "dog", "ran", "home"]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def tokenizer(tmp_path):
    """A word-level WordPiece tokenizer made on the spot."""
    from transformers import BertTokenizerFast

    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    return BertTokenizerFast(vocab=str(vocabulary))


@pytest.fixture(scope="session")
def samples(tmp_path_factory):
    from tests.samples import make_samples

    torch.manual_seed(0)
    return make_samples(tmp_path_factory.mktemp("samples"))


@pytest.fixture(scope="session")
def blocks(tmp_path_factory):
    """Prepared text of a few made-up words, in which each word is followed by one of two others."""
    from triune.data.prepare import prepare
    from triune.data.tokenizer import train_tokenizer

    folder = tmp_path_factory.mktemp("text")
    words = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u")]
    draw = random.Random(0)
    lines = []
    for _ in range(300):
        word, sentence = draw.randrange(len(words)), []
        for _ in range(draw.randint(5, 30)):
            sentence.append(words[word])
            word = (2 * word + draw.randint(0, 1)) % len(words)
        lines.append(" ".join(sentence))
    (folder / "text.txt").write_text("\n\n".join(lines))
    tokenizer = train_tokenizer(folder / "text.txt", 200, folder / "tokenizer")
    prepare(folder / "text.txt", tokenizer, folder / "blocks", 16, valid_fraction=0.1, workers=1)
    return folder / "blocks"


@pytest.fixture(scope="session")
def command():
    """Runs the command in this process: its exit status and what it printed."""
    from triune import cli

    def run(*arguments, stdin=""):
        streams = {name: io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for name in ("stdout", "stderr")}
        streams["stdin"] = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", "160")
            patch.setenv("NO_COLOR", "1")
            patch.setattr(sys, "argv", ["triune", *map(str, arguments)])
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            with pytest.raises(SystemExit) as stop:
                cli.main()
        printed = {}
        for name in ("stdout", "stderr"):
            streams[name].flush()
            printed[name] = streams[name].buffer.getvalue().decode()
        return SimpleNamespace(returncode=stop.value.code, **printed)

    return run


@pytest.fixture(autouse=True)
def plugins_go_with_their_test():
    """Worker processes of later tests would load them too, and two files of one operator would clash there."""
    registry = sys.modules.get("triune.operators.registry")
    before = len(registry._plugins) if registry else 0
    yield
    if registry := sys.modules.get("triune.operators.registry"):
        del registry._plugins[before:]
