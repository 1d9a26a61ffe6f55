import json
import xml.etree.ElementTree as ElementTree

import pytest

from triune.report.charts import Bar, Series, as_count, bar_chart, line_chart, ticks
from triune.report.colours import COLOURS, CONTRAST, DARK, LIGHT, contrast, palette

PLAIN = (str, str)


@pytest.mark.parametrize(
    ("low", "high", "count", "expected"),
    [
        (0, 10, 5, [0, 2, 4, 6, 8, 10]),
        (1.29, 6.05, 6, [1, 2, 3, 4, 5, 6, 7]),
        (68.2, 90.9, 4, [60, 70, 80, 90, 100]),
        (5, 5, 4, [4.5, 4.75, 5, 5.25, 5.5]),
        (float("nan"), 1, 2, [-0.5, 0, 0.5]),
    ],
)
def test_ticks_are_round_and_enclose_the_range(low, high, count, expected):
    assert ticks(low, high, count) == expected


def test_lines_are_where_their_values_are_and_can_be_read_off():
    points = [(0.0, 0.0), (1.0, float("nan")), (2.0, 4.0)]
    chart = line_chart("c", "Loss", [Series(3, "<b>", points, "dashed")], ("x", "y"), PLAIN, level=(4.0, "top"))
    tree = ElementTree.fromstring(chart.svg)
    group = next(one for one in tree.iter("g"))
    assert group.get("data-series") == "3"
    assert group.get("data-name") == "<b>"
    read = json.loads(group.get("data-points"))
    assert [point[2:] for point in read] == [["0.0", "0.0"], ["2.0", "4.0"]]  # what is no number is left out
    (x0, y0), (x1, y1) = (point[:2] for point in read)
    assert (x0, x1) == (54, 596)
    assert y0 > y1
    assert group.find("path").get("d") == f"M{x0:g} {y0:g}L{x1:g} {y1:g}"
    assert len(group.findall("polygon")) == 2
    level = next(one for one in tree.iter("line") if one.get("class") == "level")
    assert float(level.get("y1")) == y1
    assert tree.find("title").text == "Loss"
    assert chart.models == [3]


def test_a_chart_of_nothing_is_empty_and_no_error():
    chart = line_chart("c", "Loss", [Series(0, "a", [(1.0, float("inf"))])], ("x", "y"), PLAIN)
    assert chart.models == []


def test_bars_have_their_bound_and_the_papers_figure():
    bars = [Bar(0, "standard", 100.0), Bar(1, "shared", 75.0, bound=90.0, paper=70.0)]
    tree = ElementTree.fromstring(bar_chart("c", "Time", [("CoLA", bars)], "percent", lambda value: f"{value:g}").svg)
    groups = list(tree.iter("g"))
    heights = [float(group.find("rect").get("height")) for group in groups]
    assert heights[1] / heights[0] == pytest.approx(0.75, abs=0.01)
    top, base = (float(groups[0].find("rect").get("y")), heights[0] + float(groups[0].find("rect").get("y")))
    bound = float(groups[1].find("line").get("y1"))
    assert (base - bound) / (base - top) == pytest.approx(0.9, abs=0.01)
    assert json.loads(groups[1].get("data-points"))[0][2:] == ["CoLA", "75, by arithmetic 90, paper 70"]


def test_counts_are_short():
    assert [as_count(value) for value in (0, 950, 20480, 1126400, 5.4e10)] == ["0", "950", "20.5 k", "1.13 M", "54 B"]


def test_colours_can_be_seen_on_both_grounds_and_differ():
    models = {**{name: name for name in COLOURS}, "second": "shared", "mine": "own", "more": "own"}
    chosen = palette(models)
    for ground, colours in zip((LIGHT, DARK), zip(*chosen, strict=True), strict=True):
        assert all(contrast(colour, ground) >= CONTRAST[ground] for colour in colours)
        assert len(set(colours)) == len(models)
    assert chosen[0][0].lower() == COLOURS["standard"].lower()  # strong enough as it is
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
