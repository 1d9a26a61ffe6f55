import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from triune.errors import TriuneError
from triune.evaluation.metrics import MEANS, METRICS, mean_of, missing_for, score

LABELS = [1, 1, 1, 0, 0, 1, 0, 1]
PREDICTIONS = [1, 1, 0, 0, 1, 1, 0, 0]  # 3 true positives, 1 false, 2 missed, 2 true negatives

# Cells as published: BERT's Table 1, and Table 1 of arXiv 2412.00359.
BERT_BASE = [52.1, 93.5, 88.9, 85.8, 71.2, 84.6, 83.4, 90.5, 66.4]
BERT_LARGE = [60.5, 94.9, 89.3, 86.5, 72.1, 86.7, 85.9, 92.7, 70.1]
PAPER_STANDARD = [52.64, 90.92, 87.27, 88.19, 88.86, 81.66, 82.07, 88.76, 59.42]
TASKS = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "mnli-mm", "qnli", "rte"]


def cells(name, values):
    metric_of = dict(MEANS[name].cells)
    return {task: {metric_of[task]: value} for task, value in zip(TASKS, values, strict=True)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accuracy", 100 * 5 / 8),
        ("f1", 100 * 2 * 3 / (2 * 3 + 1 + 2)),
        ("macro_f1", 100 * (2 / 3 + 2 * 2 / (2 * 2 + 2 + 1)) / 2),
        ("matthews", 100 * (3 * 2 - 1 * 2) / np.sqrt(4 * 5 * 3 * 4)),
        ("accuracy_f1", 100 * (5 / 8 + 2 / 3) / 2),
    ],
)
def test_hand_made_values(name, expected):
    assert score(name, PREDICTIONS, LABELS) == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=40))
def test_class_metrics_are_those_of_sklearn(pairs):
    predictions, labels = map(np.array, zip(*pairs, strict=True))
    assert score("accuracy", predictions, labels) == pytest.approx(100 * np.mean(predictions == labels))
    expected = sklearn_metrics.f1_score(labels, predictions, average="macro", zero_division=0)
    assert score("macro_f1", predictions, labels) == pytest.approx(100 * expected)
    if np.ptp(predictions) and np.ptp(labels):
        expected = sklearn_metrics.matthews_corrcoef(labels, predictions)
        assert score("matthews", predictions, labels) == pytest.approx(100 * expected)


def test_correlations_are_those_of_scipy():
    draw = np.random.default_rng(0)
    labels = np.round(draw.uniform(0, 5, 50), 1)
    predictions = (labels + draw.normal(0, 1, 50)).astype(np.float32)
    pearson, spearman = stats.pearsonr(predictions, labels).statistic, stats.spearmanr(predictions, labels).statistic
    assert score("pearson", predictions, labels) == pytest.approx(100 * pearson, abs=1e-4)
    assert score("spearman", predictions, labels) == pytest.approx(100 * spearman)
    assert score("pearson_spearman", predictions, labels) == pytest.approx(50 * (pearson + spearman), abs=1e-4)


@pytest.mark.parametrize("name", METRICS)
def test_degenerate_input_gives_a_number_and_no_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        constant = score(name, [0, 0, 0, 0], [0, 1, 1, 0])
        assert np.isfinite(constant)
        assert np.isfinite(score(name, [0, 1, 1, 0], [1, 1, 1, 1]))
        assert np.isfinite(score(name, [1], [1]))
    if name == "matthews" or METRICS[name].kind == "numbers":
        assert constant == 0


@pytest.mark.parametrize(
    ("name", "predictions", "labels", "said"),
    [
        ("bleu", [1], [1], "no metric is called 'bleu'"),
        ("pearson", [1.0, float("nan")], [1.0, 2.0], "1 of 2 predictions are not finite"),
        ("accuracy", [1.0, float("inf")], [1, 2], "not finite"),
        ("accuracy", [0.5, 1.0], [0, 1], "not class ids"),
        ("accuracy", [], [], "no predictions"),
        ("accuracy", ["a"], ["a"], "give numbers"),
        ("accuracy", [1, 0], [1, 0, 1], "give one for each"),
        ("f1", [0, 1], [0, 2], "use macro_f1"),
        ("accuracy_f1", [0, 2], [0, 1], "use macro_f1"),
    ],
)
def test_mistakes_are_told_in_one_line(name, predictions, labels, said):
    with pytest.raises(TriuneError, match=said) as caught:
        score(name, predictions, labels)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "values", "printed"),
    [
        ("bert", BERT_BASE, 79.6),
        ("bert", BERT_LARGE, 82.1),
        ("paper", PAPER_STANDARD, 79.74),  # from its cells; the paper prints 79.71
        ("paper-caption", PAPER_STANDARD, 79.74),
    ],
)
def test_published_cells_give_published_means(name, values, printed):
    mean = mean_of(name, cells(name, values))
    assert mean == pytest.approx(printed, abs=0.005 if "paper" in name else 0.05)


def test_means_differ_as_their_tables_do():
    scores = {
        task: {"accuracy": 80.0, "f1": 60.0, "matthews": 50.0, "pearson": 90.0, "spearman": 70.0} for task in TASKS
    }
    scores["mnli"]["accuracy"] = 98.0
    assert mean_of("glue", scores) is None
    assert missing_for("glue", scores) == ["wnli (accuracy)"]
    scores["wnli"] = {"accuracy": 20.0}
    # CoLA 50, SST-2 80, MRPC and QQP 70 (from accuracy and F1), STS-B 80, QNLI and RTE 80, MNLI 98 and 80.
    assert mean_of("paper", scores) == pytest.approx((50 + 80 + 70 + 70 + 80 + 80 + 80 + 89) / 8)
    assert mean_of("paper-caption", scores) == pytest.approx((50 + 80 + 80 + 80 + 80 + 80 + 80 + 89) / 8)
    assert mean_of("symmetric", scores) == pytest.approx((50 + 80 + 70 + 70 + 80 + 80 + 80 + 98 + 80) / 9)
    assert mean_of("glue", scores) == pytest.approx((50 + 80 + 70 + 70 + 80 + 80 + 80 + 89 + 20) / 9)
    assert mean_of("bert", scores) == pytest.approx((50 + 80 + 60 + 60 + 70 + 80 + 80 + 98 + 80) / 9)
    assert all(not missing_for(name, scores) for name in MEANS)


def test_missing_tasks_are_named():
    assert mean_of("bert", {"cola": {"matthews": 50.0}, "qqp": {"accuracy": 80.0}}) is None
    missing = missing_for("bert", {"cola": {"matthews": 50.0}, "qqp": {"accuracy": 80.0}})
    assert "qqp (F1)" in missing
    assert not any(line.startswith("cola") for line in missing)
    with pytest.raises(TriuneError, match="no mean is called"):
        mean_of("best", {})
