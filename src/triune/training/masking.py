"""Dynamic masking on the model's device, as a pure function of (seed, example, position).

No generator has a state here: the mask of an example is the same whatever batch, process or restart it appears in.
That is what makes a resumed run, and a run on several devices, see the same masks as one that was never divided.

A block always gives the same number of masked positions, `round(ratio · length)`, with label -100 on those that it
cannot use (padding leaves fewer words to hide). Shapes stay fixed, so nothing waits for the device and a compiled step
is compiled once.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from triune.models.heads import IGNORED

_GOLDEN, _MIX_1, _MIX_2 = (value - (1 << 64) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _mix(x: torch.Tensor) -> torch.Tensor:
    """The finaliser of splitmix64, on int64 that wraps around."""
    x = (x ^ _shifted(x, 30)) * _MIX_1
    x = (x ^ _shifted(x, 27)) * _MIX_2
    return x ^ _shifted(x, 31)


def _shifted(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Right shift that fills with zeros; torch's own copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def random_bits(seed: int, stream: int, examples_B: torch.Tensor, length: int) -> torch.Tensor:
    """63 random bits for each position of each example, (B, length); streams are independent of each other."""
    # Filled on the device: copying a number to it would wait for everything that it still has to do.
    start = torch.full((), seed * 1_000_003 + stream, device=examples_B.device, dtype=torch.int64)
    rows = _mix(examples_B.to(torch.int64) * _GOLDEN + _mix(start * _GOLDEN))
    positions = torch.arange(1, length + 1, device=examples_B.device, dtype=torch.int64)
    return _shifted(_mix(rows[:, None] + positions * _GOLDEN), 1)


def _fractions(bits: torch.Tensor) -> torch.Tensor:
    return (bits >> 39).to(torch.float32) / (1 << 24)


class _Tables(NamedTuple):
    """Looked up by token id, on the device that they are used on."""

    maskable: torch.Tensor
    words: torch.Tensor  # the ids that may be put in at random: neither special nor [MASK]
    word_starts: torch.Tensor | None


@dataclass(frozen=True)
class Masking:
    """Which tokens are hidden, and by what."""

    seed: int
    vocab_size: int
    mask_id: int
    special_ids: tuple[int, ...]  # never hidden, never put in: [PAD], [CLS], [SEP], …
    ratio: float = 0.15
    mask_share: float = 0.8  # of the chosen tokens become [MASK],
    random_share: float = 0.1  # these become another word, the rest stay as they are
    word_starts: torch.Tensor | None = None  # by token id; given, whole words are hidden
    _tables: dict[torch.device, _Tables] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, input_ids_BT: torch.Tensor, examples_B: torch.Tensor) -> dict[str, torch.Tensor]:
        """Corrupted `input_ids` (B, T), and `masked_positions` and `labels` (B, K)."""
        length = input_ids_BT.shape[1]
        # [CLS] is never hidden, and whole words are told by the one after the last that is.
        count = max(1, min(round(self.ratio * length), length - 1))
        tables = self._on(input_ids_BT.device)
        maskable = tables.maskable[input_ids_BT]
        allowed_B1 = (maskable.sum(1, keepdim=True) * self.ratio).round().clamp(1, count)

        order = random_bits(self.seed, 0, examples_B, length)
        words_BT = None
        if tables.word_starts is not None:
            words_BT = tables.word_starts[input_ids_BT].cumsum(1)
            order = order.gather(1, words_BT.clamp(max=length - 1))  # all pieces of a word have the word's number
        order = order.masked_fill(~maskable, torch.iinfo(torch.int64).max)
        positions = order.argsort(dim=1, stable=True)[:, : count + 1]
        if words_BT is not None:
            kept = self._whole_words(words_BT, positions, allowed_B1)
        else:
            kept = torch.arange(count, device=positions.device) < allowed_B1
        positions = positions[:, :count]
        kept = kept & maskable.gather(1, positions)

        original = input_ids_BT.gather(1, positions)
        choice = _fractions(random_bits(self.seed, 1, examples_B, length)).gather(1, positions)
        replaced = torch.where(choice < self.mask_share, self.mask_id, original)
        swap = (choice >= self.mask_share) & (choice < self.mask_share + self.random_share)
        other = tables.words[random_bits(self.seed, 2, examples_B, length).gather(1, positions) % len(tables.words)]
        replaced = torch.where(swap, other, replaced)
        return {
            "input_ids": input_ids_BT.scatter(1, positions, torch.where(kept, replaced, original)),
            "masked_positions": positions,
            "labels": torch.where(kept, original, IGNORED),
        }

    def _on(self, device: torch.device) -> _Tables:
        if device not in self._tables:
            maskable = torch.ones(self.vocab_size, dtype=torch.bool)
            maskable[list(self.special_ids)] = False
            words = maskable.clone()
            words[self.mask_id] = False
            starts = None if self.word_starts is None else self.word_starts.to(device)
            self._tables[device] = _Tables(maskable.to(device), words.nonzero().squeeze(1).to(device), starts)
        return self._tables[device]

    def _whole_words(self, words_BT: torch.Tensor, positions: torch.Tensor, allowed_B1: torch.Tensor) -> torch.Tensor:
        """Those of the chosen pieces whose word was chosen whole: the last word may have been cut."""
        chosen = words_BT.gather(1, positions)
        rank = torch.arange(positions.shape[1] - 1, device=positions.device)
        kept = rank < allowed_B1
        after = (rank + 1 >= allowed_B1) & (chosen[:, :-1] == chosen[:, 1:])
        cut = torch.where(after & kept, chosen[:, :-1], -1).amax(1, keepdim=True)
        return kept & (chosen[:, :-1] != cut)
