"""Records as charts: loss over tokens, scores under noise, time against arithmetic, the spectrum of c = dq∘dk."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from triune.benchmarks.paper import FIGURE_3, TABLE_5, TABLE_5_LEVELS
from triune.evaluation.comparing import ONE_MATRIX, REFERENCE
from triune.report.charts import Bar, Chart, Point, Series, as_count, as_percent, bar_chart, line_chart
from triune.report.gather import Gathered
from triune.report.noise import GAUSSIAN, KIND_TITLES
from triune.report.pretraining import by_loss
from triune.report.tables import Table
from triune.report.unigram import unigram_of

Record = dict[str, Any]

_BESIDE_VARIANTS = (REFERENCE, *ONE_MATRIX)


def _numbers(found: Gathered) -> dict[str, int]:
    return {label: number for number, label in enumerate(found.models)}


def loss_chart(runs: Sequence[Record], found: Gathered) -> Chart:
    """Figure 2: training as lines, validation as dashes with marks."""
    numbers = _numbers(found)
    several = len({run["label"] for run in runs}) < len(runs)
    series = []
    for run in runs:
        name = _name(run, several)
        for key, style, what in (("loss", "line", "training"), ("validation_loss", "dashed", "validation")):
            if points := _curve(run, key):
                series.append(Series(numbers[run["label"]], f"{name}, {what}", points, style))
    return line_chart(
        "chart-figure-2",
        "Pre-training loss",
        series,
        ("tokens seen", "masked-LM loss (nats)"),
        (as_count, lambda value: f"{value:.3g}"),
        level=(unigram_of(runs[0]), "word frequencies alone"),
        caption="Lines: training. Dashes with marks: validation. Dotted: what word frequencies alone would reach.",
    )


def loss_table(runs: Sequence[Record]) -> Table:
    """The validation curve in figures."""
    several = len({run["label"] for run in runs}) < len(runs)
    table = Table("Validation loss by tokens seen", ["tokens seen"], text_columns=0)
    curves = [
        {row["tokens"]: row["validation_loss"] for row in run["metrics"] if "validation_loss" in row} for run in runs
    ]
    steps = sorted({tokens for curve in curves for tokens in curve})
    table.rows = [[f"{tokens:,}"] for tokens in steps]
    for run, curve in zip(runs, curves, strict=True):
        table.columns.append(_name(run, several))
        for number, tokens in enumerate(steps):
            if tokens in curve and run.get("file"):
                table.sources[number, len(table.columns) - 1] = (run["file"],)
            table.rows[number].append(f"{curve[tokens]:.3f}" if tokens in curve else "–")
    return table


def variant_charts(variants: Sequence[Record], found: Gathered) -> list[Chart]:
    """The validation loss of each variant, the lowest first, between those of standard and shared attention.

    Where there are curves of both, of as many tokens. One that is compared with another variant has its curve too.
    """
    numbers = _numbers(found)
    against = {one["name"]: one.get("against") for record in found["ablations"] for one in record["variants"]}
    charts: list[Chart] = []
    for label, runs in by_loss(variants).items():
        seeds = {run["seed"] for run in runs}
        beside = [
            one
            for one in found["pretraining"]
            if one["operator"] in _BESIDE_VARIANTS and one["seed"] in seeds and one["tokens"] == runs[0]["tokens"]
        ]
        if not beside or all(len(_curve(run)) < 2 for run in runs):
            continue
        several = len(seeds) > 1
        series = [Series(numbers[one["label"]], _name(one, several), _curve(one)) for one in beside]
        counterpart = [one for one in variants if one["label"] == against.get(label) and one["seed"] in seeds]
        series += [Series(len(numbers), _name(one, several), _curve(one)) for one in counterpart]
        series += [Series(len(numbers), _name(run, several), _curve(run), "marked") for run in runs]
        chart = line_chart(
            f"chart-variant-{len(charts)}",
            label,
            series,
            ("tokens seen", "validation loss (nats)"),
            (as_count, lambda value: f"{value:.3g}"),
            small=True,
        )
        known = [number for number in chart.models if number < len(numbers)]  # the variant is in the title
        charts.append(replace(chart, models=known))
    return charts


def _name(run: Record, with_seed: bool) -> str:
    return f"{run['label']}, seed {run['seed']}" if with_seed else str(run["label"])


def _curve(run: Record, key: str = "validation_loss") -> list[Point]:
    return [(float(row["tokens"]), float(row[key])) for row in run["metrics"] if key in row]


def noise_charts(records: Sequence[Record], found: Gathered) -> list[Chart]:
    """For each task the curve of every kind of noise; Gaussian first, with the paper's where it has one."""
    tasks = {record["task"]: record["task_title"] for record in records}
    order = list(KIND_TITLES)
    kinds = list(dict.fromkeys(kind for record in records for kind in record["curves"]))
    kinds.sort(key=lambda kind: order.index(kind) if kind in order else len(order))
    charts = []
    for place, kind in enumerate(kinds):
        for number, (task, title) in enumerate(tasks.items()):
            ours = [one for one in records if one["task"] == task and one["curves"].get(kind)]
            if ours:
                series = _noise_series(ours, kind, found)
                if kind == GAUSSIAN and task in TABLE_5:
                    series += _paper_series(task, found)
                charts.append(
                    line_chart(
                        f"chart-noise-{place}-{number}",
                        f"{title}: {KIND_TITLES.get(kind, kind)}",
                        series,
                        ("noise" if kind == GAUSSIAN else "rate", ours[0]["metric_title"]),
                        (as_percent, lambda value: f"{value:.4g}"),
                        small=True,
                    )
                )
    return charts


