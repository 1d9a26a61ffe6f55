"""The order of the data, as a pure function of (seed, position)."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset


class BlockStream(Dataset):
    """All examples of a run in the order in which it sees them: pass after pass, each in its own random order.

    Example number e is a block and, through its number, a mask. A run is at example `step · sequences`, so the
    position in the data needs no state of its own.
    """

    def __init__(self, blocks: Any, examples: int, seed: int) -> None:
        self.blocks = blocks
        self.examples = examples
        self.seed = seed
        self._pass = -1
        self._order = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return self.examples

    def __getitem__(self, example: int) -> dict[str, torch.Tensor]:
        return {name: value[0] for name, value in self.__getitems__([example]).items()}

    def __getitems__(self, examples: list[int]) -> dict[str, torch.Tensor]:
        """A whole batch at once; the data loader calls this where it exists."""
        batch = self.blocks.batch([self._block(example) for example in examples])
        return {**batch, "examples": torch.tensor(examples)}

    def _block(self, example: int) -> int:
        number, position = divmod(example, len(self.blocks))
        if number != self._pass:
            self._order = np.random.Generator(np.random.PCG64([self.seed, number])).permutation(len(self.blocks))
            self._pass = number
        return int(self._order[position])


class ValidationBlocks(Dataset):
    """Some blocks of the validation split, each always under the same mask.

    They are spread evenly over the whole of it, or, as in records of earlier versions, the first ones: those of a split
    that is made of several texts may all be of one of them.
    """

    def __init__(self, blocks: Any, limit: int, spread: bool) -> None:
        self.blocks = blocks
        count = min(limit, len(blocks))
        self.indices = np.arange(count) * len(blocks) // max(count, 1) if spread else np.arange(count)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitems__(self, positions: list[int]) -> dict[str, torch.Tensor]:
        indices = self.indices[positions]
        return {**self.blocks.batch(indices), "examples": torch.from_numpy(indices)}


def already_a_batch(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return batch
