"""Documents out of text, JSON-lines and parquet files (plain, .gz, .xz, .zst), folders, globs and hub data sets.

Everything streams: what is held in memory is one chunk of a file and one document. What cannot be used is counted in
`ReadCounts`, so that nothing is lost in silence; what is certainly a mistake (a missing file, a truncated archive)
stops the reader.
"""

import codecs
import json
import lzma
import math
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow
import pyarrow.parquet

from triune.data.sources import HUB, ReadCounts, Source, draw, kind_of, source_files
from triune.errors import TriuneError, one_line

CHUNK = 1 << 22  # bytes read at a time
LONGEST = 1 << 24  # bytes of a .txt document; what is longer is cut, as a file without blank lines may be any size

_BLANK_LINES = re.compile(rb"\n(?:[ \t\r]*\n)+")


@dataclass
class Broken:
    """A record that holds no document, and why."""

    why: str


Record = bytes | str | Broken


def read_documents(source: Source, counts: ReadCounts | None = None) -> Iterator[str]:
    """The documents of a source, in the order of its files' names; `counts` is filled while they are read."""
    counts = ReadCounts() if counts is None else counts
    if source.where.startswith(HUB):
        yield from _documents(_hub_records(source), source.where, counts)
        return
    for path in source_files(source, counts):
        counts.files += 1
        yield from _documents(_file_records(path, source, counts), str(path), counts)


def taken_documents(source: Source, counts: ReadCounts, seed: int) -> Iterator[tuple[str, bool]]:
    """(document, whether it comes for the first time), as often as the source's weight says.

    Copies come in later passes over the source, not beside each other: in a packed block the second of two neighbours
    would only have to be copied from the first.
    """
    whole, fraction = divmod(source.weight, 1)
    for turn in range(math.ceil(source.weight)):
        for text in read_documents(source, counts if turn == 0 else ReadCounts()):
            if turn < whole or draw(text, "weight", seed) < fraction:
                yield text, turn == 0


def _documents(records: Iterator[Record], where: str, counts: ReadCounts) -> Iterator[str]:
    for number, record in enumerate(records, start=1):
        if isinstance(record, Broken):
            counts.broken += 1
            counts.first_broken = counts.first_broken or f"{where}, record {number}: {record.why}"
            continue
        text, size, malformed = _decode(record)
        counts.malformed += malformed
        text = text.strip()
        if not text:
            counts.empty += 1
            continue
        counts.documents += 1
        counts.bytes += size
        yield text


def _decode(record: bytes | str) -> tuple[str, int, bool]:
    """Text, its bytes, and whether some of them were not UTF-8 and became U+FFFD."""
    if isinstance(record, bytes):
        try:
            return record.decode("utf-8"), len(record), False
        except UnicodeDecodeError:
            return record.decode("utf-8", "replace"), len(record), True
    try:
        return record, len(record.encode("utf-8")), False
    except UnicodeEncodeError:  # lone halves of surrogate pairs: JSON can spell them, and see `_json_records`
        text = record.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text, len(text.encode("utf-8")), True


def _file_records(path: Path, source: Source, counts: ReadCounts) -> Iterator[Record]:
    kind, compression = kind_of(path)
    try:
        if kind == ".parquet":
            yield from _parquet_records(path, compression, source.text_field)
            return
        with closing(open_stream(path, compression)) as stream:
            if kind == ".jsonl":
                yield from _json_records(_pieces(stream, _lines), source.text_field)
            elif source.document == "line":
                yield from _pieces(stream, _lines, counts)
            else:
                # Only the bytes between blank lines are documents: a run of blank lines is no empty one.
                yield from (piece for piece in _pieces(stream, _BLANK_LINES.split, counts) if piece.strip())
    except TriuneError:
        raise
    except (OSError, EOFError, UnicodeError, lzma.LZMAError, pyarrow.ArrowException) as error:
        raise TriuneError(f"cannot read '{path}': {getattr(error, 'strerror', None) or one_line(error)}") from error


def open_stream(path: Path, compression: str) -> IO[bytes]:
    """The bytes of a file, decompressed. pyarrow stops at a truncated .gz or .zst, lzma at a truncated .xz."""
    if compression == ".xz":
        return lzma.open(path)
    if compression:
        return pyarrow.input_stream(str(path), compression={".gz": "gzip", ".zst": "zstd"}[compression])
    return path.open("rb")


