"""Records for others to read: copies of the small files of a results folder, without weights and without paths.

The copies lie as in the results folder. A report on them has the same figures, and `triune reproduce` on a copy of
them goes on where the results were.
"""

import json
import os
from pathlib import Path
from typing import Any

from triune.data.examples import ids_sha256
from triune.errors import TriuneError, one_line
from triune.evaluation.comparing import DEV
from triune.files import write_text
from triune.presence import RECORD, RUN, SUMMARY, diverged
from triune.report import planned
from triune.report.gather import gather
from triune.training.run_folder import METRICS

LARGEST = 1_000_000  # bytes; what is larger is no small record
_BESIDE = {"pretraining": (SUMMARY, RUN, METRICS), "variants": (SUMMARY, RUN, METRICS), "finetuning": (DEV,)}
_OF_SEARCHES = (f"search-*/{RECORD}", f"rates/*/*/{SUMMARY}")  # no results, but what reproduce goes on from
_IDS = "ids"  # in a record, of the rows that were scored
_PARTS_KEPT = 3  # of a path that leads out of the results


def publish(results: Path, folder: Path) -> list[Path]:
    """Copy all records of `results` into `folder`; gives those that are new. Nothing is written if one cannot be."""
    if folder.exists() and not folder.is_dir():
        raise TriuneError(f"'{folder}' is not a folder")
    one, other = results.resolve(), folder.resolve()
    if one.is_relative_to(other) or other.is_relative_to(one):  # every record would be there twice
        raise TriuneError(f"'{folder}' and '{results}' must not be one folder, or one inside the other: choose another")
    new: dict[Path, str] = {}
    for name in _files(results):
        text = _published(results / name, results)
        if (size := len(text.encode())) > LARGEST:
            raise TriuneError(f"'{results / name}' has {size:,} bytes: records of more than {LARGEST:,} are not copied")
        target = folder / name
        before = target.read_text(encoding="utf-8") if target.is_file() else None
        if before == text:
            continue
        if before is not None and not _goes_further(before, text):
            raise TriuneError(
                f"'{target}' is there and differs from '{results / name}': remove one, or choose a folder"
            )
        new[target] = text
    for target, text in new.items():
        write_text(target, text)
    return list(new)


def _files(results: Path) -> list[Path]:
    """Of all records, relative to the results."""
    found: set[Path] = set()
    for record in gather([results]).all():
        path = results / record["file"]
        found.add(path)
        for pattern in _BESIDE.get(record["study"], ()):
            found.update(path.parent.glob(pattern))
    for pattern in _OF_SEARCHES:
        found.update(results.rglob(pattern))
    for name, study in ((SUMMARY, "pretraining"), (RECORD, "finetuning")):
        for path in filter(diverged, results.rglob(name)):  # in no table, and done all the same
            found.add(path)
            found.update(beside for pattern in _BESIDE[study] for beside in path.parent.glob(pattern))
    names = sorted(path.relative_to(results) for path in found)
    return [name for name in names if not any(part.startswith(".") for part in name.parts)]  # still under way


def _published(path: Path, results: Path) -> str:
    """The file as compact JSON, or JSON lines, with paths as seen from the results."""
    try:
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines() if path.suffix == ".jsonl" else [text]
        values = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise TriuneError(f"cannot read '{path}': {one_line(error)}") from error
    roots = dict.fromkeys(f"{root}{os.sep}" for root in (str(results.resolve()), str(results.absolute()), str(results)))
    plain = [_shortened(one, list(roots)) for one in values]
    return "".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")) + "\n" for one in plain)


def _shortened(value: Any, roots: list[str]) -> Any:
    """Without paths, and with a checksum in the place of the ids of rows, which every run of a task would repeat."""
    if isinstance(value, dict):
        return {key: ids_sha256(inner) if key == _IDS else _shortened(inner, roots) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shortened(inner, roots) for inner in value]
    if not isinstance(value, str):
        return value
    for root in roots:
        if value.startswith(root):
            return value.removeprefix(root)
    if os.path.isabs(value) and value.count(os.sep) > 1:
        return "/".join(Path(value).parts[1:][-_PARTS_KEPT:])
    return value


def _goes_further(before: str, now: str) -> bool:
    """The record of the ablations grows with every seed; what is planned may change."""
    try:
        old, new = json.loads(before), json.loads(now)
        if old["study"] == new["study"] == planned.STUDY:
            return True
        if old["study"] != "ablations" or any(old[name] != new[name] for name in ("study", "reference", "steps")):
            return False
        grown = {one["name"]: one["validation_losses"] for one in new["variants"]}
        known = {one["name"]: one["validation_losses"] for one in old["variants"]}
        return old["seeds"] == new["seeds"][: len(old["seeds"])] and all(
            losses == grown.get(name, [])[: len(losses)] for name, losses in known.items()
        )
    except (ValueError, KeyError, TypeError):
        return False
