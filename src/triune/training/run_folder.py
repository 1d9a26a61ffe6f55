"""A run folder says what it is: recipe, versions, metrics as JSON lines, checkpoints, and at the end the model."""

import hashlib
import json
import platform
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from triune.data.blocks import Blocks
from triune.errors import TriuneError
from triune.files import write_text
from triune.operators import with_operator_sources
from triune.presence import RUN, SUMMARY
from triune.training.recipe import Recipe, recipe_from_dict
from triune.version import __version__

RECIPE = "recipe.yaml"
METRICS = "metrics.jsonl"


def versions() -> dict[str, str]:
    from importlib.metadata import version

    packages = {name: version(name) for name in ("torch", "transformers", "accelerate", "tokenizers")}
    return {"triune": __version__, "python": platform.python_version(), **packages}


def open_run(run: Path, recipe: Recipe, data: dict[str, Any]) -> None:
    """Start a run folder, or make sure that the one there belongs to the same recipe and data."""
    operator = recipe.model.operator
    described = with_operator_sources({"recipe": recipe.to_dict(), "data": data}, [operator])
    if (run / RUN).is_file():
        # Every value of both, with those that a recipe leaves out where they are as ever.
        written = _read(run / RUN)
        # What a recipe says of itself is no part of it, as in `identity_of`.
        before = {"recipe": {**asdict(recipe_of(run)), "about": ""}, "data": written.get("data")}
        different = _first_difference(before, {"recipe": {**asdict(recipe), "about": ""}, "data": data})
        if not different and written.get("operator_sources") != described.get("operator_sources"):
            different = f"the source of the operator '{operator}' differs from what it was there"
        if different:
            raise TriuneError(f"run folder '{run}' belongs to another run ({different}): choose another --out")
    else:
        if run.exists() and not run.is_dir():
            raise TriuneError(f"'{run}' is a file, not a folder: choose another --out")
        if run.exists() and any(not path.name.startswith(".") for path in run.iterdir()):
            raise TriuneError(f"'{run}' exists and is not a run folder: choose another --out")
        started = {"versions": versions(), "started": time.time()}
        write_text(run / RUN, json.dumps({**described, **started}, indent=2))
    if not (run / RECIPE).is_file():  # for people; a kill may have come between the two
        write_text(run / RECIPE, recipe.to_yaml())


def data_hashes(blocks: Blocks) -> dict[str, str]:
    return {name: file["sha256"] for name, file in blocks.manifest.files.items()}


def identity_of(recipe: Recipe, data: dict[str, str]) -> str:
    """Of what goes into a run: a summary with another one is not of this recipe, operator and data."""
    described = {"recipe": {**recipe.to_dict(), "about": ""}, "data": data}
    described = with_operator_sources(described, [recipe.model.operator])
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:24]


def recipe_of(run: Path) -> Recipe:
    written = _read(run / RUN)
    if not isinstance(written.get("recipe"), dict):
        raise TriuneError(f"'{run / RUN}' holds no recipe: it is not of a pre-training run")
    return recipe_from_dict(written["recipe"], str(run))


def is_finished(run: Path) -> bool:
    return (run / SUMMARY).is_file()


def summary_of(run: Path) -> dict[str, Any]:
    return _read(run / SUMMARY)


def metrics_of(run: Path) -> list[dict[str, Any]]:
    try:
        lines = (run / METRICS).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise TriuneError(f"'{run}' is not a run folder: cannot read {METRICS} ({error.strerror})") from error
    try:
        return [json.loads(line) for line in lines if line.endswith("}")]
    except ValueError as error:
        raise TriuneError(f"'{run / METRICS}' is damaged ({error}): run it again in another folder") from error


def forget_after(run: Path, step: int) -> None:
    """Drop metrics of steps that a restart will take again; a line that a kill cut short goes with them."""
    if (run / METRICS).is_file():
        kept = [row for row in metrics_of(run) if row["step"] <= step]
        write_text(run / METRICS, "".join(json.dumps(row) + "\n" for row in kept))


def _read(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TriuneError(f"cannot read '{path}': {error.strerror}") from error
    except ValueError as error:
        raise TriuneError(f"'{path}' is not valid JSON: {error}") from error
    if not isinstance(read, dict):
        raise TriuneError(f"'{path}' holds no JSON object: it is not of a pre-training run")
    return read


def _first_difference(before: dict[str, Any], now: dict[str, Any], where: str = "") -> str | None:
    for key in {**now, **before}:
        value, other = now.get(key), before.get(key)
        if isinstance(value, dict) and isinstance(other, dict):
            if inner := _first_difference(other, value, f"{where}{key}."):
                return inner
        elif other != json.loads(json.dumps(value)):
            return f"{where}{key} is {other} there and {value} here"
    return None
