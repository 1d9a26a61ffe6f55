import random

import pytest

from triune.data.prepare import prepare
from triune.data.tokenizer import train_tokenizer

# A model and a run so small that a step takes milliseconds.
TINY = [
    "model.operator_settings={}",
    "model.layers=1",
    "model.width=16",
    "model.heads=2",
    "model.feed_forward=32",
    "model.hidden_dropout=0.1",  # so that random states matter
    "model.attention_dropout=0.1",
    "data.block_length=16",
    "training.sequences=8",
    "training.per_device=8",
    "training.steps=24",
    "training.log_every=2",
    "training.evaluate_every=12",
    "training.evaluate_blocks=16",
    "training.checkpoint_every=5",
]


@pytest.fixture(scope="session")
def blocks(tmp_path_factory):
    """Prepared text of a few made-up words, in which each word is followed by one of two others."""
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
