"""What is on disk of a model: its weights, or only the record beside them, or one that says that it diverged."""

import json
from pathlib import Path
from typing import Any

# In the folder of a run: what a pre-training is and, written last, what it gave; the same of a fine-tuning; its model.
RUN = "run.json"
SUMMARY = "summary.json"
RECORD = "record.json"
MODEL = "model"


def has_weights(model: Path) -> bool:
    return any(model.glob("*.safetensors"))


def read(record: Path) -> dict[str, Any]:
    """What a record holds, or nothing; whoever takes it for finished says what is wrong with it."""
    try:
        held = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def diverged(record: Path) -> str | None:
    """What the record says of a run that diverged; None for every other one, and where there is none."""
    said = read(record).get("diverged")
    return None if said is None else str(said)


def has_lost_weights(model: Path) -> bool:
    """There is a record of the model beside its folder, and it is not here: it was made and has gone."""
    records = [model.parent / name for name in (SUMMARY, RECORD)]
    there = [record for record in records if record.is_file()]
    return bool(there) and not has_weights(model) and not any(map(diverged, there))
