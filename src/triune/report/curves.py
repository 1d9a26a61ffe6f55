"""Figure 2: training and validation loss of several runs in one plot."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from triune.errors import TriuneError, one_line
from triune.presence import SUMMARY
from triune.report.colours import palette
from triune.report.drawing import plain, pyplot, save_figure
from triune.report.unigram import unigram_of
from triune.training.run_folder import METRICS, metrics_of, recipe_of, summary_of

_LINES = {"loss": ("-", "training"), "validation_loss": ("o--", "validation")}


def draw_curves(runs: Sequence[Path], out: Path) -> None:
    """Write the figure in the format that the suffix of `out` names (svg, png, pdf)."""
    if out.suffix not in (".svg", ".png", ".pdf"):
        raise TriuneError(f"'{out}': figures are written as .svg, .png or .pdf")
    curves = {run: _points(run) for run in dict.fromkeys(run.resolve() for run in runs)}
    operators = {run: recipe_of(run).model.operator for run in curves}
    labels = _labels(operators)
    levels = [level for run in operators if (level := _unigram(run)) is not None]
    figure, axes = pyplot().subplots(figsize=(7.5, 4.5), layout="constrained")
    for run, colour in zip(operators, _colours({labels[run]: operators[run] for run in operators}), strict=True):
        for field, points in curves[run].items():
            style, what = _LINES[field]
            label = plain(f"{labels[run]}, {what}")
            axes.plot(*zip(*points, strict=True), style, color=colour, markersize=3, lw=1.2, label=label)
    if levels:
        axes.axhline(levels[-1], color="0.5", lw=0.8, ls=":", label="word frequencies alone")
    axes.set_xlabel("tokens seen")
    axes.set_ylabel("masked-LM loss (nats)")
    axes.legend(fontsize="small", ncols=2)
    axes.grid(alpha=0.25)
    save_figure(figure, out)


def _labels(operators: dict[Path, str]) -> dict[Path, str]:
    """The operator, and as much of the path's end as tells a run from the others; a folder named so adds nothing."""

    def label(run: Path, parts: int) -> str:
        name = "/".join(run.parts[-parts:])
        return operators[run] if name == operators[run] else f"{operators[run]} ({name})"

    def alone(run: Path, parts: int) -> bool:
        return all(label(run, parts) != label(other, parts) for other in operators if other != run)

    return {run: label(run, next(n for n in range(1, len(run.parts) + 1) if alone(run, n))) for run in operators}


def _colours(labels: dict[str, str]) -> list[Any]:
    colours: list[Any] = [on_white for on_white, _ in palette(labels)]
    if len(set(colours)) == len(colours):
        return colours
    rainbow = pyplot().get_cmap("turbo")  # of many runs: the operators' own colours would come twice
    return [rainbow((place + 0.5) / len(colours)) for place in range(len(colours))]


def _points(run: Path) -> dict[str, list[tuple[float, float]]]:
    with _naming(run / METRICS):
        rows = metrics_of(run)
        found = {field: [(float(row["tokens"]), float(row[field])) for row in rows if field in row] for field in _LINES}
    return {field: points for field, points in found.items() if points}


def _unigram(run: Path) -> float | None:
    """None while a run is under way."""
    if not (run / SUMMARY).is_file():
        return None
    with _naming(run / SUMMARY):
        return unigram_of(summary_of(run))


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Whatever is wrong in the form of a file, as one line with its name."""
    try:
        yield
    except TriuneError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TriuneError(f"'{file}' is damaged ({one_line(error)}): leave this run out, or run it again") from error
