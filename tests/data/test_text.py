"""Reading documents: every format and compression, what is malformed, folders, globs, weights, hub data sets."""

import gzip
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from triune.data import text as reading
from triune.data.sources import ReadCounts, Source, as_sources
from triune.data.text import read_documents, taken_documents
from triune.errors import TriuneError

DOCUMENTS = ["One line.\nAnd another.", "Ünïcödé – “quoted”.", "last"]


def compress(data, suffix):
    if suffix == ".gz":
        return gzip.compress(data)
    if suffix == ".xz":
        return lzma.compress(data)
    if suffix == ".zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()
    return data


def as_bytes(kind, documents):
    if kind == ".txt":
        return "\n\n".join(documents).encode() + b"\n"
    if kind == ".jsonl":
        return "".join(json.dumps({"id": 1, "text": one}) + "\n" for one in documents).encode()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1] * len(documents), "text": documents}), sink)
    return sink.getvalue().to_pybytes()


def read(where, **settings):
    counts = ReadCounts()
    return list(read_documents(Source(where, **settings), counts)), counts


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".parquet"])
def test_every_format_and_compression(tmp_path, kind, compression):
    path = write(tmp_path / f"a{kind}{compression}", compress(as_bytes(kind, DOCUMENTS), compression))
    documents, counts = read(path)
    assert documents == DOCUMENTS
    assert (counts.files, counts.documents, counts.bytes) == (
        1,
        3,
        sum(len(one.encode()) for one in DOCUMENTS) + (kind == ".txt"),
    )
    assert (counts.empty, counts.malformed, counts.broken, counts.cut) == (0, 0, 0, 0)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
def test_chunks_of_any_size_give_the_same_documents(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(reading, "CHUNK", chunk)
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbf" * (chunk > 2) + "\n\n é a\r\nb \r\n\r\n \t\n\n\nc\n\n".encode())
    documents, counts = read(path)
    assert documents == ["é a\r\nb", "c"]
    assert counts.empty == 0
    assert read(path, document="line")[0] == ["é a", "b", "c"]


def test_lines_as_documents(tmp_path):
    documents, counts = read(write(tmp_path / "a.txt", b"a b\n\nc\n  \nd"), document="line")
    assert (documents, counts.empty) == (["a b", "c", "d"], 2)


def test_malformed_text_is_counted_and_kept(tmp_path):
    path = write(tmp_path / "a.txt", b"fine\n\nbroken \xff\xfe end\n\n\xe3\x80\x80\n\nlast \xc3")
    documents, counts = read(path)
    assert documents == ["fine", "broken \ufffd\ufffd end", "last \ufffd"]
    assert (counts.documents, counts.malformed, counts.empty) == (3, 2, 1)
    assert "2 documents with malformed UTF-8" in counts.report()


def test_broken_json_lines_are_counted(tmp_path):
    lines = [b'{"text": "good"}', b'{"text": ', b"[1]", b'{"other": "x"}', b'{"text": 3}', b'{"text": null}', b""]
    lines += [
        b'{"text": "  "}',
        b'{"text": "half \\ud800"}',
        b'{"text": "raw \xff"}',
        b'{"x": "\xff", "text": "clean"}',
    ]
    documents, counts = read(write(tmp_path / "a.jsonl", b"\n".join([*lines, b"[" * 100_000])))
    assert documents == ["good", "half \ufffd", "raw \ufffd", "clean"]
    assert (counts.broken, counts.empty, counts.malformed) == (6, 2, 2)
    assert "a.jsonl, record 2: not JSON" in counts.first_broken
    assert "6 broken records" in counts.report()
    assert "\n" not in counts.report()


def test_parquet_rows_that_hold_no_text_are_counted(tmp_path):
    bad = pa.array([b"fine", b"bad \xff", None, b""], pa.binary())
    malformed = pa.StringArray.from_buffers(4, *bad.buffers()[1:3], bad.buffers()[0])  # parquet does not check UTF-8
    pq.write_table(pa.table({"text": malformed, "n": [1, 2, 3, 4]}), tmp_path / "a.parquet")
    documents, counts = read(tmp_path / "a.parquet")
    assert documents == ["fine", "bad \ufffd"]
    assert (counts.malformed, counts.broken, counts.empty) == (1, 1, 1)
    with pytest.raises(TriuneError, match="no column 'body'; it has text, n"):
        read(tmp_path / "a.parquet", text_field="body")
    with pytest.raises(TriuneError, match="is int64, not text"):
        read(tmp_path / "a.parquet", text_field="n")


def test_a_document_without_end_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST", 100)
    monkeypatch.setattr(reading, "CHUNK", 64)
    path = write(tmp_path / "a.txt", ("word " * 100).encode() + b"\n\n" + ("é" * 120).encode())
    documents, counts = read(path)
    assert " ".join(documents[:-3]).split() == ["word"] * 100
    assert "".join(documents[-3:]) == "é" * 120
    assert counts.cut == len(documents) - 2
    assert counts.malformed == 0


def test_folders_and_globs(tmp_path):
    for name in ("b.txt", "a/z.txt", "a/y.jsonl", ".hidden/x.txt"):
        write(tmp_path / name, as_bytes("." + name.split(".")[-1], [name]))
    write(tmp_path / "README.md", b"no document")
    documents, counts = read(tmp_path)
    assert (documents, counts.skipped_files) == (["a/y.jsonl", "a/z.txt", "b.txt"], 1)
    assert read(f"{tmp_path}/**/*.txt")[0] == ["a/z.txt", "b.txt"]
    assert read(f"{tmp_path}/*")[0] == documents


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.md", b"x", "suffix is not known"),
        ("a.txt.gz", gzip.compress(b"text " * 1000, mtime=0)[:-9], "Truncated"),
        ("a.txt.xz", lzma.compress(b"text " * 1000)[:-9], "ended before"),
        ("a.txt.zst", compress(b"text " * 1000, ".zst")[:-3], "Truncated"),
        ("a.jsonl.gz", b"not gzip at all", "cannot read"),
        ("a.parquet", b"PAR1 not parquet", "cannot read"),
        ("a.txt", "text".encode("utf-16"), "UTF-16"),
    ],
)
def test_unusable_files_are_one_line(tmp_path, name, content, said):
    path = write(tmp_path / name, content)
    with pytest.raises(TriuneError, match=said) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_sources_are_one_line(tmp_path):
    for where, said in [("nowhere.txt", "does not exist"), ("*.txt", "has no files"), (".", "has no files")]:
        with pytest.raises(TriuneError, match=said):
            read(tmp_path / where)
    for settings in ({"weight": 0}, {"weight": float("nan")}, {"document": "page"}):
        with pytest.raises(TriuneError):
            Source("a.txt", **settings)
    with pytest.raises(TriuneError, match="hub:NAME"):
        read("hub:a:b:c:d")


