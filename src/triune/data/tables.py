"""Rows out of tables: .csv, .tsv and .jsonl (plain, .gz, .xz, .zst) and .parquet, from a file or a stream.

A table that cannot be read as it stands is refused with the row that is at fault; nothing is guessed, skipped or
replaced, for a row that is lost in silence shifts every number that comes after. Rows are counted as users count them:
by the line they start on in text files (an editor's line number; the header is line 1), from 1 in parquet.

In .csv, text may be quoted with ", as spreadsheets write it. In .tsv there is no quoting: a quote is a character like
any other, as in the files of GLUE, where many are never closed. Lines that are wholly empty are no rows.
"""

import io
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow

from triune.data.sources import COMPRESSIONS
from triune.data.table_formats import Row, Wanted, place
from triune.data.text import open_stream
from triune.errors import TriuneError, did_you_mean, one_line, shown

KINDS = (".csv", ".tsv", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Rows:
    """The wanted columns of a table. `numbers` are those of the rows, as users count them."""

    where: str
    kind: str
    columns: dict[str, list[Any]]
    numbers: list[int]

    def __len__(self) -> int:
        return len(self.numbers)

    def place(self, index: int) -> str:
        return place(self.where, self.kind, self.numbers[index])


def read_rows(path: Path, columns: Sequence[str], *, text: Sequence[str] = (), optional: Sequence[str] = ()) -> Rows:
    """All rows of a file. Cells of `text` columns must be text; `optional` ones are None where they are absent."""
    path = Path(path)
    kept: dict[str, list[Any]] = {column: [] for column in (*columns, *optional)}
    numbers = []
    for number, row in iter_rows(path, None, columns, text=text, optional=optional):
        numbers.append(number)
        for column, cells in kept.items():
            cells.append(row[column])
    return Rows(shown(path, None), table_kind(path)[0], kept, numbers)


def iter_rows(
    source: Path | IO[Any],
    kind: str | None,
    columns: Sequence[str],
    *,
    text: Sequence[str] = (),
    optional: Sequence[str] = (),
    name: str = "standard input",
) -> Iterator[Row]:
    """(number of the row, its wanted cells), one by one. `kind` (csv, tsv, jsonl, parquet) is needed for a stream;
    for a path it is read from the suffix unless it is given. `name` stands for a stream in messages."""
    kind = f".{kind.lower().removeprefix('.')}" if kind else None
    if kind is not None and kind not in KINDS:
        known = [known[1:] for known in KINDS]
        raise TriuneError(f"unknown kind of table '{shown(kind[1:])}'{did_you_mean(kind[1:], known)}")
    if isinstance(source, str | Path):
        where = shown(source, None)
        stream, kind = _open(Path(source), where, kind)
    elif kind is None:
        raise TriuneError(f"say what {name} holds: one of {', '.join(known[1:] for known in KINDS)}")
    else:
        where, stream = name, getattr(source, "buffer", source)  # sys.stdin is text; its buffer is bytes
    wanted = Wanted(where, kind, tuple(columns), tuple(optional))
    rows = 0
    try:
        for number, cells in wanted.read(stream):
            for column in text:
                if not isinstance(cells[column], str):
                    check_text(cells[column], column, place(where, kind, number))
            rows += 1
            yield number, cells
    except (OSError, EOFError, lzma.LZMAError, pyarrow.ArrowException) as error:
        raise TriuneError(f"cannot read '{where}': {shown(_reason(error), None)}") from error
    finally:
        if isinstance(source, str | Path):
            stream.close()
    if not rows:
        raise TriuneError(f"'{where}' has no rows")


def table_kind(path: Path) -> tuple[str, str]:
    """(.csv, .tsv, .jsonl or .parquet; compression or nothing) of a file's name."""
    name = path.name.lower()
    compression = _compression(path)
    kind = Path(name.removesuffix(compression)).suffix
    if kind not in KINDS or (kind == ".parquet" and compression):
        raise TriuneError(
            f"'{shown(path, None)}': the suffix is not known; it must be .parquet, or .csv, .tsv or .jsonl "
            f"(and {', '.join(COMPRESSIONS)} after those)"
        )
    return kind, compression


def check_text(value: Any, column: str, at: str) -> str:
    """The value, if it is text (it may be empty)."""
    if isinstance(value, str):
        return value
    if value is None:
        raise TriuneError(f"{at}: no text in column '{shown(column)}'")
    raise TriuneError(f"{at}: column '{shown(column)}' holds {shown(repr(value))}, which is not text; put it in quotes")


def _compression(path: Path) -> str:
    return next((suffix for suffix in COMPRESSIONS if path.name.lower().endswith(suffix)), "")


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or one_line(error)


def _open(path: Path, where: str, kind: str | None) -> tuple[IO[bytes], str]:
    try:
        if path.is_dir():
            raise TriuneError(f"'{where}' is a folder, not a file")
        if not path.exists():
            raise TriuneError(f"'{where}' does not exist")
        found = kind or table_kind(path)[0]
        stream = open_stream(path, _compression(path))
        # pyarrow's streams cannot read a line; a BufferedReader over one can.
        return io.BufferedReader(stream) if isinstance(stream, pyarrow.NativeFile) else stream, found
    except TriuneError:
        raise
    except (OSError, ValueError, lzma.LZMAError, pyarrow.ArrowException) as error:  # ValueError: a NUL in the name
        raise TriuneError(f"cannot read '{where}': {shown(_reason(error), None)}") from error
