"""Packing: nothing lost, nothing twice, boundaries right, reuse and changes noticed, failures leave what was there."""

import errno
import json
import os
import pickle
import random
import signal
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, BertTokenizer

from triune.data import encode as encoding
from triune.data import packing
from triune.data.blocks import Blocks
from triune.data.encode import Encoder
from triune.data.folders import replaced_folder
from triune.data.manifest import Manifest, damage
from triune.data.prepare import prepare
from triune.data.sources import Source
from triune.errors import TriuneError

PAD, UNK, CLS, SEP, MASK = range(5)
SYLLABLES = ["ka", "lo", "mi", "te", "su", "ren", "ta", "vo"]


def save_tokenizer(folder, syllables=SYLLABLES, lowercase=True):
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?[]#-–“”’"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters[:36])]
    pieces += [*syllables, *("##" + one for one in syllables)]
    BertTokenizer(vocab={one: i for i, one in enumerate(pieces)}, do_lower_case=lowercase).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def make_documents(count, seed=0, longest=60):
    draw = random.Random(seed)
    word = lambda: "".join(draw.choices(SYLLABLES, k=draw.randint(1, 3)))  # noqa: E731
    return [f"{i} " + " ".join(word() for _ in range(draw.randint(1, longest))) + "." for i in range(count)]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(make_documents(200)))
    return path


def expected_ids(tokenizer_folder, documents):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    return [tokenizer(one, add_special_tokens=False)["input_ids"] for one in documents]


def unpacked(blocks):
    """The documents of blocks that span documents, put together again, with every rule of a block checked."""
    documents = []
    for block in (blocks[i] for i in range(len(blocks))):
        ids, segments = block["input_ids"].tolist(), block["segments"].tolist()
        used = sum(segment > 0 for segment in segments)
        assert (ids[0], ids[used - 1], segments[0]) == (CLS, SEP, 1)
        assert set(ids[used:]) <= {PAD}
        assert set(segments[used:]) <= {0}
        assert used >= 3
        numbers = segments[:used]
        assert all(after - before in (0, 1) for before, after in pairwise(numbers))
        for number in range(1, numbers[-1] + 1):
            piece = [one for one, segment in zip(ids[:used], numbers, strict=True) if segment == number]
            piece = piece[1:] if number == 1 else piece
            assert piece.pop() == SEP
            assert piece
            assert not {CLS, SEP, PAD, MASK} & set(piece)
            # A block that is full may go on with its last document; a test says where documents really end.
            documents.append((piece, number == 1, number == numbers[-1] and used == len(ids)))
    return documents


def joined(pieces, lengths):
    """Pieces to documents, by the lengths that documents should have."""
    stream = iter(pieces)
    for length in lengths:
        document = []
        while len(document) < length:
            piece, first, last = next(stream)
            assert first or not document  # what continues a document opens a block
            document += piece
            assert len(document) == length or last
        yield document
    assert next(stream, None) is None


@pytest.mark.parametrize("block_length", [8, 9, 16, 33, 128, 1024])
def test_every_token_once_and_in_order(tmp_path, corpus, tokenizer_folder, block_length):
    manifest = prepare(corpus, tokenizer_folder, tmp_path / "out", block_length, valid_fraction=0, workers=1)
    expected = expected_ids(tokenizer_folder, make_documents(200))
    blocks = Blocks(tmp_path / "out", "train")
    assert list(joined(unpacked(blocks), map(len, expected))) == expected
    train = manifest.splits["train"]
    assert (train["documents"], train["tokens"], train["blocks"]) == (200, sum(map(len, expected)), len(blocks))
    assert (train["dropped_tokens"], len(Blocks(tmp_path / "out", "valid"))) == (0, 0)
    flat = np.concatenate([np.array(one) for one in expected])
    share = np.bincount(flat) / len(flat)
    assert manifest.unigram_entropy == pytest.approx(-sum(p * np.log(p) for p in share if p), abs=1e-9)
    if block_length < 100:
        assert train["padding_share"] < 0.05


