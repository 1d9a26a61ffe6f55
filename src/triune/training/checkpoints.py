"""Checkpoints that are whole or not there: written beside, sealed with checksums, renamed."""

import json
import os
import shutil
from pathlib import Path

from triune.checksums import sha256_of
from triune.errors import TriuneError

SEAL = "seal.json"
PREFIX = "checkpoint-"


def seal(written: Path, place: Path) -> None:
    """Record what the checkpoint holds, make it durable, and move it to where it belongs in one step."""
    files = sorted(path for path in written.rglob("*") if path.is_file() and path.name != SEAL)
    record = {
        str(path.relative_to(written)): {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files
    }
    (written / SEAL).write_text(json.dumps(record, indent=1), encoding="utf-8")
    for path in (*files, written / SEAL):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if place.exists():  # left by a run that was killed after this very step
        shutil.rmtree(place)
    written.rename(place)


def damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, in words; None if it is whole."""
    try:
        record = json.loads((checkpoint / SEAL).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return f"it has no {SEAL}"
    except (OSError, ValueError):
        return f"its {SEAL} cannot be read"
    for name, expected in record.items():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != expected["bytes"]:
            return f"{name} has {path.stat().st_size} bytes instead of {expected['bytes']}"
        if sha256_of(path) != expected["sha256"]:
            return f"{name} has been changed"
    return None


def checkpoints(run: Path) -> list[Path]:
    """All there are, oldest first."""
    found = [path for path in run.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdigit()]
    return sorted(found, key=lambda path: int(path.name.removeprefix(PREFIX)))


def newest_whole(run: Path, report: list[str]) -> Path | None:
    """The newest checkpoint that is whole; what is wrong with newer ones goes to `report`."""
    found = checkpoints(run)
    for checkpoint in reversed(found):
        wrong = damage(checkpoint)
        if wrong is None:
            return checkpoint
        report.append(f"{checkpoint.name} is damaged ({wrong}): using the one before it")
    if found:
        raise TriuneError(
            f"run '{run}': every checkpoint is damaged ({damage(found[-1])} in {found[-1].name}); "
            "remove the folder to start again"
        )
    return None


def keep_newest(run: Path, kept: int) -> None:
    for checkpoint in checkpoints(run)[:-kept]:
        shutil.rmtree(checkpoint)
