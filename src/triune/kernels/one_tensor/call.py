"""What a call of the kernels says beside its tensor, and what of it is compiled in."""

from collections import Counter
from typing import NamedTuple

import torch

from triune.kernels.triton_here import multiprocessors

# How often each kernel was launched since this was last cleared: what ran, for whoever asks. A replayed CUDA graph or
# a compiled function that does not call the operator again adds nothing.
LAUNCHED: Counter[str] = Counter()
# Of weights before they are normalised: what is below it, and its products with S, stay inside the type's range.
LARGEST_SUM = {torch.bfloat16: 2.0**90, torch.float32: 2.0**90, torch.float16: 2.0**15}


class Call(NamedTuple):
    """All of a call but the tensor itself. Masks, tables and seed are None where they are not used."""

    score_scale: torch.Tensor
    value_scale: torch.Tensor | None
    max_length: int
    cu_seqlens: torch.Tensor | None
    key_mask: torch.Tensor | None
    cos: torch.Tensor | None
    sin: torch.Tensor | None
    seed: torch.Tensor | None
    dropout: float
    causal: bool
    mask_diagonal: bool

    @property
    def packed(self) -> bool:
        return self.cu_seqlens is not None

    @property
    def scores_stay_symmetric(self) -> bool:
        """Whether both directions of a pair see the same: nothing hides or drops only one of them."""
        return not (self.causal or self.key_mask is not None or self.dropout > 0)

    @property
    def plain(self) -> bool:
        """Sequences of one length, and nothing but c and v."""
        return self.scores_stay_symmetric and not (self.packed or self.mask_diagonal or self.cos is not None)

    def sequences(self, tokens: int) -> int:
        return tokens // self.max_length if self.cu_seqlens is None else self.cu_seqlens.numel() - 1

    def mean_length(self, tokens: int) -> float | None:
        """Of the sequences of a packed batch."""
        return tokens / max(1, self.sequences(tokens)) if self.packed else None

    def is_even(self, *blocks: int) -> bool:
        return not self.packed and all(self.max_length % block == 0 for block in blocks)

    def flags(self, *names: str) -> dict[str, bool]:
        """Of what is compiled into a kernel, the parts that it has."""
        known = {
            "PACKED": self.packed,
            "SCALED_VALUES": self.value_scale is not None,
            "MASKED": self.key_mask is not None,
            "ROTARY": self.cos is not None,
            "CAUSAL": self.causal,
            "NO_SELF": self.mask_diagonal,
            "DROPOUT": self.dropout > 0,
        }
        return {name: known[name] for name in names}


ALL_FLAGS = ("PACKED", "SCALED_VALUES", "MASKED", "ROTARY", "CAUSAL", "NO_SELF", "DROPOUT")
SYMMETRIC_FLAGS = ("PACKED", "SCALED_VALUES", "ROTARY", "NO_SELF")


def programs_a_head(at_once: int, sequences: int, shared: torch.Tensor) -> int:
    """Of a kernel whose programs stay, `at_once` on a multiprocessor: so many that all of them run at a time."""
    return max(1, min(sequences, multiprocessors(shared.device) * at_once // shared.shape[1]))


def fills_gpu(sequences: int, shared: torch.Tensor) -> bool:
    """Whether a program for each sequence and head keeps the GPU busy. Where there are fewer, kernels that share a
    sequence out among programs are faster, though each of them loads it anew."""
    return sequences * shared.shape[1] >= multiprocessors(shared.device)


def pointer(tensor: torch.Tensor | None, other: torch.Tensor) -> torch.Tensor:
    """A pointer that is never read where there is no tensor."""
    return other if tensor is None else tensor
