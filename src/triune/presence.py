"""What is on disk of a model: its weights, or only the record beside them, or one that says that it diverged."""

import json
from pathlib import Path


def has_weights(model: Path) -> bool:
    return any(model.glob("*.safetensors"))


def diverged(record: Path) -> str | None:
    """What the record says of a run that diverged; None for every other one, and where there is none."""
    try:
        said = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # whoever takes it for finished says what is wrong with it
    return str(said["diverged"]) if isinstance(said, dict) and "diverged" in said else None


def has_lost_weights(model: Path) -> bool:
    """There is a record of the model beside its folder, and it is not here: it was made and has gone."""
    records = [model.parent / name for name in ("summary.json", "record.json")]
    there = [record for record in records if record.is_file()]
    return bool(there) and not has_weights(model) and not any(map(diverged, there))
