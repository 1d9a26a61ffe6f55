"""Tokenised examples as flat arrays, kept on disk between runs, and batches made from them on the model's device."""

import hashlib
import json
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from triune.data.tokenizer import describe_tokenizer
from triune.files import alone_at, write_bytes

Arrays = dict[str, np.ndarray]

ENCODED = ("ids", "starts", "first_lengths", "labels", "truncated")  # what is kept of `Encoded`
CACHE = "cache"  # folder in the results of a study

FILLER = -1  # in a plan of rows: this place of the batch holds no example


@dataclass(frozen=True)
class Encoded:
    """All token ids one after the other. Labels are (N,) classes, (N,) numbers, or (N, 2) first and last token."""

    ids: np.ndarray  # int32
    starts: np.ndarray  # int64, (N + 1,)
    first_lengths: np.ndarray  # int32, (N,): tokens of the first text with [CLS] and [SEP]; the rest is the second
    labels: np.ndarray
    truncated: int = 0  # examples that lost tokens

    def __len__(self) -> int:
        return len(self.first_lengths)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def row(self, number: int) -> np.ndarray:
        return self.ids[self.starts[number] : self.starts[number + 1]]


def encode_pairs(
    tokenizer: Any, first: list[str], second: list[str] | None, labels: Any, max_length: int, chunk: int = 4096
) -> Encoded:
    rows: list[list[int]] = []
    first_lengths: list[int] = []
    truncated = 0
    for begin in range(0, len(first), chunk):
        part = slice(begin, begin + chunk)
        encoded = tokenizer(
            first[part],
            None if second is None else second[part],
            truncation="longest_first",
            max_length=max_length,
            return_token_type_ids=True,
            return_attention_mask=False,
        )
        truncated += sum(bool(one.overflowing) for one in encoded.encodings)
        rows += encoded["input_ids"]
        first_lengths += [len(types) - sum(types) for types in encoded["token_type_ids"]]
    return from_lists(rows, first_lengths, labels, truncated)


def from_lists(rows: list[list[int]], first_lengths: Any, labels: Any, truncated: int = 0) -> Encoded:
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=starts[1:])
    ids = np.fromiter((token for row in rows for token in row), dtype=np.int32, count=int(starts[-1]))
    labels = np.zeros(len(rows), dtype=np.int64) if labels is None else np.asarray(labels)
    kind = np.float32 if labels.dtype.kind == "f" else np.int64
    return Encoded(ids, starts, np.asarray(first_lengths, dtype=np.int32), labels.astype(kind), truncated)


def cached_pairs(cache: Path | None, tokenizer: Any, examples: Any, max_length: int) -> Encoded:
    """`encode_pairs` of `examples`, or what an earlier run kept of the same text, tokenizer and length."""

    def make() -> Encoded:
        return encode_pairs(tokenizer, examples.first, examples.second, examples.labels, max_length)

    if cache is None:
        return make()
    identity = {"text": examples.sha256, "tokenizer": describe_tokenizer(tokenizer), "max_length": max_length, "of": 1}
    identity["cut"] = tokenizer.truncation_side
    return encoded_from(kept_arrays(cache, identity, lambda: arrays_of(make()), ENCODED))


def arrays_of(encoded: Encoded) -> Arrays:
    return {name: np.array([encoded.truncated]) if name == "truncated" else getattr(encoded, name) for name in ENCODED}


def encoded_from(kept: Arrays) -> Encoded:
    return Encoded(kept["ids"], kept["starts"], kept["first_lengths"], kept["labels"], int(kept["truncated"][0]))


def kept_arrays(cache: Path, identity: dict[str, Any], make: Callable[[], Arrays], wanted: Collection[str]) -> Arrays:
    """What `make` gives, or what was kept of the same identity; of several workers one makes it and the others wait."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file, save

    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    path = cache / f"{key}.safetensors"
    with alone_at(cache / f".{key}.lock"):
        with suppress(OSError, SafetensorError):  # not there, or damaged: made anew
            kept = dict(load_file(path))
            if kept.keys() >= set(wanted):
                return kept
        made = {name: np.ascontiguousarray(array) for name, array in make().items()}  # as it must lie to be written
        write_bytes(path, save(made))
    return made


class OnDevice:
    """Examples on the model's device. A batch is a gather there: no tensor is built in Python, nothing is copied."""

    def __init__(self, encoded: Encoded, pad_id: int, device: torch.device) -> None:
        self.pad_id = pad_id
        self.ids = torch.from_numpy(encoded.ids).to(device)
        self.starts = torch.from_numpy(encoded.starts[:-1].copy()).to(device)
        self.lengths = torch.from_numpy(encoded.lengths).to(device)
        self.first_lengths = torch.from_numpy(encoded.first_lengths).to(device)
        self.labels = torch.from_numpy(encoded.labels).to(device)

    def batch(self, rows_B: torch.Tensor, length: int) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
        """Model inputs (B, length), labels, and which places hold an example.

        A filler place holds the first example, so that it computes something harmless; its label must not count.
        """
        held_B = rows_B >= 0
        rows_B = rows_B.clamp(min=0)
        place = torch.arange(length, device=rows_B.device)
        inside_BT = place < self.lengths[rows_B][:, None]
        where = (self.starts[rows_B][:, None] + place).clamp(max=len(self.ids) - 1)
        inputs = {
            "input_ids": torch.where(inside_BT, self.ids[where], self.pad_id).long(),
            "attention_mask": inside_BT.long(),
            "token_type_ids": (inside_BT & (place >= self.first_lengths[rows_B][:, None])).long(),
        }
        return inputs, self.labels[rows_B], held_B
