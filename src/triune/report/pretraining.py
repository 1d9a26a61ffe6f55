"""The table that goes with Figure 2."""

from collections.abc import Sequence
from pathlib import Path

from triune.report.tables import Table
from triune.training.run_folder import recipe_of, summary_of


def pretraining_table(runs: Sequence[Path]) -> Table:
    summaries = [summary_of(run) for run in runs]
    seeds = {recipe_of(run).training.seed for run in runs}
    table = Table(
        "Pre-training (Figure 2)",
        ["operator", "parameters", "tokens", "training loss", "validation loss", "below unigram", "seconds"],
        notes=[
            f"Unigram entropy of the text: {summaries[0]['unigram_entropy']:.3f} nats; a model that knows only word "
            "frequencies cannot go below it. Same data order, masks and recipe for all; "
            f"seed {', '.join(map(str, sorted(seeds)))}: one run each shows no significance."
        ],
    )
    for run in runs:
        model = recipe_of(run).model
        if model.operator_settings:
            said = ", ".join(f"{name} {value}" for name, value in model.operator_settings.items())
            table.notes.append(f"{model.operator}: {said}.")
    for summary in summaries:
        table.rows.append(
            [
                summary["operator"],
                f"{summary['parameters']:,}",
                f"{summary['tokens']:,}",
                f"{summary['train_loss']:.3f}",
                f"{summary['validation_loss']:.3f}",
                f"{summary['unigram_entropy'] - summary['validation_loss']:.3f}",
                f"{summary['seconds']:.0f}",
            ]
        )
    return table