def test_a_block_of_one_document(tmp_path, corpus, tokenizer_folder):
    manifest = prepare(
        corpus, tokenizer_folder, tmp_path / "out", 32, span_documents=False, minimum_tail=5, valid_fraction=0
    )
    expected, dropped = [], 0
    for ids in expected_ids(tokenizer_folder, make_documents(200)):
        parts = [ids[start : start + 30] for start in range(0, len(ids), 30)]
        if len(parts) > 1 and len(parts[-1]) < 5:
            dropped += len(parts.pop())
        expected += parts
    blocks = Blocks(tmp_path / "out")
    assert [piece for piece, _, _ in unpacked(blocks)] == expected
    assert manifest.splits["train"]["dropped_tokens"] == dropped > 0
    assert int(blocks.batch(range(len(blocks)))["segments"].max()) == 1


def test_segments_do_not_overflow(tmp_path, tokenizer_folder):
    (tmp_path / "short.txt").write_text("ka\n" * 1000)
    prepare(Source(tmp_path / "short.txt", document="line"), tokenizer_folder, tmp_path / "out", 1024, valid_fraction=0)
    blocks = Blocks(tmp_path / "out")
    pieces = [piece for piece, _, _ in unpacked(blocks)]
    assert len(pieces) == 1000
    assert int(blocks.batch([0])["segments"].max()) == packing.MOST_SEGMENTS


def test_the_validation_split_is_disjoint_and_stable(tmp_path, tokenizer_folder):
    documents = make_documents(300)
    splits = []
    for number, order in enumerate([documents, documents[::-1] + documents]):
        path = tmp_path / f"{number}.txt"
        path.write_text("\n\n".join(order))
        manifest = prepare(
            path, tokenizer_folder, tmp_path / f"out{number}", 512, span_documents=False, valid_fraction=0.2
        )
        parts = [
            [tuple(piece) for piece, _, _ in unpacked(Blocks(tmp_path / f"out{number}", s))] for s in ("train", "valid")
        ]
        assert manifest.splits["valid"]["documents"] == len(parts[1])
        splits.append([set(part) for part in parts])
    (train, valid), again = splits
    assert not train & valid
    assert len(train | valid) == 300
    assert 30 < len(valid) < 90
    assert [train, valid] == again


def test_validation_text_of_its_own_and_weights(tmp_path, corpus, tokenizer_folder):
    (tmp_path / "valid.jsonl").write_text('{"text": "ka lo"}\n{"text": "mi"}\nbroken\n')
    manifest = prepare(
        [Source(corpus, weight=2)],
        tokenizer_folder,
        tmp_path / "out",
        64,
        valid_sources=Source(tmp_path / "valid.jsonl", 2),
    )
    assert manifest.splits["train"]["documents"] == 400
    assert manifest.splits["valid"]["documents"] == 2
    assert [source["split"] for source in manifest.sources] == ["train", "valid"]
    assert manifest.sources[1]["counts"]["broken"] == 1
    assert any("1 broken records" in line for line in manifest.report())


def test_a_script_that_cannot_start_processes_is_told_so(tmp_path):
    """With a tokenizer that is more than a pipe holds; the script starts its work when it is imported."""
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    words = [f"word{number}" for number in range(8000)]
    (tokenizer / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    (tmp_path / "text.txt").write_text("word1 word2 word3\n\n" * 100)
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from triune.data.prepare import prepare\n"
        f"here = Path({str(tmp_path)!r})\n"
        "prepare([str(here / 'text.txt')], here / 'tokenizer', here / 'blocks', 16, workers=2)\n"
    )
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert found.returncode == 1
    assert "a tokenising process died" in found.stderr.splitlines()[-1]
    assert not (tmp_path / "blocks").exists()


