"""Blocks of random token ids, in the place of prepared text: time does not depend on what the text says."""

from collections.abc import Sequence

import numpy as np
import torch

from triune.data.blocks import Blocks

_SPECIAL = {"pad": 0, "unk": 100, "cls": 101, "sep": 102, "mask": 103}  # as in BERT's vocabulary
_FIRST_WORD = 1000


class RandomBlocks(Blocks):
    """The same blocks whenever they are asked for; a vocabulary of BERT's size, in which every piece begins a word."""

    vocab_size = 30_522

    def __init__(self, length: int, count: int) -> None:
        self.length, self.count = length, count

    def __len__(self) -> int:
        return self.count

    def batch(self, indices: Sequence[int] | np.ndarray | torch.Tensor) -> dict[str, torch.Tensor]:
        shape = (len(indices), self.length)
        generator = torch.Generator().manual_seed(int(indices[0]))
        ids_BT = torch.randint(_FIRST_WORD, self.vocab_size, shape, generator=generator)
        return {"input_ids": ids_BT, "segments": torch.zeros(shape, dtype=torch.int64)}

    @property
    def block_length(self) -> int:
        return self.length

    @property
    def word_starts(self) -> torch.Tensor:
        return torch.ones(self.vocab_size, dtype=torch.bool)

    def _special(self, part: str) -> int:
        return _SPECIAL[part]
