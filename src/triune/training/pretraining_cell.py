"""A pre-training run as a cell of a study: its record is its summary."""

from pathlib import Path
from typing import Any

from rich.console import Console

from triune.cells import Cell
from triune.data.blocks import Blocks
from triune.errors import TriuneError
from triune.training import run_folder
from triune.training.pretrain import pretrain
from triune.training.recipe import Recipe, recipe_from_dict


def pretraining_cell(title: str, recipe: Recipe, data: Path, run: Path) -> Cell:
    identity = run_folder.identity_of(recipe, run_folder.data_hashes(Blocks(data, "train")))
    arguments = {"recipe": recipe.to_dict(), "data": data, "run": run}
    # The summary is written after the model, and counts without it too: records may be kept without weights.
    return Cell(title, run_pretraining, arguments, run / run_folder.SUMMARY, identity)


def run_pretraining(recipe: dict[str, Any], data: Path, run: Path) -> dict[str, Any]:
    quiet = Console(stderr=True, quiet=True)  # several may be under way: the study shows how far it is
    summary = pretrain(recipe_from_dict(recipe, "recipe"), data, run, console=quiet)
    if "stopped" in summary:
        raise TriuneError(f"{run}: stopped at step {summary['stopped']} of {summary['steps']} and saved: start again")
    return summary
