"""Packed batches: sequences lie one after another in one row, without padding between them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.utils.import_utils import is_tracing

from triune.errors import TriuneError

# What transformers calls the parts of a packing (DataCollatorWithFlattening gives them).
KEYWORDS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


class Packing(NamedTuple):
    """Where sequences lie in a row of M tokens and, if they came from a padded batch, where they lay in that."""

    cu_seqlens: torch.Tensor  # int32 (sequences + 1,): the start of each sequence, and the end of the last
    max_length: int  # no sequence is longer; of a padded batch, its length with padding
    kept_M: torch.Tensor | None = None  # of a padded batch: which of its tokens are here, rows one after another
    rows: int = 1  # of the padded batch

    def sequence_of_each(self, tokens: int) -> torch.Tensor:
        """The number of its sequence for each token, (M,)."""
        numbers = torch.arange(tokens, device=self.cu_seqlens.device, dtype=torch.int32)
        return torch.searchsorted(self.cu_seqlens[1:].contiguous(), numbers, right=True)

    def positions(self, tokens: int) -> torch.Tensor:
        """Counted from the start of each sequence, (1, M)."""
        numbers = torch.arange(tokens, device=self.cu_seqlens.device)
        return (numbers - self.cu_seqlens[self.sequence_of_each(tokens)])[None]

    def visible(self, tokens: int) -> torch.Tensor:
        """Who sees whom, (1, 1, M, M): for cores that know masks only."""
        sequence_M = self.sequence_of_each(tokens)
        return (sequence_M[:, None] == sequence_M[None, :])[None, None]

    def take(self, padded: torch.Tensor) -> torch.Tensor:
        """(rows or 1, T, ...) → (1, M, ...)."""
        assert self.kept_M is not None
        whole = padded.expand(self.rows, *padded.shape[1:]).flatten(0, 1)
        return whole.index_select(0, self.kept_M)[None]

    def put_back(self, states_1Md: torch.Tensor) -> torch.Tensor:
        """(1, M, d) → (rows, T, d), zeros at padding; as it is where the batch came packed."""
        if self.kept_M is None:
            return states_1Md
        whole = states_1Md.new_zeros((self.rows * self.max_length, states_1Md.shape[-1]))
        return whole.index_copy(0, self.kept_M, states_1Md[0]).unflatten(0, (self.rows, self.max_length))

    def first_states(self, states_1Md: torch.Tensor) -> torch.Tensor:
        """The state of each sequence's first token, (sequences, d)."""
        starts = self.cu_seqlens[:-1].clamp(max=states_1Md.shape[1] - 1)  # an empty sequence may lie at the end
        return states_1Md[0].index_select(0, starts)

    def mean_states(self, states_1Md: torch.Tensor) -> torch.Tensor:
        """The mean of each sequence's states, (sequences, d)."""
        lengths = self.cu_seqlens.diff()
        # In float32: added up in half precision, as a GPU would, a sum of some hundred states no longer grows.
        exact = torch.promote_types(states_1Md.dtype, torch.float32)
        sums = states_1Md.new_zeros((lengths.shape[0], states_1Md.shape[-1]), dtype=exact)
        sums = sums.index_add(0, self.sequence_of_each(states_1Md.shape[1]), states_1Md[0].to(exact))
        return (sums / lengths.clamp(min=1)[:, None]).to(states_1Md.dtype)


def without_padding(attention_mask_BT: torch.Tensor) -> Packing | None:
    """The packing of a padded batch, or None where nothing is padding. Waits for the device, to count tokens."""
    shown_BT = attention_mask_BT.bool()
    kept_M = shown_BT.flatten().nonzero().squeeze(1)
    if kept_M.numel() == shown_BT.numel():
        return None
    ends = shown_BT.sum(1).cumsum(0, dtype=torch.int32)
    rows, tokens = shown_BT.shape
    return Packing(nn.functional.pad(ends, (1, 0)), tokens, kept_M, rows)


def packing_from(given: dict[str, Any], tokens_shape: torch.Size, longest: int) -> Packing | None:
    """Take transformers' keywords for packed input out of `given`; None where they are not there."""
    parts = {name: given.pop(name, None) for name in KEYWORDS}
    starts, keys = parts["cu_seq_lens_q"], parts["cu_seq_lens_k"]
    if starts is None:
        if any(part is not None for part in parts.values()):
            raise TriuneError("packed input needs cu_seq_lens_q: where each sequence starts, and the end of the last")
        return None
    if len(tokens_shape) != 2 or tokens_shape[0] != 1:
        raise TriuneError(f"packed input is one row, (1, tokens), not {tuple(tokens_shape)}: leave cu_seq_lens_q out")
    if starts.ndim != 1 or starts.shape[0] < 2 or starts.is_floating_point():
        raise TriuneError("cu_seq_lens_q must be a vector of whole numbers: each start, and the end of the last")
    if keys is not None and keys.shape != starts.shape:
        raise TriuneError("cu_seq_lens_k differs from cu_seq_lens_q: in an encoder they are the same")
    tracing = is_tracing(starts)
    if not tracing and (starts.device.type == "cpu" or parts["max_length_q"] is None):
        _check_starts(starts, tokens_shape[1], parts["max_length_q"])
    longest_here = parts["max_length_q"]
    if longest_here is None:  # the device is asked, or where it cannot be, the highest possible number taken
        longest_here = min(tokens_shape[1], longest) if tracing else starts.diff().max()
    if starts.is_cuda and not tracing:  # without waiting for the device
        fits = (starts[0] == 0) & (starts[-1] == tokens_shape[1]) & (starts.diff().max() <= int(longest_here))
        torch._assert_async(fits, "cu_seq_lens_q must rise from 0 to the number of tokens, by max_length_q at most")
    return Packing(starts.to(torch.int32), int(longest_here))


def _check_starts(starts: torch.Tensor, tokens: int, longest: int | None) -> None:
    numbers = starts.tolist()
    if numbers[0] != 0 or numbers[-1] != tokens or sorted(numbers) != numbers:
        raise TriuneError(
            f"cu_seq_lens_q must rise from 0 to the number of tokens, {tokens}: it goes from {numbers[0]} "
            f"to {numbers[-1]}"
        )
    if longest is not None and longest < (length := int(starts.diff().max())):
        raise TriuneError(f"max_length_q is {longest}, and a sequence has {length} tokens")


_keep = False


@contextmanager
def padding_kept() -> Iterator[None]:
    """Batches stay padded in here: for what must run as a CUDA graph will be captured."""
    global _keep
    before, _keep = _keep, True
    try:
        yield
    finally:
        _keep = before


def can_remove_padding(attention_mask: torch.Tensor | None) -> bool:
    """Whether the number of tokens may be asked of the device here and now."""
    return attention_mask is not None and attention_mask.ndim == 2 and not _keep and not is_tracing(attention_mask)
