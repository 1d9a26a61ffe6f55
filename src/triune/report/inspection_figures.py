"""Figures of what `triune inspect` found in weights and heads: the spectrum of c, and where heads look."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from triune.report.drawing import coloured, plain, pyplot, save_figure
from triune.report.inspection import in_order

Record = dict[str, Any]


def draw_spectrum(records: Sequence[Record], out: Path) -> bool:
    """c of each layer in ascending order; false, and nothing drawn, where no model has it."""
    models = [(record, colour) for record, colour in coloured(in_order(records)) if _spectra(record)]
    if not models:
        return False
    layers = max(len(record["layers"]) for record, _ in models)
    columns = min(4, layers)
    rows = -(-layers // columns)
    figure, grid = pyplot().subplots(
        rows,
        columns,
        figsize=(0.7 + 3.1 * columns, 0.8 + 2.6 * rows),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for number, axes in enumerate(grid.flat):
        if number < layers:
            _draw_layer(axes, number, models)
        else:
            axes.set_visible(False)
    low, high = grid[0, 0].get_ylim()
    grid[0, 0].set_ylim(low, high + 0.09 * len(models) * (high - low))  # room for a line of text on each model
    figure.get_layout_engine().set(w_pad=0.08)
    figure.supxlabel("entries of c = dq∘dk, in ascending order", fontsize=10)
    figure.supylabel("repels  ←  c  →  attracts", fontsize=10)
    save_figure(figure, out)
    return True


def draw_heads(records: Sequence[Record], out: Path) -> None:
    """A dot for each head: weight on the own token, and entropy; the line is the mean of a layer."""
    from matplotlib.ticker import PercentFormatter

    layers = max(len(record["layers"]) for record in records)
    figure, panels = pyplot().subplots(
        1, 2, figsize=(min(14.0, 7.0 + 0.6 * layers), 3.9), sharey=True, layout="constrained"
    )
    shown = {"own": "Weight on the own token", "entropy": "Entropy, as a share of the highest possible"}
    for axes, (field, title) in zip(panels, shown.items(), strict=True):
        for number, (record, colour) in enumerate(coloured(in_order(records))):
            # Beside each other, so that no model hides another.
            shift = 0.6 * ((number + 0.5) / len(records) - 0.5)
            places = [layer["layer"] + shift for layer in record["layers"]]
            values = [[head[field] for head in layer["heads"]] for layer in record["layers"]]
            for place, heads in zip(places, values, strict=True):
                axes.scatter([place] * len(heads), heads, s=28, color=colour, alpha=0.45, linewidths=0)
            means = [mean(heads) for heads in values]
            axes.plot(places, means, color=colour, lw=1, alpha=0.6)
            axes.plot(places, means, "_", color=colour, markersize=14, markeredgewidth=2.4)
            axes.plot([], [], "o", color=colour, markersize=5, label=plain(record["model"]))
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xticks(range(layers), [f"layer {layer}" if layers <= 4 else str(layer) for layer in range(layers)])
        axes.set_xlabel("" if layers <= 4 else "layer")
        axes.set_xlim(-0.5, layers - 0.5)
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
        axes.grid(axis="y", alpha=0.25)
        axes.tick_params(length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
    panels[0].plot([], [], "o", color="0.5", alpha=0.5, markersize=5, label="a head")
    panels[0].plot([], [], "_", color="0.5", markersize=14, markeredgewidth=2.4, label="mean of the layer")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(8, len(labels)), fontsize=9, frameon=False)
    save_figure(figure, out)


def _draw_layer(axes: Any, number: int, models: list[tuple[Record, str]]) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.axhline(0, color="0.35", lw=0.9)
    axes.set_title(f"layer {number}", fontsize=10, loc="left")
    here = [(_spectra(record)[number], record, colour) for record, colour in models if number in _spectra(record)]
    for line, (spectrum, record, colour) in enumerate(here):
        values = spectrum["sorted"]
        places = [(place + 0.5) / len(values) for place in range(len(values))]
        repels = [value < 0 for value in values]
        axes.plot(places, values, color=colour, lw=1.8, ls=(0, (3, 2)) if line else "-")  # the first shows through
        axes.fill_between(places, values, 0, where=repels, color=colour, alpha=0.18, linewidth=0)
        axes.annotate(
            f"{plain(record['model'])}: {100 * spectrum['negative_share']:.0f} % repels",
            (0.03, 0.96),
            xycoords="axes fraction",
            xytext=(0, -12 * line),
            textcoords="offset points",
            va="top",
            fontsize=9,
            color=colour,
        )
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    axes.grid(alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)


def _spectra(record: Record) -> dict[int, Record]:
    return {layer["layer"]: layer["score_scale"] for layer in record["layers"] if layer["score_scale"]}
