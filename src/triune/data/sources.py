"""What text to read: sources, the files they stand for, weights, and the counts of what was met in them."""

import glob
import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from triune.errors import TriuneError

HUB = "hub:"
KINDS = (".txt", ".jsonl", ".parquet")
COMPRESSIONS = (".gz", ".xz", ".zst")
DOCUMENTS = ("blank-line", "line")


@dataclass(frozen=True)
class Source:
    """A file, a folder, a glob or `hub:NAME[:CONFIG[:SPLIT]]`.

    A weight of 2 takes every document twice, 0.25 a quarter of the documents: which ones is drawn from their text, so
    it depends on neither order nor machine. `document` says what separates documents in .txt files, `text_field` where
    the text is in .jsonl, .parquet and hub data sets.
    """

    where: str
    weight: float = 1.0
    document: str = "blank-line"
    text_field: str = "text"

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", str(self.where))
        if not (isinstance(self.weight, int | float) and math.isfinite(self.weight) and self.weight > 0):
            raise TriuneError(f"the weight of source '{self.where}' is {self.weight}; it must be a number above 0")
        if self.document not in DOCUMENTS:
            raise TriuneError(f"document='{self.document}' is not known; it is one of {', '.join(DOCUMENTS)}")

    def hub_parts(self) -> tuple[str, str | None, str]:
        name, config, split, *more = [*self.where.removeprefix(HUB).split(":"), "", ""]
        if not name or any(more):
            raise TriuneError(f"'{self.where}' is not hub:NAME, hub:NAME:CONFIG or hub:NAME:CONFIG:SPLIT")
        return name, config or None, split or "train"


def source_from(text: str, document: str = "blank-line", text_field: str = "text") -> Source:
    """`WHERE` or `WHERE@WEIGHT`; an @ that is followed by no number belongs to the name."""
    where, at, weight = text.rpartition("@")
    try:
        share = float(weight) if at else 1.0
    except ValueError:
        return Source(text, 1.0, document, text_field)
    return Source(where if at else text, share, document, text_field)


@dataclass
class ReadCounts:
    """What was met while reading; `report` says it in one line."""

    files: int = 0
    documents: int = 0
    bytes: int = 0  # of UTF-8, in the documents
    empty: int = 0  # documents without a visible character
    malformed: int = 0  # documents with bytes that are not UTF-8, replaced by U+FFFD
    broken: int = 0  # lines or rows that hold no document: bad JSON, no such field, not text
    cut: int = 0  # times a .txt document was too long and was cut in two
    skipped_files: int = 0  # files of a folder or glob whose suffix is not known
    first_broken: str = ""

    def report(self) -> str:
        parts = [f"{self.documents:,} documents, {self.bytes / 1e6:,.1f} MB from {self.files:,} files"]
        parts += [f"{self.empty:,} empty documents"] if self.empty else []
        parts += [f"{self.malformed:,} documents with malformed UTF-8 (replaced)"] if self.malformed else []
        parts += [f"{self.broken:,} broken records (first: {self.first_broken})"] if self.broken else []
        parts += [f"{self.cut:,} cuts in documents that are too long"] if self.cut else []
        parts += [f"{self.skipped_files:,} files of other kinds left out"] if self.skipped_files else []
        return "; ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def as_sources(sources: Source | str | Path | Iterable[Source | str | Path]) -> list[Source]:
    """One or several sources, given as such or as paths and names."""
    if isinstance(sources, Source | str | Path):
        sources = [sources]
    return [source if isinstance(source, Source) else Source(str(source)) for source in sources]


def kind_of(path: Path) -> tuple[str, str]:
    """(.txt, .jsonl or .parquet; compression or nothing) of a file's name."""
    name = path.name.lower()
    compression = next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), "")
    name = name.removesuffix(compression)
    kind = next((suffix for suffix in KINDS if name.endswith(suffix)), "")
    if not kind:
        known = ", ".join(KINDS)
        raise TriuneError(f"'{path}': the suffix is not known; it must be {known}, and .gz, .xz or .zst after that")
    return kind, compression


def source_files(source: Source, counts: ReadCounts | None = None) -> list[Path]:
    """The files of a source, sorted. In folders and globs, files of other kinds are left out and counted."""
    counts = ReadCounts() if counts is None else counts
    path = Path(source.where).expanduser()
    if path.is_dir():
        found = [path]
    elif path.exists():
        kind_of(path)
        return [path]
    elif glob.has_magic(source.where):
        found = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
    else:
        raise TriuneError(f"'{source.where}' does not exist")
    files = {file for match in found for file in _inside(match)}
    known = sorted(file for file in files if _known(file))
    counts.skipped_files += len(files) - len(known)
    if not known:
        raise TriuneError(
            f"'{source.where}' has no files that end in {', '.join(KINDS)} (or those with .gz, .xz, .zst)"
        )
    return known


def _inside(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for file in path.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if file.is_file() and not hidden:
            yield file


def _known(path: Path) -> bool:
    try:
        kind_of(path)
    except TriuneError:
        return False
    return True


def draw(text: str, purpose: str, seed: int) -> float:
    """A number in [0, 1) that only the text, the purpose and the seed decide."""
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8, key=f"{purpose}:{seed}".encode()).digest()
    return int.from_bytes(digest) / 2**64
