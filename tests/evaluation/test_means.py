"""Means over tasks from records."""

from triune.report.means import mean_table

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


def records(without=(), shift=0.0, seed=1):
    return [
        {
            "model": "shared",
            "task": task,
            "seed": seed,
            "scores": {name: value + shift for name, value in scores.items()},
            "more_scores": {"dev_mismatched": {"accuracy": 84.0 + shift}} if task == "mnli" else {},
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
