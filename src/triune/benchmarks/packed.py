"""Lengths of short texts, as tasks have them, for packed against padded batches: drawn once, from a fixed seed."""

from dataclasses import dataclass
from typing import Any

import numpy as np

SPREAD = 0.55  # of the logarithm of a length
SHORTEST = 3  # [CLS], a word, [SEP]


@dataclass(frozen=True)
class Packing:
    name: str
    lengths: list[int]

    @property
    def pairs(self) -> int:
        return sum(length**2 for length in self.lengths)

    def describe(self) -> dict[str, Any]:
        tokens, longest = sum(self.lengths), max(self.lengths)
        padded = longest * len(self.lengths)
        return {
            "name": self.name,
            "sequences": len(self.lengths),
            "mean": tokens / len(self.lengths),
            "longest": longest,
            "padding": 1 - tokens / padded,
        }


# Mean and most tokens of a text: near those of CoLA, of GLUE's tasks together, and of RTE.
LIKE = {"like CoLA": (11, 64), "like GLUE": (30, 128), "like RTE": (66, 256)}


def packings(tokens: int) -> list[Packing]:
    return [Packing(name, draw_lengths(tokens, mean, most)) for name, (mean, most) in LIKE.items()]


def draw_lengths(tokens: int, mean: int, most: int) -> list[int]:
    """Log-normal lengths up to `most` that add up to `tokens`: the last one is cut."""
    generator = np.random.Generator(np.random.PCG64(0))
    middle = np.log(mean) - SPREAD**2 / 2
    drawn = generator.lognormal(middle, SPREAD, size=1 + tokens // SHORTEST).round().clip(SHORTEST, most).astype(int)
    ends = drawn.cumsum()
    count = int(np.searchsorted(ends, tokens))
    lengths = [int(one) for one in drawn[: count + 1]]
    lengths[-1] -= int(ends[count]) - tokens
    return lengths
