"""Figure 2: training and validation loss of several runs in one plot."""

from collections.abc import Sequence
from pathlib import Path

from triune.errors import TriuneError
from triune.report.colours import COLOURS
from triune.report.drawing import pyplot, save_figure
from triune.report.unigram import unigram_of
from triune.training.run_folder import metrics_of, recipe_of, summary_of


def draw_curves(runs: Sequence[Path], out: Path) -> None:
    """Write the figure in the format that the suffix of `out` names (svg, png, pdf)."""
    if out.suffix not in (".svg", ".png", ".pdf"):
        raise TriuneError(f"'{out}': figures are written as .svg, .png or .pdf")
    figure, axes = pyplot().subplots(figsize=(7.5, 4.5), layout="constrained")
    unigram = None
    for number, run in enumerate(runs):
        rows = metrics_of(run)
        operator = recipe_of(run).model.operator
        colour = COLOURS.get(operator, f"C{number}")
        label = operator if run.name == operator else f"{operator} ({run.name})"
        for field, style, what in (("loss", "-", "training"), ("validation_loss", "o--", "validation")):
            points = [(row["tokens"], row[field]) for row in rows if field in row]
            if points:
                axes.plot(
                    *zip(*points, strict=True), style, color=colour, markersize=3, lw=1.2, label=f"{label}, {what}"
                )
        if (run / "summary.json").is_file():
            unigram = unigram_of(summary_of(run))
    if unigram is not None:
        axes.axhline(unigram, color="0.5", lw=0.8, ls=":", label="word frequencies alone")
    axes.set_xlabel("tokens seen")
    axes.set_ylabel("masked-LM loss (nats)")
    axes.legend(fontsize="small", ncols=2)
    axes.grid(alpha=0.25)
    save_figure(figure, out)
