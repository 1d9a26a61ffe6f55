"""Writing the pocket benchmark to a folder, or finding that it is there already."""

import io
import json
import random
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from triune.checksums import sha256_of
from triune.data.folders import refuse_something_else, replaced_folder
from triune.data.pocket import pairs, sentences, stories
from triune.data.pocket.facts import Part
from triune.data.pocket.sentences import Row
from triune.data.pocket.squad import squad
from triune.errors import TriuneError
from triune.files import write_bytes, write_text

GENERATOR_VERSION = 2  # to be raised with every change of what is generated
DEFAULT_DOCUMENTS = 8_000
DOCUMENTS_A_FILE = 4_000
VALIDATION_SHARE = 25  # one validation document for this many of the corpus
MANIFEST = "pocket.json"
WRITTEN = (MANIFEST, "corpus/pocket-*.txt", "corpus/valid-pocket.txt", "glue/*/*.parquet", "squad/*/*.json")

TRIES = 10_000  # for a row that is new; a task with too few different rows is a mistake here, not an endless loop
Make = Callable[[random.Random, Part], Row]
ROWS = {"train": 1_200, "dev": 400}
TASKS: dict[str, Make] = {
    "cola": sentences.cola,
    "sst2": sentences.sst2,
    "mrpc": pairs.mrpc,
    "stsb": pairs.stsb,
    "qqp": pairs.qqp,
    "mnli": pairs.mnli,
    "qnli": pairs.qnli,
    "rte": pairs.rte,
}


def write_pocket(out: Path, seed: int = 1, corpus_documents: int = DEFAULT_DOCUMENTS) -> dict[str, Any]:
    """Write corpus and tasks to `out` and return the manifest; `reused` in it says that all was there already.

    The same seed and size give the same bytes on any machine with the same pyarrow.
    """
    out = Path(out)
    if corpus_documents < 1:
        raise TriuneError(f"corpus_documents is {corpus_documents}: ask for at least one document")
    identity = {"seed": seed, "generator_version": GENERATOR_VERSION, "corpus_documents": corpus_documents}
    current = _current_manifest(out, identity)
    if current is not None:
        return current | {"reused": True}
    _refuse_something_else(out)
    with replaced_folder(out) as beside:
        counts: dict[str, dict[str, int]] = {}
        counts |= _write_corpus(beside, seed, corpus_documents)
        counts |= _write_glue(beside, seed)
        counts |= _write_squad(beside, seed)
        files = {name: count | {"sha256": sha256_of(beside / name)} for name, count in sorted(counts.items())}
        manifest: dict[str, Any] = identity | {"files": files}
        write_text(beside / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    return manifest | {"reused": False}


def _refuse_something_else(out: Path) -> None:
    """A folder that holds `glue` and `squad` may be the real ones': only with our manifest are they ours to replace."""
    inside = [path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir()]
    ours = MANIFEST in inside and all(any(fnmatch(name, pattern) for pattern in WRITTEN) for name in inside)
    if not ours:
        refuse_something_else(out, ())


def _current_manifest(out: Path, identity: dict[str, int]) -> dict[str, Any] | None:
    """The manifest of `out` where it is of this seed, version and size and every file is as it says; else None."""
    try:
        manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        if {key: manifest[key] for key in identity} != identity:
            return None
        if all(sha256_of(out / name) == entry["sha256"] for name, entry in manifest["files"].items()):
            return dict(manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # missing, damaged or of another shape: to be written again
    return None


def _write_corpus(out: Path, seed: int, count: int) -> dict[str, dict[str, int]]:
    # Whatever the size, file k starts in the same way; a shorter corpus is not a sample of a longer one's file sizes.
    sizes = [min(DOCUMENTS_A_FILE, count - start) for start in range(0, count, DOCUMENTS_A_FILE)]
    parts = {f"pocket-{i:02d}": size for i, size in enumerate(sizes)} | {
        "valid-pocket": max(1, count // VALIDATION_SHARE)
    }
    counts = {}
    for part, size in parts.items():
        text = "\n\n".join(stories.documents(seed, part, size)) + "\n"
        write_text(out / "corpus" / f"{part}.txt", text)
        counts[f"corpus/{part}.txt"] = {"documents": size, "words": len(text.split())}
    return counts


def _write_glue(out: Path, seed: int) -> dict[str, dict[str, int]]:
    counts = {}
    for task, make in TASKS.items():
        taken: set[tuple[str, ...]] = set()
        splits = dict(ROWS) | ({"dev_mismatched": ROWS["dev"]} if task == "mnli" else {})
        for split, count in splits.items():
            rng = random.Random(f"pocket {task} {split} {seed}")
            rows = [_new_row(make, rng, Part(split, seed), taken) for _ in range(count)]
            name = f"glue/{task}/{split}.parquet"
            _write_parquet(out / name, rows)
            counts[name] = {"rows": len(rows)}
    return counts


def _new_row(make: Make, rng: random.Random, part: Part, taken: set[tuple[str, ...]]) -> Row:
    """A row whose texts are not taken. A repeat is replaced by one of its class, or rare classes would get rarer."""
    wanted = None
    for _ in range(TRIES):
        row = make(rng, part)
        key = tuple(str(value) for name, value in row.items() if name != "label")
        if key not in taken and (wanted is None or row["label"] == wanted):
            taken.add(key)
            return row
        wanted = row["label"] if wanted is None and isinstance(row["label"], int) else wanted
    raise AssertionError(f"{make.__name__} has too few different rows for {part}")


def _write_squad(out: Path, seed: int) -> dict[str, dict[str, int]]:
    counts = {}
    for version in ("v1.1", "v2.0"):
        taken: set[str] = set()
        for split, count in ROWS.items():
            rng = random.Random(f"pocket squad {version} {split} {seed}")
            content = squad(rng, Part(split, seed), version, count, taken)
            name = f"squad/{version}/{split}.json"
            write_text(out / name, json.dumps(content) + "\n")
            counts[name] = {"questions": count, "paragraphs": sum(len(part["paragraphs"]) for part in content["data"])}
    return counts


def _write_parquet(path: Path, rows: list[Row]) -> None:
    """Columns and types of the real files: texts, then `label` (a float for STS-B), then `idx`; zstd."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [name for name in rows[0] if name != "label"]
    label = pa.float32() if isinstance(rows[0]["label"], float) else pa.int64()
    arrays = {name: pa.array([row[name] for row in rows], pa.large_string()) for name in columns}
    arrays["label"] = pa.array([row["label"] for row in rows], label)
    arrays["idx"] = pa.array(range(len(rows)), pa.int32())
    written = io.BytesIO()
    pq.write_table(pa.table(arrays), written, compression="zstd")
    write_bytes(path, written.getvalue())
