"""Tables: what was written is read back equal, and whatever else a file holds ends in one line that names it."""

import csv
import gzip
import io
import json
import lzma
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triune.data import table_formats
from triune.data.tables import iter_rows, read_rows
from triune.errors import TriuneError

KINDS = ["csv", "tsv", "jsonl", "parquet"]
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
# pyarrow is native code: the same broken files every time, so that a failure can be repeated.
steady = settings(quick, derandomize=True)

# NUL is refused in .csv, and a lone carriage return outside of quotes is one of csv's own line ends.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
tables = st.lists(st.tuples(texts, texts), min_size=1, max_size=5)


def to_csv(rows, end="\r\n"):
    out = io.StringIO()
    # Before Python 3.13, a writer whose lines end in \n leaves \r without quotes, so that no reader can tell.
    csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL if end == "\n" else csv.QUOTE_MINIMAL).writerows(
        [("text", "label"), *rows]
    )
    return out.getvalue().encode()


def to_tsv(rows):
    return "".join("\t".join(row) + "\n" for row in [("text", "label"), *rows]).encode()


def to_jsonl(rows):
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows).encode()


def to_parquet(rows, **options):
    sink = pa.BufferOutputStream()
    text, label = ([*column] for column in zip(*rows, strict=True))
    pq.write_table(pa.table({"text": text, "label": label}), sink, **options)
    return sink.getvalue().to_pybytes()


WRITERS = {"csv": to_csv, "tsv": to_tsv, "jsonl": to_jsonl, "parquet": to_parquet}


def read(path, data, columns=("text", "label"), **options):
    path.write_bytes(data)
    rows = read_rows(path, columns, **options)
    return list(zip(*(rows.columns[column] for column in columns), strict=True))


def refused(path, data, *words, columns=("text", "label"), **options):
    with pytest.raises(TriuneError) as caught:
        read(path, data, columns, **options)
    return one_line_about(caught.value, path, *words)


def one_line_about(error, path, *words):
    message = str(error)
    assert len(message.splitlines()) == 1
    assert message.isprintable()
    assert str(path) in message
    for word in words:
        assert word in message, message
    return message


def reads_or_refuses(path, data, columns=("text", "label")):
    try:
        return read(path, data, columns, text=("text",))
    except TriuneError as error:
        one_line_about(error, path)
        return None


@quick
@given(tables)
def test_csv_comes_back_equal(tmp_path, rows):
    assert read(tmp_path / "a.csv", to_csv(rows)) == rows
    assert read(tmp_path / "a.csv", b"\xef\xbb\xbf" + to_csv(rows, "\n")) == rows


@quick
@given(st.lists(st.tuples(texts, texts.filter(bool)), min_size=1, max_size=5))
def test_tsv_comes_back_equal_and_quotes_are_plain(tmp_path, rows):
    rows = [tuple(re.sub(r"[\t\r\n]", '"', cell) for cell in row) for row in rows]
    assert read(tmp_path / "a.tsv", to_tsv(rows)) == rows
    assert read(tmp_path / "a.tsv", to_tsv(rows).replace(b"\n", b"\r\n")) == rows


@quick
@given(st.lists(st.tuples(texts, st.none() | st.booleans() | st.integers() | texts), min_size=1, max_size=5))
def test_jsonl_comes_back_equal(tmp_path, rows):
    assert read(tmp_path / "a.jsonl", to_jsonl(rows)) == rows


