"""How .csv, .tsv, .jsonl and .parquet are taken apart into rows, and how rows are named in messages."""

import codecs
import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import pyarrow
import pyarrow.parquet

from triune.errors import TriuneError, did_you_mean, one_line, shown

LONGEST = 1 << 26  # characters of a field, bytes of a line; csv's own limit of 128 kB is less than some documents

Row = tuple[int, dict[str, Any]]

# What the csv module says, and what helps.
_CSV_FAULTS = {
    "unexpected end of data": 'a quote (") that opens here is never closed',
    "expected after": 'text after a closing quote; a quote inside quoted text is written twice ("")',
    "new-line character": "a carriage return inside a row; save the file with ordinary line ends",
    "field limit": 'a field is too long; is a quote (") never closed?',
}


def place(where: str, kind: str, number: int) -> str:
    """'file.csv', line 7."""
    return f"'{where}', {'row' if kind == '.parquet' else 'line'} {number}"


@dataclass(frozen=True)
class Wanted:
    """What is wanted of which table."""

    where: str
    kind: str
    columns: tuple[str, ...]
    optional: tuple[str, ...]

    def fault(self, number: int, what: str) -> TriuneError:
        return TriuneError(f"{place(self.where, self.kind, number)}: {what}")

    def read(self, stream: IO[bytes]) -> Iterator[Row]:
        if self.kind == ".parquet":
            return self._parquet_rows(stream)
        lines = self._lines(stream)
        if self.kind == ".jsonl":
            return self._json_rows(lines)
        return self._table_rows(self._csv_records(lines) if self.kind == ".csv" else self._tsv_records(lines))

    def _lines(self, stream: IO[bytes]) -> Iterator[str]:
        number = 0
        while line := stream.readline(LONGEST + 1):
            number += 1
            if number == 1:
                if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise self.fault(1, "it is UTF-16; save the file as UTF-8")
                line = line.removeprefix(codecs.BOM_UTF8)
            if len(line) > LONGEST:
                raise self.fault(number, f"the line is longer than {LONGEST:,} bytes")
            if b"\0" in line:
                raise self.fault(number, "a NUL byte; this is not a text file, or not UTF-8")
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                what = f"not UTF-8 (byte 0x{byte:02x} at position {error.start + 1:,}); save the file as UTF-8"
                raise self.fault(number, what) from error

    def _csv_records(self, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
        csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
        read = 0

        def counted() -> Iterator[str]:
            nonlocal read
            for line in lines:
                read += 1
                yield line

        records = csv.reader(counted(), strict=True)
        while True:
            start = read + 1  # a record may be longer than a line: quoted text has line ends of its own
            try:
                record = next(records, None)
            except csv.Error as error:
                said = one_line(error)
                what = next((ours for theirs, ours in _CSV_FAULTS.items() if theirs in said), said)
                raise self.fault(start, what) from error
            if record is None:
                return
            if record:
                yield start, record

    def _tsv_records(self, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
        for number, line in enumerate(lines, start=1):
            if line := line.removesuffix("\n").removesuffix("\r"):
                yield number, line.split("\t")

    def _table_rows(self, records: Iterator[tuple[int, list[str]]]) -> Iterator[Row]:
        number, header = next(records, (0, []))
        if not header:
            raise TriuneError(f"'{self.where}' is empty; its first line must name the columns")
        self._check_columns(header, number)
        places = {column: header.index(column) for column in (*self.columns, *self.optional) if column in header}
        absent = dict.fromkeys(column for column in self.optional if column not in header)
        for number, record in records:
            if len(record) != len(header):
                what = f"{_fields(len(record))}, but the header has {_fields(len(header))}"
                hint = "quote text that holds commas" if self.kind == ".csv" else "text cannot hold tabs or line ends"
                raise self.fault(number, f"{what}; {hint}")
            yield number, {**{column: record[index] for column, index in places.items()}, **absent}

    def _check_columns(self, names: Sequence[str], number: int | None) -> None:
        at = f"'{self.where}'" if number is None else place(self.where, self.kind, number)
        seen: set[str] = set()
        for name in names:
            if name and name in seen:  # spreadsheets leave several columns without a name
                raise TriuneError(f"{at}: two columns are called '{shown(name)}'; rename one")
            seen.add(name)
        for column in self.columns:
            if column not in seen:
                one = names[0] if len(names) == 1 and self.kind == ".csv" else ""
                hint = "; is it separated by something other than commas?" if "\t" in one or ";" in one else ""
                raise TriuneError(f"{at}: no column '{shown(column)}'{did_you_mean(column, names)}{hint}")

    def _json_rows(self, lines: Iterator[str]) -> Iterator[Row]:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line, object_pairs_hook=_once)
            except (ValueError, RecursionError) as error:
                what = f"not JSON ({shown(one_line(error), 120)}); every line must be one whole object"
                raise self.fault(number, what) from error
            if not isinstance(record, dict):
                raise self.fault(number, f'a JSON {type(record).__name__}, not an object such as {{"text": ...}}')
            cells = {}
            for column in (*self.columns, *self.optional):
                if column not in record and column not in self.optional:
                    raise self.fault(number, f"no field '{shown(column)}'{did_you_mean(column, record)}")
                cell = cells[column] = record.get(column)
                if isinstance(cell, str) and not _encodable(cell):
                    raise self.fault(number, f"'{shown(column)}' holds half of a surrogate pair, which is no character")
            yield number, cells

    def _parquet_rows(self, stream: IO[bytes]) -> Iterator[Row]:
        try:
            seekable = stream if stream.seekable() else pyarrow.BufferReader(stream.read())
            with pyarrow.parquet.ParquetFile(seekable) as file:
                names = file.schema_arrow.names
                self._check_columns(names, None)
                there = [column for column in (*self.columns, *self.optional) if column in names]
                absent = dict.fromkeys(column for column in self.optional if column not in names)
                done = 0
                for batch in file.iter_batches(batch_size=1024, columns=there):
                    columns = [self._cells(batch.column(column), column, done) for column in there]
                    for index in range(batch.num_rows):
                        cells = {column: values[index] for column, values in zip(there, columns, strict=True)}
                        yield done + index + 1, {**cells, **absent}
                    done += batch.num_rows
        except TriuneError:
            raise
        except Exception as error:  # a broken file can make pyarrow say nearly anything
            what = shown(one_line(error), 200)
            raise TriuneError(f"cannot read '{self.where}' as parquet: {what}; is it cut short?") from error

    def _cells(self, column: Any, name: str, done: int) -> list[Any]:
        types = pyarrow.types
        if isinstance(column.type, pyarrow.DictionaryType):
            column = column.dictionary_decode()
        kind = column.type
        if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
            values: list[Any] = column.to_pylist()
            return values
        cells: list[Any] = column.cast(pyarrow.large_binary()).to_pylist()  # parquet does not check that it is UTF-8
        for index, cell in enumerate(cells):
            try:
                cells[index] = None if cell is None else cell.decode("utf-8")
            except UnicodeDecodeError as error:
                raise self.fault(done + index + 1, f"column '{shown(name)}' is not UTF-8") from error
        return cells


def _fields(count: int) -> str:
    return f"{count:,} field" if count == 1 else f"{count:,} fields"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field comes twice")
    return found


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
