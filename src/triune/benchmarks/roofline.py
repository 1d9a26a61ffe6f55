"""The roofline: arithmetic for each byte moved against FLOP/s, under the two ceilings that the same run measured."""

from pathlib import Path
from typing import Any

from triune.benchmarks.record import Result
from triune.benchmarks.tables import rate
from triune.evaluation.comparing import REFERENCE
from triune.report.colours import LIGHT, palette, readable
from triune.report.drawing import plain, pyplot, save_figure

_MARKS = "osD^vP"


def draw_roofline(record: dict[str, Any], out: Path) -> None:
    """A panel for each direction (one where there is none), a line for each contestant, a point for each shape."""
    measured = [one for one in record["results"] if one["failed"] is None]
    panels = list(dict.fromkeys(one.get("direction", "") for one in record["results"]))
    figure, grid = pyplot().subplots(
        1, len(panels), figsize=(1.5 + 5.5 * len(panels), 4.8), layout="constrained", sharey=True, squeeze=False
    )
    contestants = {one["contestant"]: one["operator"] for one in record["results"]}
    last_first = dict(reversed(contestants.items()))  # ours come last: an operator's own colour is for them
    colours = {name: light for name, (light, _) in zip(last_first, palette(last_first), strict=True)}
    ceilings = record["ceilings"]
    for axes, panel in zip(grid[0], panels, strict=True):
        shown = [one for one in measured if one.get("direction", "") == panel]
        _draw_ceilings(axes, ceilings, [one["flops"] / one["bytes"] for one in shown])
        for number, name in enumerate(contestants):
            points = [one for one in shown if one["contestant"] == name]
            places = [(one["flops"] / one["bytes"], one["flops_per_second"]) for one in points]
            if places:
                x, y = zip(*places, strict=True)
                axes.plot(x, y, marker=_MARKS[number % len(_MARKS)], color=colours[name], ms=5, lw=1, label=plain(name))
        _name_shapes(axes, shown)
        axes.set_title(plain(panel), fontsize="medium")
        axes.set_xlabel("FLOP for each byte moved")
        axes.grid(alpha=0.25)
    grid[0][0].set_ylabel("FLOP/s")
    ran = record["ran"]
    figure.suptitle(
        plain(f"{record['benchmark']}, {ran['device']}, torch {ran['versions']['torch']}"), fontsize="medium"
    )
    handles, labels = grid[0][0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)), fontsize="small")
    save_figure(figure, out)


def _draw_ceilings(axes: Any, ceilings: dict[str, float], intensities: list[float]) -> None:
    top, slope = ceilings["flops_per_second"], ceilings["bytes_per_second"]
    ridge = top / slope
    low, high = min([ridge, *intensities]) / 4, max([ridge, *intensities]) * 4
    grey = readable("#888888", LIGHT)
    axes.loglog([low, ridge, high], [slope * low, top, top], color=grey, lw=1.5)
    axes.set_xlim(low, high)
    axes.xaxis.set_minor_formatter("")  # powers of ten alone have room
    axes.annotate(
        f"matrix product {rate(top)}FLOP/s", (high, top), (-4, 4), "data", "offset points", ha="right", size=8
    )
    axes.annotate(f"copy {rate(slope)}B/s", (low, slope * low), (6, 0), "data", "offset points", va="bottom", size=8)


def _name_shapes(axes: Any, shown: list[Result]) -> None:
    """Once for each operator, since bytes are an operator's: above the highest point, or below the lowest."""
    named: dict[tuple[str, str], Result] = {}
    for one in shown:
        place = (one.get("shape", ""), one["operator"])
        sign = -1 if one["operator"] == REFERENCE else 1
        if place not in named or sign * (one["flops_per_second"] - named[place]["flops_per_second"]) > 0:
            named[place] = one
    for (name, operator), one in named.items():
        at = (one["flops"] / one["bytes"], one["flops_per_second"])
        offset, side = ((0, -6), "top") if operator == REFERENCE else ((0, 6), "bottom")
        axes.annotate(plain(name), at, offset, "data", "offset points", ha="center", va=side, size=7, color="0.3")