def _lines(data: bytes) -> list[bytes]:
    return data.split(b"\n")


def _pieces(
    stream: IO[bytes], split: Callable[[bytes], list[bytes]], counts: ReadCounts | None = None
) -> Iterator[bytes]:
    """What lies between separators; with `counts`, pieces over LONGEST are cut (a JSON record cannot be)."""
    rest = stream.read(CHUNK).removeprefix(codecs.BOM_UTF8)
    if rest.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UnicodeError("it is UTF-16; convert it to UTF-8")
    while True:
        *pieces, rest = split(rest)
        yield from pieces
        while counts is not None and len(rest) > LONGEST:
            cut = _cut_point(rest)
            counts.cut += 1
            yield rest[:cut]
            rest = rest[cut:]
        chunk = stream.read(CHUNK)
        if not chunk:
            break
        rest += chunk
    if rest:
        yield rest


def _cut_point(data: bytes) -> int:
    """Where a document that is too long is cut: after a line, else after a word, else between two characters."""
    for end in (data.rfind(b"\n", LONGEST // 2, LONGEST), data.rfind(b" ", LONGEST // 2, LONGEST)):
        if end > 0:
            return end + 1
    end = LONGEST
    while end > LONGEST - 4 and data[end] & 0xC0 == 0x80:  # a byte that continues a character
        end -= 1
    return end


def _json_records(lines: Iterator[bytes], field: str) -> Iterator[Record]:
    for line in lines:
        if not line.strip():
            yield b""
            continue
        try:
            # Malformed bytes pass through JSON as lone surrogates; `_decode` counts them, if they are in our field.
            record = json.loads(line.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError) as error:
            yield Broken(f"not JSON ({one_line(error)})")
            continue
        yield _text_of(record, field)


def _text_of(record: Any, field: str) -> Record:
    if not isinstance(record, dict):
        return Broken(f"a JSON {type(record).__name__}, not an object")
    if field not in record:
        return Broken(f"no field '{field}' among {', '.join(map(str, list(record)[:8])) or 'none'}")
    value = record[field]
    return value if isinstance(value, str) else Broken(f"field '{field}' is {type(value).__name__}, not text")


def _parquet_records(path: Path, compression: str, field: str) -> Iterator[Record]:
    if not compression:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield from _column(file, path, field)
        return
    # Parquet is read from its end, so a compressed one goes to disk first: memory stays flat.
    with tempfile.TemporaryFile() as plain:
        with closing(open_stream(path, compression)) as stream:
            while chunk := stream.read(CHUNK):
                plain.write(chunk)
        plain.seek(0)
        with pyarrow.parquet.ParquetFile(plain) as file:
            yield from _column(file, path, field)


def _column(file: Any, path: Path, field: str) -> Iterator[Record]:
    schema = file.schema_arrow
    if field not in schema.names:
        raise TriuneError(f"'{path}' has no column '{field}'; it has {', '.join(schema.names)} (set text_field)")
    for batch in file.iter_batches(batch_size=512, columns=[field]):
        column = batch.column(0)
        if isinstance(column.type, pyarrow.DictionaryType):
            column = column.dictionary_decode()
        try:
            # As bytes: parquet does not check that strings are UTF-8, and one bad row must not stop the rest.
            column = column.cast(pyarrow.large_binary())
        except pyarrow.ArrowException as error:
            raise TriuneError(f"column '{field}' of '{path}' is {column.type}, not text (set text_field)") from error
        for value in column.to_pylist():
            yield Broken(f"no value in column '{field}'") if value is None else value


def _hub_records(source: Source) -> Iterator[Record]:
    try:
        import datasets
    except ImportError as error:
        raise TriuneError(f"reading '{source.where}' needs the package datasets: pip install datasets") from error
    name, config, split = source.hub_parts()
    try:
        rows = datasets.load_dataset(name, config, split=split, streaming=True)
        for row in rows:
            yield _text_of(row, source.text_field)
    except Exception as error:  # whatever the hub, its client or the data set's files say
        raise TriuneError(f"cannot read '{source.where}': {one_line(error)}") from error