def test_workers_do_not_change_the_bytes(tmp_path, tokenizer_folder, monkeypatch):
    monkeypatch.setattr("triune.data.prepare.BATCH", 3000)
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join([*make_documents(300), "é ü", "\u200b"]))
    made = [prepare(path, tokenizer_folder, tmp_path / f"out{n}", 64, valid_fraction=0.1, workers=n) for n in (1, 2)]
    assert made[0].files == made[1].files
    assert made[0].splits == made[1].splits
    assert (
        made[0].splits["train"]["documents_without_tokens"] + made[0].splits["valid"]["documents_without_tokens"] == 1
    )


def test_a_current_folder_is_reused_and_changes_are_said(tmp_path, corpus, tokenizer_folder):
    out, said = tmp_path / "out", []

    def again(tokenizer=tokenizer_folder, block_length=64, **settings):
        said.clear()
        manifest = prepare(corpus, tokenizer, out, block_length, say=said.append, **settings)
        assert damage(out, manifest.files) == []
        assert said == [f"prepared again: {change}" for change in manifest.changes]
        return manifest

    first = again()
    assert (first.reused, first.changes) == (False, [])
    assert again().reused
    corpus.touch()
    assert again().reused  # another time, the same text
    assert Manifest.load(out).files == first.files

    assert again(block_length=32).changes == ["block_length was 64 and is 32"]
    corpus.write_text(corpus.read_text().replace("ka", "lo", 1))
    assert again(block_length=32).changes == [f"'{corpus}' changed"]
    other = save_tokenizer(tmp_path / "other", SYLLABLES[:-1])
    assert again(other, 32).changes == ["the tokenizer's vocabulary changed"]
    cased = save_tokenizer(tmp_path / "cased", SYLLABLES[:-1], lowercase=False)
    assert "rules" in again(cased, 32).changes[0]

    tokens = bytearray((out / "train.tokens.bin").read_bytes())
    tokens[100] ^= 1
    (out / "train.tokens.bin").write_bytes(tokens)
    assert "checksum is wrong" in again(cased, 32).changes[0]
    (out / "valid.segments.bin").unlink()
    assert "is missing" in again(cased, 32).changes[0]
    (out / "manifest.json").write_text('{"format": 1')
    assert "is damaged" in again(cased, 32).changes[0]
    assert again(cased, 32).reused


def test_new_and_missing_files_of_a_folder(tmp_path, tokenizer_folder):
    texts, out = tmp_path / "texts", tmp_path / "out"
    texts.mkdir()
    for name in ("a", "b"):
        (texts / f"{name}.txt").write_text("\n\n".join(make_documents(20)))
    prepare(texts, tokenizer_folder, out, 64)
    (texts / "b.txt").rename(texts / "c.txt")
    manifest = prepare(texts, tokenizer_folder, out, 64)
    assert manifest.changes == [f"'{texts / 'c.txt'}' is new", f"'{texts / 'b.txt'}' is gone"]


