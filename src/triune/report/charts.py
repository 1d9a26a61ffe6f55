"""Line and bar charts as SVG, made here so that the page shows its figures without any script.

A series carries the number of its model (class `s0`, `s1`, …), by which the page colours, toggles and reads it off.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from markupsafe import Markup

Format = Callable[[float], str]
Point = tuple[float, float]


# Corners of the marks around a point: a circle, a square, a triangle, a diamond.
_SHAPES: tuple[tuple[tuple[int, int], ...], ...] = (
    (),
    ((-3, -3), (3, -3), (3, 3), (-3, 3)),
    ((0, -4), (4, 3), (-4, 3)),
    ((0, -4), (4, 0), (0, 4), (-4, 0)),
)


@dataclass
class Series:
    model: int  # its number among the page's models
    name: str  # as the readout calls it
    points: list[Point]
    style: str = "line"  # line, marked (with marks), dashed (with marks), or paper (dotted, with hollow marks)


@dataclass
class Bar:
    model: int
    name: str
    value: float
    bound: float | None = None  # a line across the bar
    paper: float | None = None  # a hollow mark


@dataclass
class Chart:
    id: str
    title: str
    svg: Markup
    models: list[int]
    caption: str = ""
    small: bool = False  # one of several, which have one legend


@dataclass
class Axes:
    """The area of a plot: where values are on it, its ticks and their labels."""

    width: int
    height: int
    x_range: Point
    y_range: Point
    left: int = 54
    right: int = 24
    top: int = 30
    bottom: int = 46
    drawn: list[Markup] = field(default_factory=list)

    def x(self, value: float) -> float:
        return self._place(value, self.x_range, self.left, self.width - self.right)

    def y(self, value: float) -> float:
        return self._place(value, self.y_range, self.height - self.bottom, self.top)

    @staticmethod
    def _place(value: float, span: Point, first: float, last: float) -> float:
        share = (value - span[0]) / ((span[1] - span[0]) or 1.0)
        return round(first + share * (last - first), 1)

    def add(self, template: str, *values: object) -> None:
        self.drawn.append(Markup(template).format(*values))

    def draw_y(self, ticks: Sequence[float], shown: Format, label: str) -> None:
        for tick in ticks:
            y = self.y(tick)
            self.add('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>', self.left, self.width - self.right, y, y)
            self.add('<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>', self.left - 7, y + 4, shown(tick))
        self.add('<text class="label" x="{}" y="{}">{}</text>', 4, 15, label)

    def draw_x(self, ticks: Sequence[float], shown: Format, label: str) -> None:
        base = self.height - self.bottom
        self.add('<line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>', self.left, self.width - self.right, base, base)
        for tick in ticks:
            self.add(
                '<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>', self.x(tick), base + 18, shown(tick)
            )
        self.add(
            '<text class="label" x="{}" y="{}" text-anchor="end">{}</text>', self.width - self.right, base + 38, label
        )

    def svg(self, title: str, description: str, kind: str) -> Markup:
        inside = Markup("").join(self.drawn)
        return Markup(
            '<svg class="chart {}" viewBox="0 0 {} {}" role="img" aria-label="{}">'
            "<title>{}</title><desc>{}</desc>{}</svg>"
        ).format(kind, self.width, self.height, f"{title}. {description}", title, description, inside)


def line_chart(
    identity: str,
    title: str,
    series: Sequence[Series],
    labels: tuple[str, str],
    shown: tuple[Format, Format],
    level: tuple[float, str] | None = None,
    small: bool = False,
    caption: str = "",
) -> Chart:
    """Lines over a common x; `level` is a horizontal line with its name."""
    series = [replace(one, points=[p for p in one.points if math.isfinite(p[0] + p[1])]) for one in series]
    series = [one for one in series if one.points]
    xs = [x for one in series for x, _ in one.points] or [0.0]
    ys = [y for one in series for _, y in one.points] + ([level[0]] if level else [])
    ys = ys or [0.0]
    y_ticks = ticks(min(ys), max(ys), 4 if small else 6)
    width, height = (340, 230) if small else (620, 360)
    axes = Axes(width, height, (min(xs), max(xs)), (y_ticks[0], y_ticks[-1]))
    axes.draw_y(y_ticks, shown[1], labels[1])
    x_ticks = [tick for tick in ticks(min(xs), max(xs), 4 if small else 6) if min(xs) <= tick <= max(xs)]
    axes.draw_x(x_ticks, shown[0], labels[0])
    if level:
        y = axes.y(level[0])
        axes.add('<line class="level" x1="{}" x2="{}" y1="{}" y2="{}"/>', axes.left, width - axes.right, y, y)
        axes.add('<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>', width - axes.right, y - 6, level[1])
    for one in series:
        _draw_series(axes, one, shown)
    axes.add('<line class="guide" x1="0" x2="0" y1="{}" y2="{}"/>', axes.top, height - axes.bottom)
    names = ", ".join(one.name for one in series)
    description = f"Lines: {names}. {labels[1]} over {labels[0]}."
    models = sorted({one.model for one in series})
    svg = axes.svg(title, description, "small" if small else "wide")
    return Chart(identity, title, svg, models, caption, small)


def _draw_series(axes: Axes, one: Series, shown: tuple[Format, Format]) -> None:
    placed = [(axes.x(x), axes.y(y)) for x, y in one.points]
    read_off = [[px, py, shown[0](x), shown[1](y)] for (px, py), (x, y) in zip(placed, one.points, strict=True)]
    path = "M" + "L".join(f"{x:g} {y:g}" for x, y in placed)
    marks = Markup("") if one.style == "line" else Markup("").join(_marker(one.model, x, y) for x, y in placed)
    axes.add(
        '<g class="series {} s{}" data-series="{}" data-name="{}" data-points="{}"><path d="{}"/>{}</g>',
        one.style,
        one.model,
        one.model,
        one.name,
        json.dumps(read_off, ensure_ascii=False),
        path,
        marks,
    )


def _marker(model: int, x: float, y: float) -> Markup:
    """Shapes differ too: colour is not all that tells models apart."""
    corners = _SHAPES[model % len(_SHAPES)]
    if not corners:
        return Markup('<circle class="mark" cx="{}" cy="{}" r="3"/>').format(x, y)
    points = " ".join(f"{x + dx:g},{y + dy:g}" for dx, dy in corners)
    return Markup('<polygon class="mark" points="{}"/>').format(points)


def bar_chart(
    identity: str,
    title: str,
    groups: Sequence[tuple[str, Sequence[Bar]]],
    label: str,
    shown: Format,
    caption: str = "",
) -> Chart:
    """Groups of bars from zero, each with its bound as a line across it and the paper's figure as a hollow mark."""
    values = [v for _, bars in groups for bar in bars for v in (bar.value, bar.bound, bar.paper) if v is not None]
    y_ticks = ticks(0.0, max(values), 5)
    most = max(len(bars) for _, bars in groups)
    width = max(620, 54 + 14 + len(groups) * (most * 18 + 22))
    axes = Axes(width, 320, (0.0, float(len(groups))), (0.0, y_ticks[-1]), bottom=28)
    axes.draw_y(y_ticks, shown, label)
    axes.draw_x([], shown, "")
    base, room = axes.y(0.0), (axes.width - axes.left - axes.right) / len(groups)
    thick = min(26.0, (room - 14) / most)
    for number, (name, bars) in enumerate(groups):
        middle = axes.x(number + 0.5)
        axes.add('<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>', middle, base + 18, name)
        for place, bar in enumerate(bars):
            left = round(middle + (place - len(bars) / 2) * thick, 1)
            _draw_bar(axes, bar, (left, round(thick - 2, 1)), (middle, name), shown)
    axes.add('<line class="guide" x1="0" x2="0" y1="{}" y2="{}"/>', axes.top, base)
    models = sorted({bar.model for _, bars in groups for bar in bars})
    description = f"Bars for {', '.join(name for name, _ in groups)}: {label}."
    return Chart(identity, title, axes.svg(title, description, "wide"), models, caption)


