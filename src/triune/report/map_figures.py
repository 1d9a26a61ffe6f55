"""Attention maps of one sentence: a row for each layer, the heads of one model or of two beside each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triune.report.drawing import coloured, plain, pyplot, save_figure

Maps = dict[str, Any]  # of one model: model, operator, tokens, layers[layer][head][from][to]

MOST_TOKENS = 40  # more are too small to read; the JSON beside the figure has them all
LONGEST_TOKEN = 14  # characters
MOST_PIXELS = 8_000
# Inches: a token, between heads, between models, and the edges of the figure.
TOKEN, GAP, BETWEEN, LEFT, RIGHT, TOP, BOTTOM = 0.13, 0.1, 0.35, 0.42, 0.12, 0.75, 0.72


class _Group:
    """The maps of one model: their tokens, and the room they take."""

    def __init__(self, maps: Maps, colour: str) -> None:
        self.maps = maps
        self.colour = colour
        self.tokens = [_short(token) for token in maps["tokens"][:MOST_TOKENS]]
        self.heads = len(maps["layers"][0])
        self.side = max(1.2, TOKEN * len(self.tokens))
        self.margin = 0.1 + 0.065 * max(len(token) for token in self.tokens)
        self.width = self.margin + self.heads * self.side + (self.heads - 1) * GAP


def draw_maps(models: Sequence[Maps], out: Path) -> None:
    """A row of a map is a token that looks, a column one that is looked at; darker is more weight."""
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    groups = [_Group(maps, colour) for maps, colour in coloured(list(models))]
    layers = max(len(maps["layers"]) for maps in models)
    row = max(group.side for group in groups)
    floor = TOP + layers * row + (layers - 1) * GAP + max(group.margin for group in groups)
    width = LEFT + sum(group.width for group in groups) + BETWEEN * (len(groups) - 1) + RIGHT
    height = floor + BOTTOM
    figure = pyplot().figure(figsize=(width, height))
    norm = PowerNorm(0.5, vmin=0, vmax=1)  # most weights are small, and would all be white on a plain scale
    left = LEFT
    for group in groups:
        shades = LinearSegmentedColormap.from_list("weights", ["white", group.colour, "black"])
        first = left + group.margin
        figure.text(
            first / width,
            1 - 0.34 / height,
            f"{plain(group.maps['model'])}{_part(group.maps)}",
            fontsize=12,
            fontweight="bold",
            color=group.colour,
        )
        for layer, heads in enumerate(group.maps["layers"]):
            top = TOP + layer * (row + GAP)
            is_last = layer == len(group.maps["layers"]) - 1
            for head, weights in enumerate(heads):
                place = first + head * (group.side + GAP)
                axes = _axes(figure, place, top, group.side, group.side)
                count = len(group.tokens)
                image = axes.imshow([line[:count] for line in weights[:count]], cmap=shades, norm=norm, aspect="auto")
                _label(axes, group.tokens, beside=head == 0, below=is_last)
                if layer == 0:
                    axes.set_title(f"head {head}", fontsize=9)
        _draw_scale(figure, image, _axes(figure, first, floor + 0.12, min(2.4, group.width - group.margin), 0.1))
        left += group.width + BETWEEN
    for layer in range(layers):
        middle = TOP + layer * (row + GAP) + row / 2
        figure.text(0.14 / width, 1 - middle / height, f"layer {layer}", rotation=90, va="center", fontsize=10)
    rule = "row: the token that looks · column: the token it looks at · darker: more weight"
    figure.text((LEFT + groups[0].margin) / width, 0.12 / height, rule, fontsize=8, color="0.35")
    save_figure(figure, out, dpi=min(150, MOST_PIXELS / max(width, height)))


def _axes(figure: Any, left: float, top: float, width: float, height: float) -> Any:
    """A place in inches from the upper left corner."""
    whole, high = figure.get_size_inches()
    return figure.add_axes((left / whole, 1 - (top + height) / high, width / whole, height / high))


def _label(axes: Any, tokens: list[str], beside: bool, below: bool) -> None:
    axes.set_xticks(range(len(tokens)) if below else [], tokens if below else [], rotation=90, fontsize=7.5)
    axes.set_yticks(range(len(tokens)) if beside else [], tokens if beside else [], fontsize=7.5)
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_color("0.75")


def _draw_scale(figure: Any, image: Any, axes: Any) -> None:
    bar = figure.colorbar(image, cax=axes, orientation="horizontal", ticks=[0, 0.05, 0.25, 0.5, 1])
    bar.ax.set_xticklabels(["0", "5 %", "25 %", "50 %", "100 %"], fontsize=7.5)
    bar.ax.tick_params(length=2)
    bar.outline.set_visible(False)


def _short(token: str) -> str:
    return plain(token if len(token) <= LONGEST_TOKEN else token[: LONGEST_TOKEN - 1] + "…")


def _part(maps: Maps) -> str:
    count = len(maps["tokens"])
    return f" (first {MOST_TOKENS} of {count} tokens)" if count > MOST_TOKENS else ""
