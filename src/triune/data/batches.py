"""Which examples make a batch: a pure function of (seed, epoch), with little padding and few different lengths."""

from collections.abc import Iterator

import numpy as np

from triune.data.encoded import FILLER

POOL = 32  # batches whose examples are sorted by length together; small enough to leave the order random


def rounded_length(length: int, longest: int) -> int:
    """Few lengths, so that few steps are captured or compiled: multiples of 8, then 16, then 32, then 64."""
    step = 8 if length <= 64 else 16 if length <= 128 else 32 if length <= 256 else 64
    return min(-(-length // step) * step, longest)


def training_plan(lengths: np.ndarray, batch: int, seed: int, epoch: int, longest: int) -> list[tuple[int, np.ndarray]]:
    """(length, rows) of every batch of an epoch; each example once, places left over hold `FILLER`."""
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(len(lengths))
    batches = []
    for begin in range(0, len(order), POOL * batch):
        pool = order[begin : begin + POOL * batch]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += list(_cut(pool, batch))
    return [
        (rounded_length(int(lengths[rows[rows >= 0]].max()), longest), rows)
        for rows in (batches[i] for i in draw.permutation(len(batches)))
    ]


def evaluation_plan(lengths: np.ndarray, tokens: int, longest: int) -> Iterator[tuple[int, np.ndarray]]:
    """Batches of about `tokens` tokens, longest first, so that memory is at its peak in the beginning."""
    order = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < len(order):
        length = rounded_length(int(lengths[order[begin]]), longest)
        count = max(1, tokens // length)
        yield length, order[begin : begin + count]
        begin += count


def _cut(rows: np.ndarray, batch: int) -> Iterator[np.ndarray]:
    for begin in range(0, len(rows), batch):
        part = rows[begin : begin + batch]
        yield np.concatenate([part, np.full(batch - len(part), FILLER)])