def _draw_bar(axes: Axes, bar: Bar, where: tuple[float, float], group: tuple[float, str], shown: Format) -> None:
    (left, thick), top = where, axes.y(bar.value)
    extra = [Markup("")]
    said = shown(bar.value)
    if bar.bound is not None:
        y = axes.y(bar.bound)
        extra.append(
            Markup('<line class="bound" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(left - 1, left + thick + 1, y, y)
        )
        said += f", by arithmetic {shown(bar.bound)}"
    if bar.paper is not None:
        extra.append(
            Markup('<circle class="printed" cx="{}" cy="{}" r="4"/>').format(left + thick / 2, axes.y(bar.paper))
        )
        said += f", paper {shown(bar.paper)}"
    axes.add(
        '<g class="bar s{}" data-series="{}" data-name="{}" data-points="{}">'
        '<rect x="{}" y="{}" width="{}" height="{}"/>{}</g>',
        bar.model,
        bar.model,
        bar.name,
        json.dumps([[group[0], top, group[1], said]], ensure_ascii=False),
        left,
        top,
        thick,
        round(axes.y(0.0) - top, 1),
        Markup("").join(extra),
    )


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers that enclose the range: steps of 1, 2, 2.5 or 5 times a power of ten."""
    if not math.isfinite(low) or not math.isfinite(high) or high - low < 1e-12:
        middle = low if math.isfinite(low) else 0.0
        low, high = middle - 0.5, middle + 0.5
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def as_count(value: float) -> str:
    """1,200,000 → 1.2 M."""
    for size, unit in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"


def as_percent(value: float) -> str:
    return f"{value:.4g} %"
