"""Means over tasks from records."""

import pytest

from triune.data.tasks import get_task
from triune.report.means import mean_table
from triune.report.scores import score_tables

SCORES = {
    "cola": {"matthews": 50.0},
    "sst2": {"accuracy": 90.0},
    "mrpc": {"accuracy": 80.0, "f1": 84.0},
    "stsb": {"pearson": 80.0, "spearman": 82.0},
    "qqp": {"accuracy": 88.0, "f1": 86.0},
    "mnli": {"accuracy": 82.0},
    "qnli": {"accuracy": 89.0},
    "rte": {"accuracy": 60.0},
}


def records(without=(), shift=0.0, seed=1, **more):
    return [
        {
            "model": "shared",
            "task": task,
            "task_title": get_task(task).title,
            "metric": next(iter(scores)),
            "metric_title": next(iter(scores)),
            "primary": next(iter(scores.values())),
            "subset": False,
            "pocket": False,
            "train_rows": 100,
            "train_source": f"{task}/train.parquet",
            "dev_rows": 10,
            "seed": seed,
            "scores": {name: value + shift for name, value in scores.items()},
            "more_scores": {"dev_mismatched": {"accuracy": 84.0 + shift}} if task == "mnli" else {},
            **more,
        }
        for task, scores in SCORES.items()
        if task not in without
    ]


def test_the_mean_of_the_papers_table():
    """MNLI as the mean of its two sets, MRPC, QQP and STS-B as means of two metrics: eight cells."""
    expected = (50 + 90 + 82 + 81 + 87 + 83 + 89 + 60) / 8
    table = mean_table(records(), "paper")
    assert table.rows == [["shared", f"{expected:.2f} (1)"]]
    both = mean_table([*records(), *records(shift=2.0, seed=2)], "paper")
    assert both.rows == [["shared", f"{expected + 1:.2f} ± {2**0.5:.2f} (2)"]]


def test_what_is_missing_is_said():
    table = mean_table(records(without=("rte",)), "bert")
    assert table.rows == [["shared", "–"]]
    assert "rte (accuracy)" in table.notes[-1]


@pytest.mark.parametrize("mark", ["pocket", "subset"])
def test_means_are_marked_as_the_scores_are(mark):
    """A mean of made-up tasks or of parts of splits is no figure to set beside the published mean."""
    whole = mean_table(records(), "paper")
    assert whole.columns == ["model", "mean"]
    assert not any("pocket" in note or "subset" in note for note in whole.notes)
    marked = [*records(without=("rte",)), *records(without=set(SCORES) - {"rte"}, **{mark: True})]
    table = mean_table(marked, "paper")
    assert table.columns == ["model", f"mean ({mark})"]
    assert table.rows == whole.rows
    (note,) = [note for note in score_tables(marked)[0].notes if note.startswith(f"{mark}: ")]
    assert note in table.notes


def test_a_task_that_is_not_in_the_mean_marks_nothing():
    other = {**records()[0], "task": "wnli", "task_title": "WNLI", "subset": True, "pocket": True}
    assert mean_table([*records(), other], "paper").columns == ["model", "mean"]
