"""The record of a prepared folder: what it was made from, what is in it, and whether it is still current."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from triune.checksums import sha256_of
from triune.data.sources import HUB, Source, source_files
from triune.errors import TriuneError, one_line

FORMAT = 1  # raise it when the same settings and text would give other blocks
NAME = "manifest.json"


@dataclass
class Manifest:
    """`reused` and `changes` (why it was prepared again, in words) say what `prepare` did; they are not saved."""

    settings: dict[str, Any]
    tokenizer: dict[str, Any]  # name, vocab_size, special ids, and checksums of vocabulary and rules
    sources: list[dict[str, Any]]  # of each: the source, its split, its files, its ReadCounts
    splits: dict[str, dict[str, Any]]  # train, valid: documents, tokens, blocks, …
    files: dict[str, dict[str, Any]]  # bytes and sha256 of each file that was written
    id_type: str
    unigram_entropy: float  # nats a token of the train split, special tokens left out
    text_bytes: int
    seconds: float
    megabytes_per_second: float
    format: int = FORMAT
    reused: bool = False
    changes: list[str] = field(default_factory=list)

    @property
    def pocket(self) -> bool:
        """Whether any of the text is that of the generated benchmark."""
        return any(source.get("pocket", False) for source in self.sources)

    def to_json(self) -> str:
        saved = {name: value for name, value in asdict(self).items() if name not in ("reused", "changes")}
        return json.dumps(saved, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, folder: str | Path) -> "Manifest":
        path = Path(folder) / NAME
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            if saved["format"] != FORMAT:
                raise TriuneError(f"'{path}' has format {saved['format']}, this version reads {FORMAT}: prepare again")
            return cls(**{one.name: saved[one.name] for one in fields(cls) if one.name in saved})
        except (FileNotFoundError, NotADirectoryError) as error:
            raise TriuneError(f"'{folder}' is not a prepared folder: it has no {NAME}") from error
        except OSError as error:
            raise TriuneError(f"cannot read '{path}': {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, TriuneError):
                raise
            raise TriuneError(f"'{path}' is damaged ({one_line(error)}): prepare again") from error

    def report(self) -> list[str]:
        """What a command prints."""
        lines = []
        for source in self.sources:
            lines.append(f"{source['where']} ({source['split']}, weight {source['weight']:g}): {source['report']}")
        for name, split in self.splits.items():
            lines.append(
                f"{name}: {split['documents']:,} documents, {split['tokens']:,} tokens, {split['blocks']:,} blocks, "
                f"{split['unknown_share']:.3%} unknown, {split['padding_share']:.2%} padding, "
                f"{split['dropped_tokens']:,} tokens dropped, {split['documents_without_tokens']:,} without tokens"
            )
        lines.append(
            f"{self.text_bytes / 1e6:,.1f} MB of text in {self.seconds:.1f} s ({self.megabytes_per_second:.1f} MB/s); "
            f"unigram entropy {self.unigram_entropy:.3f} nats"
        )
        return lines


def fingerprint(source: Source, known: Iterable[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """The files of a source with size, time and checksum. A hub data set has none: it counts as unchanged.

    The checksum of a file whose size and time are `known` is taken from there, as make, rsync and git do.
    """
    if source.where.startswith(HUB):
        return []
    by_path = {file["path"]: file for file in known}
    prints = []
    for path in source_files(source):
        try:
            state = path.stat()
            file = {"path": str(path), "bytes": state.st_size, "mtime_ns": state.st_mtime_ns}
            before = by_path.get(str(path), {})
            same = all(before.get(key) == value for key, value in file.items())
            prints.append({**file, "sha256": before["sha256"] if same else sha256_of(path)})
        except OSError as error:
            raise TriuneError(f"cannot read '{path}': {error.strerror}") from error
    return prints


def setting_changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [f"{key} was {before.get(key)} and is {now[key]}" for key in now if before.get(key) != now[key]]


def tokenizer_changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    changes = []
    if before.get("vocabulary_sha256") != now["vocabulary_sha256"]:
        changes.append("the tokenizer's vocabulary changed")
    if before.get("rules_sha256") != now["rules_sha256"]:
        changes.append("the tokenizer's rules (normalisation, splitting, special tokens) changed")
    return changes


def source_changes(before: Iterable[dict[str, Any]], now: Iterable[dict[str, Any]]) -> list[str]:
    old = {file["path"]: file["sha256"] for file in before}
    new = {file["path"]: file["sha256"] for file in now}
    changes = [f"'{path}' changed" for path in new if path in old and new[path] != old[path]]
    changes += [f"'{path}' is new" for path in new if path not in old]
    return changes + [f"'{path}' is gone" for path in old if path not in new]


def damage(folder: Path, files: dict[str, dict[str, Any]], checksums: bool = True) -> list[str]:
    """What is wrong with the files of a prepared folder; without `checksums` only what their sizes tell."""
    found = []
    for name, record in files.items():
        path = folder / name
        if not path.is_file():
            found.append(f"'{path}' is missing")
        elif path.stat().st_size != record["bytes"]:
            found.append(f"'{path}' has {path.stat().st_size:,} bytes instead of {record['bytes']:,}")
        elif checksums and sha256_of(path) != record["sha256"]:
            found.append(f"'{path}' is damaged: its checksum is wrong")
    return found