def _noise_series(records: Sequence[Record], kind: str, found: Gathered) -> list[Series]:
    """The mean over seeds of the mean over draws, at each level."""
    numbers = _numbers(found)
    series = []
    for model in dict.fromkeys(one["model"] for one in records):
        levels: dict[float, list[float]] = {}
        for one in records:
            if one["model"] == model:
                for point in one["curves"][kind]:
                    levels.setdefault(100.0 * point["level"], []).append(mean(point["scores"]))
        points = [(level, mean(scores)) for level, scores in sorted(levels.items())]
        series.append(Series(numbers[model], model, points, "marked"))
    return series


def _paper_series(task: str, found: Gathered) -> list[Series]:
    """The paper's curves, in the colour of the first model of that operator."""
    series = []
    for operator, scores in TABLE_5[task].items():
        label = next((label for label, its in found.models.items() if its == operator), None)
        if label is not None:
            points = [(100.0 * level, value) for level, value in zip(TABLE_5_LEVELS, scores, strict=True)]
            series.append(Series(_numbers(found)[label], f"{operator}, paper", points, "paper"))
    return series


def time_chart(records: Sequence[Record], found: Gathered) -> Chart:
    """Figure 3: an epoch's time in percent of the reference's, with the bound that arithmetic sets."""
    numbers = _numbers(found)
    order = list(FIGURE_3)
    groups = []
    for record in sorted(records, key=lambda one: order.index(one["task"]) if one["task"] in order else len(order)):
        saved = FIGURE_3.get(record["task"])
        printed = {} if saved is None else {"shared": 100.0 - saved}
        bars = [
            Bar(
                numbers[one["model"]],
                one["model"],
                100.0 * one["ratio"],
                None if one["model"] == record["reference"] else 100.0 * one["flop_ratio"],
                printed.get(one["operator"]),
            )
            for one in sorted(record["contestants"], key=lambda one: numbers[one["model"]])
        ]
        groups.append((record["task_title"], bars))
    references = " or ".join(dict.fromkeys(record["reference"] for record in records))
    return bar_chart(
        "chart-figure-3",
        "Time of an epoch",
        groups,
        f"time of an epoch, in percent of {references}",
        lambda value: f"{value:.0f} %",
        caption="Bars: measured. Line across a bar: what its arithmetic alone would take. Circle: the paper's figure.",
    )


def spectrum_charts(records: Sequence[Record], found: Gathered) -> list[Chart]:
    """The entries of c = dq∘dk in ascending order, a chart a layer, for the models that have them."""
    numbers = _numbers(found)
    by_layer: dict[int, list[Series]] = {}
    for record in records:
        for layer in record["layers"]:
            if layer["score_scale"] and layer["score_scale"]["sorted"]:
                values = _thinned(layer["score_scale"]["sorted"])
                by_layer.setdefault(layer["layer"], []).append(
                    Series(numbers[record["model"]], record["model"], values)
                )
    return [
        line_chart(
            f"chart-spectrum-{layer}",
            f"Layer {layer}: entries of c = dq∘dk",
            series,
            ("entries", "c (below 0: repels)"),
            (as_percent, lambda value: f"{value:.3g}"),
            level=(0.0, ""),
            small=True,
        )
        for layer, series in sorted(by_layer.items())
    ]


def _thinned(values: list[float], most: int = 128) -> list[tuple[float, float]]:
    """At most so many points, evenly spread over the whole; the ends are kept."""
    last = len(values) - 1
    count = min(most, len(values))
    places = [round(number * last / max(1, count - 1)) for number in range(count)]
    return [(round(100.0 * place / max(1, last), 2), float(values[place])) for place in places]
