"""Tests run offline, on one thread a process: two processes share the machine (pytest -n 2)."""

import os

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
