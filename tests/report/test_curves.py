"""`triune curves`: every run can be told from the others, and what is damaged is named."""

import json
import re

import pytest

from tests.report import made
from triune import TriuneError
from triune.report.curves import draw_curves


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draws runs and gives what the legend shows, each label with its colour."""
    from triune.report import curves

    def draw(*runs):
        shown = {}

        def keep(figure, out):
            handles, labels = figure.axes[0].get_legend_handles_labels()
            assert len(set(labels)) == len(labels)
            shown.update({label: handle.get_color() for handle, label in zip(handles, labels, strict=True)})
            save(figure, out)

        save = curves.save_figure
        with monkeypatch.context() as patch:
            patch.setattr(curves, "save_figure", keep)
            draw_curves(runs, tmp_path / "loss.svg")
        assert (tmp_path / "loss.svg").is_file()
        return {label.removesuffix(", training"): shown[label] for label in shown if label.endswith(", training")}

    return draw


def runs_of(folder, *names, operator="shared"):
    for name in names:
        made.write_run(folder / name, operator, 1.5)
    return [folder / name for name in names]


def test_names_are_shown_as_they_are(drawn, tmp_path):
    assert list(drawn(*runs_of(tmp_path, "r$x^$y"))) == [r"shared (r\$x^\$y)"]


def test_runs_are_told_apart(drawn, tmp_path):
    shown = drawn(*runs_of(tmp_path, "a/shared", "b/shared", "seed-1", "seed-2"))
    assert list(shown) == ["shared (a/shared)", "shared (b/shared)", "shared (seed-1)", "shared (seed-2)"]
    assert len(set(shown.values())) == 4


def test_as_many_colours_as_runs(drawn, tmp_path):
    assert len(set(drawn(*runs_of(tmp_path, *(f"seed-{n}" for n in range(12)))).values())) == 12


def test_a_run_that_is_given_twice_is_drawn_once(drawn, tmp_path, monkeypatch):
    (run,) = runs_of(tmp_path, "shared")
    monkeypatch.chdir(run)
    assert list(drawn(run, run / ".." / "shared", run.__class__("."))) == ["shared"]


def test_labels_say_no_more_than_they_must(drawn, tmp_path):
    shared, other = runs_of(tmp_path, "shared/seed-1", "other/shared/seed-1")
    (standard,) = runs_of(tmp_path, "standard/seed-1", operator="standard")
    assert list(drawn(shared, standard)) == ["shared (seed-1)", "standard (seed-1)"]
    here = f"{tmp_path.name}/shared/seed-1"
    expected = [f"shared ({here})", "standard (seed-1)", "shared (other/shared/seed-1)"]
    assert list(drawn(shared, standard, other)) == expected


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("metrics.jsonl", '{"step": 1, "tok}\n'),
        ("metrics.jsonl", '{"step": 1, "loss": 2.0}\n'),
        ("metrics.jsonl", '{"step": 1, "tokens": 8, "loss": "low"}\n'),
        ("metrics.jsonl", '{"step": 1, "tokens": 8, "loss": null}\n'),
        ("summary.json", "[]\n"),
        ("summary.json", "{}\n"),
        ("summary.json", json.dumps({"unigram_loss": "much"})),
        ("summary.json", "{"),
    ],
)
def test_a_damaged_file_is_named(file, text, tmp_path):
    (run,) = runs_of(tmp_path, "shared")
    (run / file).write_text(text)
    with pytest.raises(TriuneError, match=re.escape(str(run / file))) as said:
        draw_curves([run], tmp_path / "loss.svg")
    assert "\n" not in str(said.value)
    assert not (tmp_path / "loss.svg").exists()
