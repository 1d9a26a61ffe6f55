from dataclasses import replace

import pytest

from triune.errors import TriuneError
from triune.evaluation.significance import Comparison
from triune.report.scores import score_tables

SHOWN = Comparison(
    task="rte",
    metric="accuracy",
    a="standard",
    b="shared",
    effect=-2.0,
    interval=(-3.0, -0.001),
    p_examples=0.0005,
    p_bootstrap=0.001,
    p_seeds=0.02,
    p_mcnemar=0.01,
    seeds=2,
    examples=1277,
    p=0.02,
    p_holm=0.04,
    better="standard",
    verdict="standard better",
    corrected_for=7,
)


def record(model, primary, seed=0, task="rte", **other):
    values = {
        "model": model,
        "operator": model,
        "task": task,
        "task_title": task.upper(),
        "metric": "accuracy",
        "metric_title": "accuracy",
        "seed": seed,
        "scores": {"accuracy": primary},
        "primary": primary,
        "best_epoch": 2,
        "epochs": 3,
        "train_rows": 2490,
        "train_source": "GLUE",
        "subset": False,
        "dev_rows": 277,
    }
    return values | other


def records():
    return [
        record("standard", 62.0),
        record("standard", 64.0, seed=1),
        record("shared", 60.0),
        record("shared", 62.0, seed=1),
    ]


def test_a_row_a_model_and_a_column_a_task():
    rows = [*records(), record("standard", 80.0, task="qqp", subset=True, train_rows=20_000)]
    (table,) = score_tables(rows, [])
    assert table.columns == ["model", "RTE, accuracy", "QQP, accuracy (subset)"]
    assert table.rows == [["standard", "63.00 ± 1.41 (2)", "80.00 (1)"], ["shared", "61.00 ± 1.41 (2)", "–"]]
    notes = " ".join(table.notes)
    assert "chosen on the development set" in notes
    assert "QQP: 20,000 training rows from GLUE, 277 development rows." in notes
    assert "▲" not in notes


def test_a_model_is_marked_only_where_a_difference_is_shown():
    unclear = replace(SHOWN, better=None, verdict="no difference shown")
    assert score_tables(records(), [unclear])[0].rows[1][1] == "61.00 ± 1.41 (2)"
    table = score_tables(records(), [SHOWN])[0]
    assert table.rows[0][1] == "63.00 ± 1.41 (2)"
    assert table.rows[1][1] == "61.00 ± 1.41 (2) ▼"
    assert any(note.startswith("▲ shown to be better than standard") for note in table.notes)
    assert score_tables(records(), [replace(SHOWN, better="shared")])[0].rows[1][1].endswith(" ▲")
    assert "▼" not in score_tables(records(), [replace(SHOWN, metric="f1")])[0].to_markdown()


def test_comparisons_find_their_column_by_title_and_as_means_of_examples():
    scores, table = score_tables(records(), [replace(SHOWN, task="RTE", metric="mean")])
    assert scores.rows[1][1].endswith("▼")
    assert table.rows[0][0] == "RTE, accuracy"


def test_comparisons_have_a_table():
    alone = replace(SHOWN, p_seeds=None, p=None, p_holm=None, seeds=1, corrected_for=0)
    _, table = score_tables(records(), [SHOWN, alone])
    assert table.rows[0] == [
        "RTE, accuracy",
        "standard, shared",
        "standard better",
        "−2.00 [−3.00, 0.00]",
        "< 0.001",
        "0.020",
        "0.040",
        "2",
        "1,277",
    ]
    assert table.rows[1][5] == table.rows[1][6] == "–"
    assert "corrected for 7 comparisons;" in table.notes[0]
    others = replace(SHOWN, family="others", corrected_for=20)
    _, table = score_tables(records(), [replace(SHOWN, family="shared against standard"), others])
    assert "corrected for the 7 comparisons of shared against standard, and for the 20 others apart" in table.notes[0]
    assert "Holm: none was tested;" in score_tables(records(), [alone])[1].notes[0]


def test_one_seed_is_said_and_doubles_are_refused():
    (table,) = score_tables([record("standard", 62.0), record("shared", 63.0)])
    assert "One seed: nothing is said about training noise." in table.notes
    with pytest.raises(TriuneError, match="two scores on rte with seed 0"):
        score_tables([record("standard", 62.0), record("standard", 63.0)])
    assert score_tables([], []) == []


def test_pocket_tasks_are_never_called_by_the_bare_name():
    said = [record("standard", 62.0, dev_rows=400, pocket=True), record("shared", 60.0, dev_rows=400, pocket=True)]
    cut = record("standard", 80.0, task="qqp", subset=True, pocket=True)
    earlier = record("standard", 90.0, task="cola", dev_rows=400)  # of a version whose records did not say it
    scores, differences = score_tables([*said, cut, earlier], [SHOWN])
    titles = ["RTE, accuracy (pocket)", "QQP, accuracy (pocket, subset)", "COLA, accuracy (pocket)"]
    assert scores.columns == ["model", *titles]
    assert differences.rows[0][0] == titles[0]
    assert sum("made-up world" in note for note in scores.notes) == 1
    assert not any("made-up" in note for note in score_tables(records())[0].notes)
