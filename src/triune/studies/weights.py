"""Models of earlier stages, here with their weights or only by their records.

Records are small and may be kept, or carried to another machine, without weights. A cell whose record is there is done
all the same; one that would need the weights cannot run.
"""

from pathlib import Path
from typing import Any

from triune.cells import Cell, Record
from triune.errors import TriuneError
from triune.presence import MODEL, RECORD, has_weights, read
from triune.studies.place import FIRST_SEED, Place


def pretrained_models(place: Place, seed: int = FIRST_SEED) -> dict[str, Any]:
    """Locations by label, of one pre-training seed."""
    from triune.models.configuration import TriuneConfig
    from triune.models.locate import Location, locate_model

    found = {}
    for label in place.labels:
        run = place.run_of(label, seed)
        if has_weights(run / MODEL):
            found[label] = locate_model(str(run))
        else:
            found[label] = Location(str(run / MODEL), TriuneConfig(), _checksum_in_records(place, label, run))
    return found


def _checksum_in_records(place: Place, label: str, run: Path) -> str:
    """Of weights that are not here, as the records of what was fine-tuned from them have it."""
    ending = (run / MODEL).relative_to(place.out).as_posix()
    for path in sorted((place.out / "tasks").glob(f"*/{label}/*/{RECORD}")):
        record = read(path)
        if str(record.get("model_path", "")).endswith(ending):
            return str(record.get("model_sha256", ""))
    return ""


def cell_without_weights(title: str, record: Path, model: Path) -> Cell:
    """Done if its record is there; of what went into it, the weights are not here to compare."""
    return Cell(title, _cannot_run, {"model": model}, record, str(read(record).get("identity", "")), needs=model)


def _cannot_run(model: Path) -> Record:
    raise TriuneError(f"there are no weights in '{model}'")
