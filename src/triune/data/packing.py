"""Token ids into blocks of one length, and blocks into files.

A block is [CLS] tokens … [SEP]. Beside its ids stand its segments: 1, 2, … for the documents in the block ([CLS]
belongs to the first one, each [SEP] to the document that it closes), 0 for padding. A document that goes on in the
next block is segment 1 there.
"""

import hashlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from triune.data.encode import Ids, Lengths

MOST_SEGMENTS = 255  # what a uint8 can number; the next document opens a new block


class CheckedFile:
    """A file that knows its size and checksum when it is closed, and is on the disk by then."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")
        self.hash = hashlib.sha256()
        self.size = 0

    def write(self, data: np.ndarray) -> None:
        view = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        self.file.write(view)
        self.hash.update(view)
        self.size += len(view)

    def close(self) -> None:
        with self.file:
            self.file.flush()
            os.fsync(self.file.fileno())

    def record(self) -> dict[str, int | str]:
        return {"bytes": self.size, "sha256": self.hash.hexdigest()}


@dataclass
class SpecialIds:
    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


@dataclass
class _Plan:
    """Where each piece of a document goes; a piece is what of it lies in one block."""

    rows: list[int]
    columns: list[int]
    starts: list[int]  # in the ids that came in
    lengths: list[int]
    segments: list[int]


class Packer:
    """Fills blocks and writes them: `add` documents, `close` at the end. Holds one unfinished block between calls."""

    def __init__(
        self,
        block_length: int,
        span_documents: bool,
        minimum_tail: int,
        special: SpecialIds,
        id_type: str,
        ids_file: CheckedFile,
        segments_file: CheckedFile,
    ) -> None:
        self.block_length, self.span, self.minimum_tail = block_length, span_documents, minimum_tail
        self.special, self.id_type = special, np.dtype(id_type)
        self.ids_file, self.segments_file = ids_file, segments_file
        self.open_ids, self.open_segments = self._blank(1)
        self.column, self.segment = 1, 0  # where the open block goes on, and which document that follows
        self.blocks = self.padding = self.dropped_tails = self.dropped_tokens = 0

    def add(self, ids: Ids, lengths: Lengths) -> None:
        plan, last_row = self._plan(lengths)
        block_ids, block_segments = self._blank(last_row + 1)
        block_ids[0], block_segments[0] = self.open_ids[0], self.open_segments[0]
        block_segments[:, 0] = 1  # of [CLS]
        rows, columns, starts, sizes = (
            np.array(one, dtype=np.int64) for one in (plan.rows, plan.columns, plan.starts, plan.lengths)
        )
        segments = np.array(plan.segments, dtype=np.uint8)
        place = rows * self.block_length + columns
        step = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # 0, 1, … within each piece
        flat_ids, flat_segments = block_ids.reshape(-1), block_segments.reshape(-1)
        flat_ids[np.repeat(place, sizes) + step] = ids[np.repeat(starts, sizes) + step]
        flat_segments[np.repeat(place, sizes) + step] = np.repeat(segments, sizes)
        flat_ids[place + sizes] = self.special.sep
        flat_segments[place + sizes] = segments
        self._write(block_ids[:-1], block_segments[:-1])
        self.open_ids, self.open_segments = block_ids[-1:].copy(), block_segments[-1:].copy()

    def _plan(self, lengths: Lengths) -> tuple[_Plan, int]:
        """Row 0 is the open block; the last row is the one that stays open."""
        plan = _Plan([], [], [], [], [])
        end = self.block_length - 1  # the last column, always for [SEP] (or padding)
        row, column, segment, start = 0, self.column, self.segment, 0
        for length in lengths.tolist():
            left = length
            while left:
                tail = left < length
                if tail and not self.span and left < self.minimum_tail:
                    self.dropped_tails += 1
                    self.dropped_tokens += left
                    break
                if column >= end or segment == MOST_SEGMENTS or (segment and not self.span):
                    row, column, segment = row + 1, 1, 0
                segment += 1
                size = min(left, end - column)
                plan.rows.append(row)
                plan.columns.append(column)
                plan.starts.append(start + length - left)
                plan.lengths.append(size)
                plan.segments.append(segment)
                left -= size
                column += size + 1  # [SEP]
            start += length
        self.column, self.segment = column, segment
        return plan, row

    def close(self) -> None:
        """Write the block that is still open, padded. Nothing of it is dropped, however short it is."""
        if self.segment:
            self._write(self.open_ids, self.open_segments)
        self.column, self.segment = 1, 0
        self.ids_file.close()
        self.segments_file.close()

    def _blank(self, blocks: int) -> tuple[np.ndarray, np.ndarray]:
        ids = np.full((blocks, self.block_length), self.special.pad, dtype=self.id_type)
        ids[:, 0] = self.special.cls
        return ids, np.zeros((blocks, self.block_length), dtype=np.uint8)

    def _write(self, ids: np.ndarray, segments: np.ndarray) -> None:
        self.ids_file.write(ids)
        self.segments_file.write(segments)
        self.blocks += len(ids)
        self.padding += int((segments == 0).sum())


class Tally:
    """Counts of a split's tokens, before they are packed; special tokens of blocks are not among them."""

    def __init__(self, vocab_size: int, special: SpecialIds) -> None:
        self.counts = np.zeros(vocab_size, dtype=np.int64)
        self.special = special
        self.documents = self.without_tokens = self.tokens = 0

    def add(self, ids: Ids, lengths: Lengths) -> None:
        self.counts += np.bincount(ids, minlength=len(self.counts))
        self.documents += len(lengths)
        self.without_tokens += int((lengths == 0).sum())
        self.tokens += len(ids)

    def entropy(self) -> float:
        """Of single tokens, in nats: the loss of a model that knows nothing but their frequencies."""
        counts = self.counts.astype(np.float64)
        counts[list(asdict(self.special).values())] = 0
        share = counts[counts > 0] / max(counts.sum(), 1)
        return float(-(share * np.log(share)).sum())

    def record(self, packer: Packer) -> dict[str, int | float]:
        return {
            "documents": self.documents,
            "documents_without_tokens": self.without_tokens,
            "tokens": self.tokens,
            "blocks": packer.blocks,
            "unknown_share": float(self.counts[self.special.unk] / max(self.tokens, 1)),
            "padding_share": packer.padding / max(packer.blocks * packer.block_length, 1),
            "dropped_tails": packer.dropped_tails,
            "dropped_tokens": packer.dropped_tokens,
        }
