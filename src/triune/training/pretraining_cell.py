"""A pre-training run as a cell of a study: its record is its summary."""

from pathlib import Path
from typing import Any

from rich.console import Console

from triune.cells import Cell, Record, write_record
from triune.data.blocks import Blocks
from triune.errors import DivergedError, TriuneError
from triune.presence import SUMMARY
from triune.training import run_folder
from triune.training.pretrain import pretrain
from triune.training.recipe import Recipe, recipe_from_dict


def pretraining_cell(title: str, recipe: Recipe, data: Path, run: Path) -> Cell:
    identity = run_folder.identity_of(recipe, run_folder.data_hashes(Blocks(data, "train")))
    arguments = {"recipe": recipe.to_dict(), "data": data, "run": run, "identity": identity}
    # The summary is written after the model, and counts without it too: records may be kept without weights.
    return Cell(title, run_or_diverge, arguments, run / SUMMARY, identity)


def run_or_diverge(recipe: dict[str, Any], data: Path, run: Path, identity: str) -> Record:
    """A run that diverges is finished too: its record says so, and the study goes on."""
    try:
        return run_pretraining(recipe, data, run)
    except DivergedError as error:
        entropy = Blocks(data, "train").manifest.unigram_entropy
        record = {
            "study": "pretraining",
            "identity": identity,
            "operator": recipe["model"]["operator"],
            "unigram_entropy": entropy,
            "diverged": error.short,
        }
        return write_record(run / SUMMARY, record)


def loss_line(cell: Cell, record: Record) -> str:
    said = record.get("diverged") or f"validation loss {record['validation_loss']:.3f} in {record['seconds']:.0f} s"
    return f"{cell.title}: {said}"


def run_pretraining(recipe: dict[str, Any], data: Path, run: Path) -> dict[str, Any]:
    # Several may be under way, in processes of their own: on a terminal their lines would go through the study's bars.
    console = Console(stderr=True)
    console.quiet = console.is_terminal
    summary = pretrain(recipe_from_dict(recipe, "recipe"), data, run, console=console)
    if "stopped" in summary:
        raise TriuneError(f"{run}: stopped at step {summary['stopped']} of {summary['steps']} and saved: start again")
    return summary
