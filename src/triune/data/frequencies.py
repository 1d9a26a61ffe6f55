"""What word frequencies alone are worth: the loss of a model that knows those of the training text and nothing else."""

import numpy as np

from triune.data.blocks import Blocks

_AT_ONCE = 4096  # blocks


def unigram_loss(train: Blocks, scored: Blocks, indices: np.ndarray) -> float:
    """In nats a token, on some blocks of another text: its words may be rarer or more common than in training.

    Special tokens are left out. Every token counts once more than it was seen, so that none is impossible.
    """
    special = list(train.manifest.tokenizer["special_ids"].values())
    counts = _counts(train, np.arange(len(train))) + 1.0
    wanted = _counts(scored, indices)
    counts[special] = wanted[special] = 0
    is_there = wanted > 0
    return float(-(wanted[is_there] @ np.log(counts[is_there] / counts.sum())) / wanted.sum())


def _counts(blocks: Blocks, indices: np.ndarray) -> np.ndarray:
    total = np.zeros(blocks.vocab_size)
    for start in range(0, len(indices), _AT_ONCE):
        ids = blocks.batch(indices[start : start + _AT_ONCE])["input_ids"].numpy()
        total += np.bincount(ids.ravel(), minlength=blocks.vocab_size)
    return total
