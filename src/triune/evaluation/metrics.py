"""Metrics by name, and the means over tasks that published tables use."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from triune.errors import TriuneError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Metric:
    name: str
    title: str
    kind: Literal["classes", "numbers"]  # what predictions and labels are
    parts: tuple[str, ...] = ()  # a metric with parts is the mean of them


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", "classes"),
        Metric("f1", "F1", "classes"),
        Metric("macro_f1", "macro F1", "classes"),
        Metric("matthews", "Matthews correlation", "classes"),
        Metric("pearson", "Pearson correlation", "numbers"),
        Metric("spearman", "Spearman correlation", "numbers"),
        Metric("accuracy_f1", "mean of accuracy and F1", "classes", ("accuracy", "f1")),
        Metric("pearson_spearman", "mean of Pearson and Spearman", "numbers", ("pearson", "spearman")),
    )
}


def metric_named(name: str) -> Metric:
    if name not in METRICS:
        raise TriuneError(f"no metric is called {name!r}: choose one of {', '.join(METRICS)}")
    return METRICS[name]


def score(name: str, predictions: Any, labels: Any) -> float:
    """One metric in percent. Where it is not defined (constant predictions or labels), correlations are 0."""
    metric = metric_named(name)
    predicted, true = checked(metric, predictions, "predictions"), checked(metric, labels, "labels")
    if predicted.ndim != 1 or predicted.shape != true.shape:
        raise TriuneError(f"{name}: {predicted.shape} predictions do not fit {true.shape} labels: give one for each")
    if metric.parts:
        return sum(score(part, predicted, true) for part in metric.parts) / len(metric.parts)
    return 100 * _plain(name, predicted, true)


def checked(metric: Metric, values: Any, what: str) -> Array:
    """The values as class ids or as numbers, or a line that says why they are neither."""
    array = np.asarray(values)
    if array.size == 0:
        raise TriuneError(f"{metric.name}: there are no {what}: nothing can be measured")
    if array.dtype.kind not in "biuf":
        raise TriuneError(f"{metric.name}: {what} are of type {array.dtype}: give numbers")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        count = int((~np.isfinite(array)).sum())
        raise TriuneError(f"{metric.name}: {count} of {array.size} {what} are not finite: the training has diverged")
    if metric.kind == "numbers":
        return array.astype(np.float64)
    classes = array.astype(np.int64)
    if not (classes == array).all():
        raise TriuneError(f"{metric.name}: {what} are not class ids: give whole numbers")
    if "f1" in (metric.name, *metric.parts) and not np.isin(classes, (0, 1)).all():
        raise TriuneError(f"{metric.name}: {what} hold other classes than 0 and 1: use macro_f1 for more than two")
    return classes


def _plain(name: str, predicted: Array, true: Array) -> float:
    from scipy import stats
    from sklearn import metrics

    if name == "accuracy":
        return float(metrics.accuracy_score(true, predicted))
    if name == "f1":
        return float(metrics.f1_score(true, predicted, labels=[1], average="macro", zero_division=0))
    if name == "macro_f1":
        return float(metrics.f1_score(true, predicted, average="macro", zero_division=0))
    if np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return 0.0
    if name == "matthews":
        return float(metrics.matthews_corrcoef(true, predicted))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        correlation = (stats.pearsonr if name == "pearson" else stats.spearmanr)(predicted, true).statistic
    return float(correlation) if np.isfinite(correlation) else 0.0


class Mean(NamedTuple):
    description: str
    cells: list[tuple[str, str]]  # task and metric
    mnli_once: bool  # mnli and mnli-mm enter as one task, their mean; otherwise each counts as a task


_ACCURATE = [(task, "accuracy") for task in ("sst2", "mnli", "mnli-mm", "qnli", "rte")]
_PAIRS = [("cola", "matthews"), ("mrpc", "accuracy_f1"), ("stsb", "pearson_spearman"), ("qqp", "accuracy_f1")]

MEANS: dict[str, Mean] = {
    "paper": Mean(
        "arXiv 2412.00359, Table 1: eight tasks, MNLI as the mean of m and mm. MRPC and QQP as means of accuracy and "
        "F1: that is what the table's baseline cells are, though its caption says accuracy",
        [*_PAIRS, *_ACCURATE],
        mnli_once=True,
    ),
    "paper-caption": Mean(
        "arXiv 2412.00359, Table 1, as its caption says: eight tasks, MNLI as the mean of m and mm, accuracy for MRPC "
        "and QQP",
        [("cola", "matthews"), ("mrpc", "accuracy"), ("stsb", "pearson_spearman"), ("qqp", "accuracy"), *_ACCURATE],
        mnli_once=True,
    ),
    "symmetric": Mean(
        "mcrts/ACL2024-SymmetricAttentionBert (arXiv 2406.06366): without WNLI, MNLI m and mm as two of nine cells, "
        "MRPC and QQP as means of accuracy and F1, STS-B as the mean of Pearson and Spearman",
        [*_PAIRS, *_ACCURATE],
        mnli_once=False,
    ),
    "glue": Mean(
        "GLUE leaderboard: nine tasks with WNLI, a task with two metrics enters as the mean of the two, MNLI as the "
        "mean of m and mm",
        [*_PAIRS, *_ACCURATE, ("wnli", "accuracy")],
        mnli_once=True,
    ),
    "bert": Mean(
        "BERT (arXiv 1810.04805), Table 1: without WNLI, F1 for MRPC and QQP, Spearman for STS-B, MNLI m and mm as two "
        "of nine cells (only so do its cells give the printed 79.6 and 82.1)",
        [("cola", "matthews"), ("mrpc", "f1"), ("stsb", "spearman"), ("qqp", "f1"), *_ACCURATE],
        mnli_once=False,
    ),
}

Scores = Mapping[str, Mapping[str, float]]


def mean_of(name: str, scores: Scores) -> float | None:
    """The mean that a published table uses, from our scores by task and metric; None where one is missing."""
    mean = _mean_named(name)
    total, weights = 0.0, 0.0
    for task, metric in mean.cells:
        value = _cell(scores, task, metric)
        if value is None:
            return None
        weight = 0.5 if mean.mnli_once and task in ("mnli", "mnli-mm") else 1.0
        total, weights = total + weight * value, weights + weight
    return total / weights


def missing_for(name: str, scores: Scores) -> list[str]:
    """What a mean still needs, as 'task (metric)'; empty when it can be told."""
    return [
        f"{task} ({METRICS[metric].title})"
        for task, metric in _mean_named(name).cells
        if _cell(scores, task, metric) is None
    ]


def _mean_named(name: str) -> Mean:
    if name not in MEANS:
        raise TriuneError(f"no mean is called {name!r}: choose one of {', '.join(MEANS)}")
    return MEANS[name]


def _cell(scores: Scores, task: str, metric: str) -> float | None:
    row = scores.get(task, {})
    if metric in row:
        return row[metric]
    parts = METRICS[metric].parts  # a mean of two metrics follows from the two
    if parts and all(part in row for part in parts):
        return sum(row[part] for part in parts) / len(parts)
    return None
