"""Text to blocks on disk, once: `prepare` reads, tokenises, packs and records; a second call finds that it is done."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from triune.checksums import sha256_of
from triune.data.encode import Batch, encode_batches
from triune.data.folders import refuse_something_else, replaced_folder
from triune.data.manifest import (
    NAME,
    Manifest,
    damage,
    fingerprint,
    setting_changes,
    source_changes,
    tokenizer_changes,
)
from triune.data.packing import CheckedFile, Packer, SpecialIds, Tally
from triune.data.sources import ReadCounts, Source, as_sources, draw
from triune.data.tasks import POCKET
from triune.data.text import taken_documents
from triune.data.tokenizer import describe_tokenizer, load_tokenizer, word_starts, write_tokenizer
from triune.errors import TriuneError, one_line
from triune.files import write_text

SPLITS = ("train", "valid")
WORD_STARTS = "wordstart.bin"
TOKENIZER = "tokenizer"  # a copy of the tokenizer, so that the folder is enough to train from
BATCH = 1 << 20  # characters that go to a worker at a time
PROGRESS_SECONDS = 5
SHORTEST_BLOCK = 8
WORTH_PROCESSES = 25_000_000  # bytes of source files: below that, starting processes takes longer than it saves

_PARTS = [(split, part) for split in SPLITS for part in ("tokens", "segments")]
_WRITTEN = {NAME, WORD_STARTS, TOKENIZER, *(f"{split}.{part}.bin" for split, part in _PARTS)}

Sources = Source | str | Path | Iterable[Source | str | Path]


def prepare(
    sources: Sources,
    tokenizer: str | Path,
    out: str | Path,
    block_length: int = 128,
    *,
    span_documents: bool = True,
    minimum_tail: int = 8,
    valid_fraction: float = 0.01,
    valid_sources: Sources = (),
    workers: int | None = None,
    seed: int = 1,
    say: Callable[[str], None] | None = None,
) -> Manifest:
    """Tokenise the sources into `out`, or find that it is there already and current.

    Documents go to the validation split by a draw from their text (`valid_fraction`), so equal documents are on one
    side and the order of files does not matter; or validation text comes from `valid_sources`. Without `span_documents`
    a block holds one document, and the rest of a long one is dropped where it is under `minimum_tail` tokens. Weights
    above 1 repeat training text only. The bytes written depend on text and settings, never on `workers`. `say` gets
    lines of progress and what changed since the last time.
    """
    train, valid = as_sources(sources), as_sources(valid_sources)
    settings = {
        "sources": [asdict(source) for source in train],
        "valid_sources": [asdict(source) for source in valid],
        "block_length": block_length,
        "span_documents": span_documents,
        "minimum_tail": minimum_tail,
        "valid_fraction": 0.0 if valid else valid_fraction,
        "seed": seed,
    }
    job = _Job([*train, *valid], len(train), settings, tokenizer, Path(out), workers, say or (lambda line: None))
    current, changes = job.current()
    if current is not None and not changes:
        current.reused = True
        return current
    for change in changes:
        job.say(f"prepared again: {change}")
    manifest = job.run()
    manifest.changes = changes
    return manifest


class _Job:
    """One call of `prepare`: its sources (the first `trained_on` of them are for training), settings and tokenizer."""

    def __init__(
        self,
        sources: list[Source],
        trained_on: int,
        settings: dict[str, Any],
        tokenizer: str | Path,
        out: Path,
        workers: int | None,
        say: Callable[[str], None],
    ) -> None:
        self.sources, self.trained_on, self.settings = sources, trained_on, settings
        self.out, self.workers, self.say = out, workers, say
        self._check()
        self.tokenizer = load_tokenizer(tokenizer)
        self.described = {"name": str(tokenizer), **describe_tokenizer(self.tokenizer)}
        self.vocab_size = self.described["vocab_size"]
        self.special = SpecialIds(**self.described["special_ids"])
        self.id_type = "<u2" if self.vocab_size <= 1 << 16 else "<u4"

    def _check(self) -> None:
        block_length, valid_fraction = self.settings["block_length"], self.settings["valid_fraction"]
        if not self.trained_on:
            raise TriuneError("there is nothing to prepare: give at least one source")
        if block_length < SHORTEST_BLOCK:
            raise TriuneError(f"block_length={block_length} is too small; at least {SHORTEST_BLOCK}")
        if not 0 <= valid_fraction < 1:
            raise TriuneError(f"valid_fraction={valid_fraction} must be at least 0 and below 1")
        if self.workers is not None and self.workers < 1:
            raise TriuneError(f"workers={self.workers} must be at least 1")
        refuse_something_else(self.out, _WRITTEN)

    def current(self) -> tuple[Manifest | None, list[str]]:
        """The manifest that is there, and all that speaks against using it; fingerprints the sources on the way."""
        before: Manifest | None = None
        changes: list[str] = []
        if self.out.exists() and any(self.out.iterdir()):
            try:
                before = Manifest.load(self.out)
            except TriuneError as error:
                changes.append(one_line(error))
        known = [file for source in before.sources for file in source["files"]] if before else []
        self.files = [fingerprint(source, known) for source in self.sources]
        if before is not None:
            changes += setting_changes(before.settings, self.settings)
            changes += tokenizer_changes(before.tokenizer, self.described)
            changes += source_changes(known, (file for files in self.files for file in files))
            changes += damage(self.out, before.files)
        return before, changes

    def run(self) -> Manifest:
        started = time.monotonic()
        with replaced_folder(self.out) as folder:
            manifest = self._fill(folder, started)
            write_text(folder / NAME, manifest.to_json())
        return manifest

    def _fill(self, folder: Path, started: float) -> Manifest:
        keep = self.settings
        files = {f"{split}.{part}.bin": CheckedFile(folder / f"{split}.{part}.bin") for split, part in _PARTS}
        packers = {
            split: Packer(
                keep["block_length"],
                keep["span_documents"],
                keep["minimum_tail"],
                self.special,
                self.id_type,
                files[f"{split}.tokens.bin"],
                files[f"{split}.segments.bin"],
            )
            for split in SPLITS
        }
        counts = [ReadCounts() for _ in self.sources]
        tallies = {split: Tally(self.vocab_size, self.special) for split in SPLITS}
        spoken = started
        try:
            backend = self.tokenizer.backend_tokenizer.to_str()
            with closing(encode_batches(self._batches(counts), backend, self.id_type, self._processes())) as encoded:
                for batch, ids, lengths in encoded:
                    packers[batch.split].add(ids, lengths)
                    tallies[batch.split].add(ids, lengths)
                    now = time.monotonic()
                    if now - spoken > PROGRESS_SECONDS:
                        done, spoken = sum(one.bytes for one in counts) / 1e6, now
                        tokens = tallies["train"].tokens
                        self.say(f"{done:,.0f} MB read, {tokens:,} tokens, {done / (now - started):.1f} MB/s")
            for packer in packers.values():
                packer.close()
        finally:
            for file in files.values():
                file.file.close()
        self._check_result(counts, tallies["train"])
        files[WORD_STARTS] = CheckedFile(folder / WORD_STARTS)
        files[WORD_STARTS].write(word_starts(self.tokenizer, self.vocab_size))
        files[WORD_STARTS].close()
        records = {name: file.record() for name, file in files.items()}
        write_tokenizer(self.tokenizer, folder / TOKENIZER)
        for path in sorted((folder / TOKENIZER).iterdir()):
            records[f"{TOKENIZER}/{path.name}"] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        seconds, size = time.monotonic() - started, sum(one.bytes for one in counts)
        return Manifest(
            settings=self.settings,
            tokenizer=self.described,
            sources=[self._source_record(number, one) for number, one in enumerate(counts)],
            splits={split: tallies[split].record(packers[split]) for split in SPLITS},
            files=records,
            id_type=self.id_type,
            unigram_entropy=tallies["train"].entropy(),
            text_bytes=size,
            seconds=round(seconds, 3),
            megabytes_per_second=round(size / 1e6 / seconds, 3),
        )

    def _batches(self, counts: list[ReadCounts]) -> Iterator[Batch]:
        """Documents of one split together, in reading order: that decides the blocks, not who tokenises them."""
        fraction, seed = self.settings["valid_fraction"], self.settings["seed"]
        for number, source in enumerate(self.sources):
            waiting: dict[str, list[str]] = {split: [] for split in SPLITS}
            size = dict.fromkeys(SPLITS, 0)
            for text, first in taken_documents(source, counts[number], seed):
                held_out = number >= self.trained_on or (fraction > 0 and draw(text, "valid", seed) < fraction)
                split = "valid" if held_out else "train"
                if held_out and not first:
                    continue  # a copy would only weigh a loss that is measured once
                waiting[split].append(text)
                size[split] += len(text)
                if size[split] >= BATCH:
                    yield Batch(split, number, waiting[split])
                    waiting[split], size[split] = [], 0
            yield from (Batch(split, number, texts) for split, texts in waiting.items() if texts)

    def _processes(self) -> int:
        if self.workers is not None:
            return self.workers
        known = sum(file["bytes"] for files in self.files for file in files)
        unknown = any(not files for files in self.files)  # a hub data set
        return usable_cores() if known >= WORTH_PROCESSES or unknown else 1

    def _check_result(self, counts: list[ReadCounts], train: Tally) -> None:
        if not train.tokens:
            said = "; ".join(
                f"'{source.where}': {one.report()}" for source, one in zip(self.sources, counts, strict=True)
            )
            raise TriuneError(f"there is no text to train on ({said})")
        known = [file for files in self.files for file in files]
        now = [file for source in self.sources for file in fingerprint(source, known)]
        for change in source_changes(known, now):
            raise TriuneError(f"{change} while it was read; prepare again when the sources are at rest")

    def _source_record(self, number: int, counts: ReadCounts) -> dict[str, Any]:
        source = self.sources[number]
        split = "train" if number < self.trained_on else "valid"
        files = self.files[number]
        pocket = any((Path(file["path"]).absolute().parent.parent / POCKET).is_file() for file in files)
        record = {"split": split, "files": files, "counts": counts.as_dict(), "report": counts.report()}
        return {**asdict(source), **record, "pocket": pocket}


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
