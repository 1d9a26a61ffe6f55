"""The search of learning rates: every model at each rate of one grid, and which rate it was given."""

import math
from collections.abc import Sequence
from typing import Any

from triune.report.ablations import HARDLY
from triune.report.gather import Gathered
from triune.report.tables import Table
from triune.report.unigram import unigram_of

Record = dict[str, Any]


def rates_table(records: Sequence[Record], planned: Sequence[float] = ()) -> Table:
    """`planned` is the grid of the search; without a plan it is every rate that some model was tried at."""
    grid = sorted({one["learning_rate"] for one in records})
    wanted = set(planned) or set(grid)
    steps = " or ".join(dict.fromkeys(f"{one['steps']:,}" for one in records if "steps" in one)) or "no"
    table = Table(
        "Search of learning rates",
        ["model", *(f"{rate:g}" for rate in grid), "chosen"],
        notes=[
            f"Validation loss in nats after {steps} steps at each rate of one grid, the same for all models. The rate "
            "of the lowest loss is chosen."
        ],
    )
    if others := [f"{rate:g}" for rate in grid if rate not in wanted]:
        table.notes.append(f"Not of this grid, tried before, and never chosen: {', '.join(others)}.")
    at_edge, stuck = [], []
    for label in dict.fromkeys(one["label"] for one in records):
        by_rate = {one["learning_rate"]: one for one in records if one["label"] == label}
        losses = {rate: _loss(one) for rate, one in by_rate.items()}
        for column, rate in enumerate(grid, start=1):
            if rate in by_rate:
                table.sources[len(table.rows), column] = (by_rate[rate]["file"],)
        searched = wanted & losses.keys()
        best = min(searched or losses, key=lambda rate: (losses[rate], rate))
        if searched < wanted:
            chosen = "not finished"
        elif not math.isfinite(losses[best]):
            chosen = "–"
        else:
            chosen = f"{best:g}"
            if best in (min(losses), max(losses)) and len(losses) > 1:
                chosen += ", at the edge"
                at_edge.append(label)
            if losses[best] > unigram_of(by_rate[best]) - HARDLY:
                stuck.append(label)
        table.rows.append([label, *(_shown(losses.get(rate)) for rate in grid), chosen])
    if at_edge:
        table.notes.append(
            f"At the edge of the grid, a better rate may lie beyond it, and a comparison is not quite fair: "
            f"{', '.join(at_edge)}."
        )
    if stuck:
        table.notes.append(
            f"Less than {HARDLY} nats below what word frequencies give at every rate, these had learnt hardly more "
            f"when the search ended, and their rate is little more than chance: {', '.join(stuck)}."
        )
    return table


def rates_of_runs(found: Gathered) -> dict[str, float] | None:
    """The learning rate of every run by its file; None where none were searched."""
    if not found["rates"]:
        return None
    runs = (*found["pretraining"], *found["variants"])
    return {run["file"]: run["recipe"]["optimizer"]["learning_rate"] for run in runs}


def _loss(record: Record) -> float:
    loss = record.get("validation_loss")
    return loss if loss is not None and math.isfinite(loss) and "diverged" not in record else math.inf


def _shown(loss: float | None) -> str:
    return "–" if loss is None else f"{loss:.3f}" if math.isfinite(loss) else "diverged"
