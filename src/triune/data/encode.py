"""Documents to token ids, in parallel and in order.

BERT's normalisation works character by character and never joins text across white space, so the ids of a document are
those of its white-space chunks, one after another. Chunks repeat: looking them up is many times faster than tokenising
them again, and gives the same ids (the tests hold it against `tokenizers`). Other tokenizers go through `tokenizers`.
"""

import json
import os
import re
import tempfile
from array import array
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import accumulate, pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from triune.errors import TriuneError

Ids = np.ndarray  # one array for a list of documents …
Lengths = np.ndarray  # … and how many of the ids belong to each

CHUNKS_KEPT = 250_000  # in each of two generations, about 100 MB: memory stays flat

# str.split() separates at these, BERT removes them; at all other characters the two agree.
_REMOVED = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
# What BERT does to chunks of only ASCII and typographic marks: words are runs of letters and digits, all else stands
# alone. Other chunks (accents, other scripts) go through `tokenizers`.
_PLAIN = re.compile("[!-~“”‘’„‚«»‹›–—…]+").fullmatch
_WORDS = re.compile("[A-Za-z0-9]+|[^A-Za-z0-9]").findall


@dataclass
class Batch:
    """Documents of one source and one split."""

    split: str
    source: int
    documents: list[str]


class Encoder:
    """Token ids without special tokens. Text that spells a special token, such as [MASK], is text."""

    def __init__(self, tokenizer_json: str, id_type: str) -> None:
        self.backend = Tokenizer.from_str(tokenizer_json)
        self.backend.no_truncation()
        self.backend.no_padding()
        self.backend.encode_special_tokens = True
        self.id_type = np.dtype(id_type)
        self.chunks: _Chunks | None = None
        if _is_bert(tokenizer_json):
            lowercase = bool(json.loads(tokenizer_json)["normalizer"]["lowercase"])
            self.chunks = _Chunks(self.backend, lowercase, self.id_type)

    def encode(self, documents: list[str]) -> tuple[Ids, Lengths]:
        if self.chunks is not None:
            return self.chunks.encode(documents)
        encoded = [one.ids for one in self.backend.encode_batch_fast(documents, add_special_tokens=False)]
        lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
        return np.concatenate([np.array(ids, dtype=self.id_type) for ids in encoded]), lengths


def _is_bert(tokenizer_json: str) -> bool:
    parts = json.loads(tokenizer_json)
    normalizer, splitter = parts["normalizer"] or {}, parts["pre_tokenizer"] or {}
    return (
        (normalizer.get("type"), normalizer.get("clean_text")) == ("BertNormalizer", True)
        and splitter.get("type") == "BertPreTokenizer"
        and parts["model"]["type"] == "WordPiece"
        and all(token["special"] for token in parts["added_tokens"])  # others are found across white space
    )


class _Chunks(dict[str, bytes]):
    """Chunks that were met, and the bytes of their ids. Those not met for a while make room for others."""

    def __init__(self, backend: Tokenizer, lowercase: bool, id_type: np.dtype) -> None:
        super().__init__()
        self.backend, self.lowercase, self.id_type = backend, lowercase, id_type
        self.words = _Words(backend, id_type)
        self.older: dict[str, bytes] = {}

    def __missing__(self, chunk: str) -> bytes:
        ids = self.older.get(chunk)
        if ids is None and _PLAIN(chunk):
            words = _WORDS(chunk.lower() if self.lowercase else chunk)
            ids = b"".join(map(self.words.__getitem__, words))
        elif ids is None:
            ids = array(self.id_type.char, self.backend.encode(chunk, add_special_tokens=False).ids).tobytes()
        self[chunk] = ids
        return ids

    def encode(self, documents: list[str]) -> tuple[Ids, Lengths]:
        if len(self) > CHUNKS_KEPT:
            self.older = dict(self)
            self.clear()
        if len(self.words) > CHUNKS_KEPT:
            self.words.clear()
        encoded = []
        for text in documents:
            chunks = (_REMOVED.sub("", text) if _REMOVED.search(text) else text).split()
            encoded.append(b"".join(map(self.__getitem__, chunks)))
        lengths = np.array([len(ids) // self.id_type.itemsize for ids in encoded], dtype=np.int64)
        return np.frombuffer(b"".join(encoded), dtype=self.id_type), lengths


class _Words(dict[str, bytes]):
    """The same for words. Chunks differ by the punctuation that hangs on a word, so words are fewer."""

    def __init__(self, backend: Tokenizer, id_type: np.dtype) -> None:
        super().__init__()
        self.tokenize, self.type = backend.model.tokenize, id_type.char

    def __missing__(self, word: str) -> bytes:
        ids = self[word] = array(self.type, [token.id for token in self.tokenize(word)]).tobytes()
        return ids


def encode_batches(
    batches: Iterator[Batch], tokenizer_json: str, id_type: str, workers: int
) -> Generator[tuple[Batch, Ids, Lengths]]:
    """The batches with their ids, in order, whatever the number of worker processes; 1 works in this process."""
    if workers <= 1:
        encoder = Encoder(tokenizer_json, id_type)
        for batch in batches:
            yield batch, *encoder.encode(batch.documents)
        return
    waiting: deque[tuple[Batch, Path, Future[Lengths]]] = deque()
    # Text and ids go through small files, which live in the page cache: a pipe moves 64 kB at a time, and on a busy
    # machine each of these waits for its reader to be scheduled.
    with tempfile.TemporaryDirectory(prefix="triune-") as exchange:
        # In a file as well: what is more than a pipe holds makes us wait for ever for a process that cannot start.
        tokenizer = Path(exchange, "tokenizer.json")
        tokenizer.write_text(tokenizer_json, encoding="utf-8")
        # Spawned, not forked: threads of torch or tokenizers may run in this process, and a fork copies their locks.
        pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (tokenizer, id_type))
        try:
            for number, batch in enumerate(batches):
                path = Path(exchange, str(number))
                path.write_bytes("".join(batch.documents).encode("utf-8"))
                sizes = [len(document) for document in batch.documents]
                waiting.append((batch, path, pool.submit(_encode_in_worker, path, sizes)))
                if len(waiting) > 2 * workers:  # enough to keep all of them busy; more would only fill memory
                    yield _collect(*waiting.popleft(), id_type)
            while waiting:
                yield _collect(*waiting.popleft(), id_type)
        except BrokenProcessPool as error:
            raise TriuneError(
                "a tokenising process died: out of memory, or the calling script starts work outside of "
                "`if __name__ == '__main__':`; with workers=1 there are no such processes"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _collect(batch: Batch, path: Path, future: Future[Lengths], id_type: str) -> tuple[Batch, Ids, Lengths]:
    lengths = future.result()
    ids = np.fromfile(path, dtype=id_type)
    path.unlink()
    return batch, ids, lengths


_encoder: Encoder | None = None  # of a worker process


def _start_worker(tokenizer: Path, id_type: str) -> None:
    global _encoder
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    _encoder = Encoder(tokenizer.read_text(encoding="utf-8"), id_type)


def _encode_in_worker(path: Path, sizes: list[int]) -> Lengths:
    assert _encoder is not None
    text = path.read_bytes().decode("utf-8")
    ends = list(accumulate(sizes, initial=0))
    ids, lengths = _encoder.encode([text[start:end] for start, end in pairwise(ends)])
    ids.tofile(path)
    return lengths