def test_weights_repeat_whole_passes_and_draw_the_rest(tmp_path):
    documents = [f"document {i}" for i in range(400)]
    path = write(tmp_path / "a.txt", as_bytes(".txt", documents))

    def taken(weight, seed=1):
        counts = ReadCounts()
        pairs = list(taken_documents(Source(path, weight), counts, seed))
        assert counts.documents == 400
        return pairs

    assert taken(1) == [(one, True) for one in documents]
    assert taken(2) == [(one, True) for one in documents] + [(one, False) for one in documents]
    quarter = [one for one, _ in taken(0.25)]
    assert 60 < len(quarter) < 140
    assert quarter == [one for one, _ in taken(0.25)] != [one for one, _ in taken(0.25, seed=2)]
    assert [one for one, _ in taken(1.25)] == documents + quarter
    path.write_bytes(as_bytes(".txt", documents[::-1]))
    assert [one for one, _ in taken(0.25)] == quarter[::-1]  # the text decides, not its place


def test_sources_may_be_given_as_paths(tmp_path):
    assert as_sources(tmp_path) == as_sources(str(tmp_path)) == as_sources([Source(str(tmp_path))])


def test_hub_data_sets_are_streamed(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "set" / "train.parquet", as_bytes(".parquet", [*DOCUMENTS, " "]))
    documents, counts = read(f"hub:{tmp_path / 'set'}")
    assert documents == DOCUMENTS
    assert counts.empty == 1
    documents, counts = read(f"hub:{tmp_path / 'set'}", text_field="id")
    assert (documents, counts.broken) == ([], 4)
    with pytest.raises(TriuneError, match="cannot read 'hub:"):
        read(f"hub:{tmp_path / 'set'}::nosuchsplit")
