"""Tests run offline, on one thread a process: two processes share the machine (pytest -n 2)."""

import io
import os
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
