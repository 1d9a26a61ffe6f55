"""Prepared blocks, read from a memory map: a map-style data set for torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from triune.data.manifest import Manifest, damage
from triune.data.prepare import SPLITS, TOKENIZER, WORD_STARTS
from triune.errors import TriuneError


class Blocks(Dataset[dict[str, torch.Tensor]]):
    """The blocks of one split. Files are opened when first read, so that copies in worker processes open their own.

    Making it compares sizes with the manifest; `prepare` compares checksums.
    """

    def __init__(self, folder: str | Path, split: str = "train") -> None:
        self.folder, self.split = Path(folder), split
        if split not in SPLITS:
            raise TriuneError(f"there is no split '{split}'; it is one of {', '.join(SPLITS)}")
        if not self.folder.is_dir():
            raise TriuneError(f"there is no prepared folder '{folder}': run `triune prepare`")
        self.manifest = Manifest.load(folder)
        wrong = damage(self.folder, self.manifest.files, checksums=False)
        if wrong:
            raise TriuneError(f"{wrong[0]}: prepare it again")
        self._maps: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return int(self.manifest.splits[self.split]["blocks"])

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"block {index} of {len(self)}")
        return {name: rows[0] for name, rows in self.batch([index]).items()}

    def batch(self, indices: Sequence[int] | np.ndarray | torch.Tensor) -> dict[str, torch.Tensor]:
        """Rows of int64 `input_ids` and `segments`, in the order of the indices."""
        rows = np.asarray(indices, dtype=np.int64)
        ids_BT, segments_BT = self._open()
        return {
            "input_ids": torch.from_numpy(ids_BT[rows].astype(np.int64)),
            "segments": torch.from_numpy(segments_BT[rows].astype(np.int64)),
        }

    def __getitems__(self, indices: list[int]) -> list[dict[str, torch.Tensor]]:
        """What a DataLoader calls for a batch: one gather instead of one a row."""
        rows = self.batch(indices)
        return [{name: values[i] for name, values in rows.items()} for i in range(len(indices))]

    def _open(self) -> tuple[np.ndarray, np.ndarray]:
        if self._maps is None:
            shape = (len(self), self.block_length)
            kinds = (("tokens", self.manifest.id_type), ("segments", "u1"))
            maps = []
            for part, kind in kinds:
                path = self.folder / f"{self.split}.{part}.bin"
                try:  # an empty file cannot be mapped
                    maps.append(np.memmap(path, kind, "r", shape=shape) if shape[0] else np.empty(shape, kind))
                except (OSError, ValueError) as error:
                    raise TriuneError(f"cannot read '{path}': {error}; prepare it again") from error
            self._maps = (maps[0], maps[1])
        return self._maps

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": None}  # a pickled memory map would carry the whole file

    @property
    def block_length(self) -> int:
        return int(self.manifest.settings["block_length"])

    @property
    def vocab_size(self) -> int:
        return int(self.manifest.tokenizer["vocab_size"])

    @property
    def tokenizer_folder(self) -> Path:
        return self.folder / TOKENIZER

    @property
    def pad_id(self) -> int:
        return self._special("pad")

    @property
    def unk_id(self) -> int:
        return self._special("unk")

    @property
    def cls_id(self) -> int:
        return self._special("cls")

    @property
    def sep_id(self) -> int:
        return self._special("sep")

    @property
    def mask_id(self) -> int:
        return self._special("mask")

    def _special(self, part: str) -> int:
        return int(self.manifest.tokenizer["special_ids"][part])

    @property
    def word_starts(self) -> torch.Tensor:
        """For each id of the vocabulary, whether the piece begins a word."""
        return torch.from_numpy(np.fromfile(self.folder / WORD_STARTS, dtype=np.uint8).astype(bool))