@quick
@given(st.lists(st.tuples(texts, st.none() | st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=5))
def test_parquet_comes_back_equal(tmp_path, rows):
    assert read(tmp_path / "a.parquet", to_parquet(rows)) == rows


@pytest.mark.parametrize("packed", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_compressed(tmp_path, kind, packed):
    rows = [("Ünï “q”", "1"), ("x" * 100_000, "2")]
    data = WRITERS[kind](rows)
    packers = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": pa.Codec("zstd").compress}
    squeezed = bytes(packers[packed](data))
    path = tmp_path / f"a.{kind}{packed}"
    assert read(path, squeezed) == rows
    if packed:
        refused(path, squeezed[: len(squeezed) // 2])
        refused(path, b"not compressed at all, but long enough to be looked at")


def test_long_text_and_dictionaries(tmp_path):
    rows = [("word " * 40_000, "a"), ("b", "b")]
    for kind, write in WRITERS.items():
        assert read(tmp_path / f"a.{kind}", write(rows)) == rows
    assert read(tmp_path / "a.parquet", to_parquet(rows, use_dictionary=True)) == rows
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": pa.array(["a", "b", None]).dictionary_encode()}), sink)
    assert read(tmp_path / "a.parquet", sink.getvalue().to_pybytes(), ["text"]) == [("a",), ("b",), (None,)]


@quick
@given(st.binary(max_size=200), st.sampled_from(KINDS))
def test_random_bytes(tmp_path, data, kind):
    reads_or_refuses(tmp_path / f"a.{kind}", data)
    reads_or_refuses(tmp_path / f"a.{kind}", b"text,label\n" + data)


@quick
@given(tables, st.sampled_from(KINDS[:3]), st.data())
def test_mutated_text_tables(tmp_path, rows, kind, data):
    broken = bytearray(WRITERS[kind](rows))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(broken) - 1))
        broken[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from(b'",\t\r\n\0{}[]\xff\xc3:x\\')
        ).to_bytes()
    reads_or_refuses(tmp_path / f"a.{kind}", bytes(broken))


@steady
@given(st.data())
def test_mutated_parquet(tmp_path, data):
    whole = to_parquet([("a", 1), ("bb", 2), ("ü", 3)], compression="none")
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = bytearray(whole)
    broken[at] = data.draw(st.integers(0, 255))
    reads_or_refuses(tmp_path / "a.parquet", bytes(broken))


@steady
@given(st.floats(0, 0.999))
def test_truncated_parquet(tmp_path, share):
    whole = to_parquet([("a", 1), ("bb", 2)])
    refused(tmp_path / "a.parquet", whole[: int(len(whole) * share)])


HEAD = b"text,label\n"
FAULTS = {
    "empty": ("a.csv", b"", "is empty", "name the columns"),
    "blank": ("a.tsv", b"\n\n\r\n", "is empty"),
    "no rows": ("a.csv", HEAD, "no rows"),
    "no lines": ("a.jsonl", b"\n", "no rows"),
    "no parquet rows": ("a.parquet", to_parquet([("a", 1)])[:0], "parquet"),
    "no header": ("a.csv", b"some text,1\nmore,0\n", "line 1", "no column 'text'", "there are some text, 1"),
    "near column": ("a.csv", b"texts,label\na,1\n", "line 1", "did you mean 'texts'?", "there are texts, label"),
    "semicolons": ("a.csv", b"text;label\na;1\n", "other than commas"),
    "twice": ("a.csv", b"text,label,text\na,1,b\n", "line 1", "two columns are called 'text'"),
    "too many": ("a.csv", HEAD + b"a,1\nb,c,2\n", "line 3", "3 fields", "header has 2 fields", "quote"),
    "too few": ("a.tsv", b"text\tlabel\na\t1\nb\n", "line 3", "1 field,"),
    "after quotes": ("a.csv", HEAD + b'"a\nb",1\n"c" d,2\n', "line 4", "closing quote"),
    "open quote": ("a.csv", HEAD + b'a,1\n"b,2\nc,3\n', "line 3", "never closed"),
    "old line ends": ("a.csv", HEAD + b"a,1\rb,2\rc,3", "line 2", "carriage return"),
    "NUL": ("a.tsv", b"text\tlabel\na\0\t1\n", "line 2", "NUL"),
    "Latin-1": ("a.csv", HEAD + "a,1\nü,2\n".encode("latin-1"), "line 3", "0xfc at position 1", "UTF-8"),
    "UTF-16": ("a.csv", "text,label\na,1\n".encode("utf-16"), "line 1", "UTF-16"),
    "not JSON": ("a.jsonl", b'{"text": "a", "label": 1}\n\n{"text": \n', "line 3", "not JSON"),
    "deep JSON": ("a.jsonl", b'{"text": ' + b"[" * 100_000 + b"\n", "line 1", "not JSON"),
    "no object": ("a.jsonl", b'["a"]\n', "line 1", "JSON list"),
    "no field": ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": "a", "labl": 1}\n', "line 2", "did you mean 'labl'?"),
    "field twice": ("a.jsonl", b'{"text": "a", "text": "b", "label": 1}\n', "line 1", "twice"),
    "surrogate": ("a.jsonl", b'{"text": "\\ud800", "label": 1}\n', "line 1", "surrogate"),
    "number": (
        "a.jsonl",
        b'{"text": "a", "label": 1}\n{"text": 3, "label": 1}\n',
        "line 2",
        "holds 3, which is not text",
    ),
    "null": ("a.jsonl", b'{"text": null, "label": 1}\n', "line 1", "no text"),
    "null cell": ("a.parquet", to_parquet([("a", 1), (None, 2)]), "row 2", "no text"),
    "parquet column": ("a.parquet", to_parquet([("a", 1)]).replace(b"text", b"tekt"), "'tekt'"),
    "not parquet": ("a.parquet", b"PAR1 or so it says, but no: PAR1", "parquet"),
    "suffix": ("a.xlsx", b"PK", "suffix", ".csv"),
    "packed parquet": ("a.parquet.gz", b"", "suffix"),
    "newline in name": ("a.csv", b'"te\nxt",label\na,1\n', "te\\nxt"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named_with_their_row(tmp_path, name):
    file, data, *words = FAULTS[name]
    refused(tmp_path / file, data, *words, text=("text",))


def test_parquet_that_is_not_utf8_or_has_equal_names(tmp_path):
    sink = pa.BufferOutputStream()
    bad = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff"))
    pq.write_table(pa.table({"text": bad}), sink)
    refused(tmp_path / "a.parquet", sink.getvalue().to_pybytes(), "row 2", "UTF-8", columns=["text"])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), sink)
    refused(tmp_path / "a.parquet", sink.getvalue().to_pybytes(), "two columns", columns=["a"])


def test_missing_files_folders_and_odd_names(tmp_path):
    for path, word in [
        (tmp_path / "no.csv", "does not exist"),
        (tmp_path, "folder"),
        (tmp_path / "a\0.csv", "a\\x00.csv"),
    ]:
        with pytest.raises(TriuneError, match=re.escape(word)):
            read_rows(path, ["text"])
    with pytest.raises(TriuneError) as caught:
        read_rows(tmp_path / "a\nb.csv", ["text"])
    assert len(str(caught.value).splitlines()) == 1


def test_fields_and_lines_that_are_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(table_formats, "LONGEST", 1000)
    limit = csv.field_size_limit(500)
    try:
        refused(tmp_path / "a.csv", HEAD + b'a,1\n"' + b"x\n" * 1000, "line 3", "too long")
        refused(tmp_path / "a.tsv", b"text\tlabel\n" + b"x" * 2000, "line 2", "longer than 1,000 bytes")
    finally:
        csv.field_size_limit(limit)


def test_optional_columns_and_line_numbers(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\r\ntext,label\r\n"a\r\nb",1\r\n\r\nc,2\r\n')
    rows = read_rows(path, ["text"], optional=["idx"])
    assert (rows.columns, rows.numbers) == ({"text": ["a\r\nb", "c"], "idx": [None, None]}, [3, 6])
    assert rows.place(1) == f"'{path}', line 6"
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a", "idx": 4}\n{"text": "b"}\n')
    assert read_rows(path, ["text"], optional=["idx"]).columns["idx"] == [4, None]


@pytest.mark.parametrize("kind", KINDS)
def test_streams(kind):
    data = WRITERS[kind]([("a", "1"), ("b", "2")])
    first = 1 if kind in ("jsonl", "parquet") else 2
    assert list(iter_rows(io.BytesIO(data), kind, ["text"])) == [(first, {"text": "a"}), (first + 1, {"text": "b"})]
    with pytest.raises(TriuneError, match="'standard input'"):
        list(iter_rows(io.BytesIO(b""), f".{kind}", ["text"]))


def test_a_stream_is_read_line_by_line():
    class Slow(io.BytesIO):
        def read(self, *_):
            raise AssertionError("reads ahead, so that who types waits")

    assert next(iter_rows(Slow(to_csv([("a", "1"), ("b", "2")])), "csv", ["text"])) == (2, {"text": "a"})
    assert next(iter_rows(io.TextIOWrapper(io.BytesIO(b'{"text": "a"}')), "jsonl", ["text"])) == (1, {"text": "a"})


def test_streams_need_a_known_kind():
    with pytest.raises(TriuneError, match="say what standard input holds"):
        next(iter_rows(io.BytesIO(), None, ["text"]))
    with pytest.raises(TriuneError, match="did you mean 'jsonl'"):
        next(iter_rows(io.BytesIO(), "json", ["text"]))