@pytest.mark.parametrize("after", [0, 3])
def test_a_full_disk_leaves_what_was_there(tmp_path, corpus, tokenizer_folder, monkeypatch, after):
    out = tmp_path / "made" / "out"
    before = prepare(corpus, tokenizer_folder, out, 64)
    write, calls = packing.CheckedFile.write, []

    def full(self, data):
        calls.append(1)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, data)

    monkeypatch.setattr(packing.CheckedFile, "write", full)
    with pytest.raises(TriuneError, match=r"cannot write .*No space left on device; nothing was changed"):
        prepare(corpus, tokenizer_folder, out, 32)
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert damage(out, before.files) == []
    assert Manifest.load(out).files == before.files
    with pytest.raises(TriuneError, match="No space left"):
        prepare(corpus, tokenizer_folder, tmp_path / "made" / "new", 32, workers=2)
    assert [path.name for path in out.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_leaves_nothing_behind(workers, tmp_path, corpus, tokenizer_folder, command, monkeypatch):
    """As `timeout` and schedulers send it."""
    monkeypatch.setattr(packing.CheckedFile, "write", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    given = ["prepare", corpus, "--tokenizer", tokenizer_folder, "--block-length", "32", "--workers", workers]
    assert command(*given, "--out", tmp_path / "made" / "out").returncode == 128 + signal.SIGTERM
    assert not (tmp_path / "made").exists() or not list((tmp_path / "made").iterdir())
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_cannot_be_read_is_not_what_cannot_be_written(tmp_path):
    """Of what goes wrong while a folder is filled, only what is about that folder is said of it."""
    source, out = tmp_path / "elsewhere.txt", tmp_path / "out"
    with pytest.raises(TriuneError, match=f"^'{source}': No such file or directory; '{out}' was"), replaced_folder(out):
        source.read_text()
    with pytest.raises(TriuneError, match=f"cannot write '{out}': No such file"), replaced_folder(out) as beside:
        (beside / "missing" / "file").write_text("x")
    assert not list(tmp_path.iterdir())


def test_mistakes_are_one_line(tmp_path, corpus, tokenizer_folder):
    def failing(said, sources=corpus, out="new", length=64, **settings):
        with pytest.raises(TriuneError, match=said) as caught:
            prepare(sources, tokenizer_folder, tmp_path / out, length, **settings)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "new").exists()

    failing("block_length=4", length=4)
    failing("valid_fraction", valid_fraction=1.5)
    failing("workers", workers=0)
    failing("at least one source", sources=[])
    failing("does not exist", sources="nowhere.txt")
    (tmp_path / "bad.jsonl").write_text('{"body": "x"}\n')
    failing("no text to train on .*1 broken records .*no field 'text' among body", sources=tmp_path / "bad.jsonl")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.doc").write_text("x")
    failing("holds something else", out="mine")
    assert (tmp_path / "mine" / "thesis.doc").exists()


def test_blocks_for_torch(tmp_path, corpus, tokenizer_folder):
    prepare(corpus, tokenizer_folder, tmp_path / "out", 32)
    blocks = Blocks(tmp_path / "out", "train")
    assert (blocks.block_length, blocks.pad_id, blocks.unk_id, blocks.cls_id) == (32, PAD, UNK, CLS)
    assert (blocks.sep_id, blocks.mask_id, blocks.manifest.id_type) == (SEP, MASK, "<u2")
    tokenizer = AutoTokenizer.from_pretrained(blocks.tokenizer_folder)
    assert len(tokenizer) == blocks.vocab_size == len(blocks.word_starts)
    assert blocks.word_starts.dtype == torch.bool
    assert [bool(blocks.word_starts[i]) for i in tokenizer.convert_tokens_to_ids(["ka", "##ka", "[CLS]"])] == [
        True,
        False,
        True,
    ]
    rows = blocks.batch(torch.tensor([5, 0, -1]))
    assert rows["input_ids"].dtype == rows["segments"].dtype == torch.int64
    for row, index in enumerate([5, 0, len(blocks) - 1]):
        assert torch.equal(rows["input_ids"][row], blocks[index]["input_ids"])
        assert torch.equal(rows["segments"][row], blocks[index]["segments"])
    blocks[0]["input_ids"].zero_()  # a copy: the file is not touched
    assert blocks[0]["input_ids"][0] == CLS
    with pytest.raises(IndexError):
        blocks[len(blocks)]
    assert len(pickle.dumps(blocks)) < 20_000
    assert torch.equal(pickle.loads(pickle.dumps(blocks))[3]["input_ids"], blocks[3]["input_ids"])  # noqa: S301
    loader = torch.utils.data.DataLoader(blocks, batch_size=7, num_workers=1, multiprocessing_context="fork")
    assert sum(len(batch["input_ids"]) for batch in loader) == len(blocks)


def test_blocks_say_what_is_wrong(tmp_path, corpus, tokenizer_folder):
    out = tmp_path / "out"
    prepare(corpus, tokenizer_folder, out, 32)
    with pytest.raises(TriuneError, match="no split 'test'"):
        Blocks(out, "test")
    with pytest.raises(TriuneError, match="no prepared folder"):
        Blocks(tmp_path / "nowhere")
    with pytest.raises(TriuneError, match=r"no manifest\.json"):
        Blocks(tmp_path)
    tokens = (out / "train.tokens.bin").read_bytes()
    (out / "train.tokens.bin").write_bytes(tokens[:-2])
    with pytest.raises(TriuneError, match="bytes instead of"):
        Blocks(out)
    (out / "manifest.json").write_text("[]")
    with pytest.raises(TriuneError, match="damaged"):
        Blocks(out)
    (out / "manifest.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(TriuneError, match="format 99"):
        Blocks(out)


def test_large_vocabularies_and_other_kinds_of_tokenizer(tmp_path, corpus):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(1 << 16)), "ka", "lo"]
    BertTokenizer(vocab={one: i for i, one in enumerate(pieces)}).save_pretrained(tmp_path / "large")
    (tmp_path / "a.txt").write_text("ka lo unknown")
    prepare(tmp_path / "a.txt", tmp_path / "large", tmp_path / "out", 8, valid_fraction=0)
    blocks = Blocks(tmp_path / "out")
    assert blocks.manifest.id_type == "<u4"
    assert blocks[0]["input_ids"].tolist() == [CLS, (1 << 16) + 5, (1 << 16) + 6, UNK, SEP, PAD, PAD, PAD]
    assert blocks.manifest.splits["train"]["unknown_share"] == pytest.approx(1 / 3)

    backend = Tokenizer(models.WordLevel({one: i for i, one in enumerate(pieces)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    encoder = Encoder(backend.to_str(), "<u4")
    assert encoder.chunks is None
    ids, lengths = encoder.encode(["ka ka", "lo"])
    assert (ids.tolist(), lengths.tolist()) == ([(1 << 16) + 5] * 2 + [(1 << 16) + 6], [2, 1])


ODD = "aZé́ßİ9 \t\n\r\x00\x0b\x0c\x1c\x1f\x85\xa0\u200b\u2028\u3000\ufffd汉“’…–.,[]#MASK中ǆΣς\U0001f600"


class TestChunksGiveTheIdsOfTokenizers:
    @pytest.fixture(scope="class", params=[True, False])
    @classmethod
    def encoder(cls, request):
        letters = sorted({*ODD, *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"} - {*" \t\n\r"})
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + one for one in letters[5:])]
        tokenizer = BertTokenizer(vocab={one: i for i, one in enumerate(pieces)}, do_lower_case=request.param)
        return Encoder(tokenizer.backend_tokenizer.to_str(), "<u2")

    @settings(max_examples=120, deadline=None)
    @given(documents=st.lists(st.one_of(st.text(ODD, max_size=40), st.text(max_size=20)), min_size=1, max_size=4))
    def test_any_text(self, encoder, documents):
        self.compare(encoder, documents)

    def test_every_character_within_a_word(self, encoder):
        characters = [
            chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i < 0xE000 and (i < 0x3400 or i % 97 == 0)
        ]
        self.compare(encoder, ["a" + one + "b" for one in characters])

    def test_the_cache_forgets(self, encoder, monkeypatch):
        monkeypatch.setattr(encoding, "CHUNKS_KEPT", 3)
        for _ in range(3):
            self.compare(encoder, ["a b c d e", "b c é"])
        assert len(encoder.chunks) + len(encoder.chunks.older) < 20

    @staticmethod
    def compare(encoder, documents):
        assert encoder.chunks is not None
        ids, lengths = encoder.encode(documents)
        expected = [one.ids for one in encoder.backend.encode_batch(documents, add_special_tokens=False)]
        assert np.split(ids, np.cumsum(lengths)[:-1])[0].tolist() == expected[0]
        assert lengths.tolist() == [len(one) for one in expected]
        assert ids.tolist() == [one for document in expected for one in document]


def test_added_tokens_switch_the_lookup_off():
    backend = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    assert Encoder(backend.to_str(), "<u2").chunks is not None
    backend.add_tokens(["new york"])
    encoder = Encoder(backend.to_str(), "<u2")
    assert encoder.chunks is None
    assert encoder.encode(["a new york"])[0].tolist() == [1, 2]
