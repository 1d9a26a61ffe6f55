"""What is started in a budget of time, on a clock that the test turns; and cells whose model is not there."""

from dataclasses import replace

import pytest

from triune import TriuneError
from triune.budget import Budget, budget_seconds, duration, what_is_left
from triune.cells import Cell, Engine, close_processes, finished, run_cell, run_missing, write_record


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


CLOCK = Clock()


def work(record, identity, seconds):
    CLOCK.now += seconds
    return write_record(record, {"identity": identity, "seconds": 0.5})


def cell(folder, name, seconds=10.0, **more):
    record = folder / "cells" / f"{name}.json"
    arguments = {"record": record, "identity": name, "seconds": seconds}
    return Cell(name, work, arguments, record, name, **more)


def run(cells, budget, said=10.0):
    """The names of the cells that were run."""
    budget.enter("study", said)
    ran = []
    run_missing(cells, Engine(workers=1, budget=budget), lambda one, record, before: before or ran.append(one.title))
    return ran


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("25m", 1500), ("2h", 7200), ("1.5h", 5400), (" 3 m ", 180)]
)
def test_a_budget_as_it_is_written(text, seconds):
    assert budget_seconds(text) == seconds


@pytest.mark.parametrize("text", ["25", "m", "-5m", "0s", "5 days", "1h30m", "", "nan m", "1e3s"])
def test_what_is_no_time_is_one_line(text):
    with pytest.raises(TriuneError, match="write it as 90s, 25m or 2h"):
        budget_seconds(text)


def test_a_cell_starts_only_if_it_is_expected_to_fit(tmp_path):
    budget = Budget(25.0, CLOCK)
    assert run([cell(tmp_path, name) for name in "abc"], budget) == ["a", "b"]
    assert budget.left == pytest.approx(5.0)
    assert budget.shortest_left_out == 10.0


def test_a_shorter_cell_of_a_later_stage_still_runs(tmp_path):
    budget = Budget(25.0, CLOCK)
    assert run([cell(tmp_path, "long", 100.0)], budget, said=100.0) == []
    assert run([cell(tmp_path, "short", 3.0)], budget, said=3.0) == ["short"]


def test_what_was_measured_counts_before_what_was_said(tmp_path):
    """The scale says ten seconds; they take two."""
    budget = Budget(25.0, CLOCK)
    cells = [cell(tmp_path, name, 2.0) for name in "abcdefghijklmn"]
    assert len(run(cells, budget)) == 12
    assert budget.shortest_left_out == pytest.approx(2.0)


def test_earlier_records_say_how_long_a_cell_takes(tmp_path):
    before, now = cell(tmp_path, "before"), cell(tmp_path, "now", 0.5)
    run_cell(before)
    assert run([before, now], Budget(3.0, CLOCK)) == ["now"]


def test_the_longest_that_was_measured_counts(tmp_path):
    budget = Budget(25.0, CLOCK)
    cells = [cell(tmp_path, "long", 8.0), *(cell(tmp_path, name, 1.0) for name in "abcdefghijklmn")]
    assert len(run(cells, budget)) == 11  # with the last one, 7 seconds are left
    assert budget.shortest_left_out == pytest.approx(8.0)


def test_seconds_of_training_alone_make_a_cell_only_longer(tmp_path):
    budget = Budget(25.0, CLOCK)
    one = cell(tmp_path, "one")
    budget.enter("study", 10.0)
    budget.hear(one, {"train_seconds": 2.0})
    assert budget.expected(one) == 10.0
    budget.hear(one, {"train_seconds": 12.0})
    assert budget.expected(one) == 12.0


def test_kinds_are_measured_apart(tmp_path):
    budget = Budget(25.0, CLOCK)
    quick, other = cell(tmp_path, "quick", 1.0, kind="small"), cell(tmp_path, "other", kind="large")
    budget.enter("study", 20.0)
    assert run([quick, other], budget, said=20.0) == ["quick", "other"]
    assert budget.expected(quick) == pytest.approx(1.0)
    assert budget.expected(other) == pytest.approx(10.0)
    assert budget.expected(cell(tmp_path, "third", kind="third")) == 20.0


def test_worker_processes_keep_to_it_too(tmp_path):
    close_processes()
    budget = Budget(60.0)
    budget.enter("study", 0.1)
    cells = [cell(tmp_path, name, 0.0) for name in "abc"]
    assert len(run_missing(cells, Engine(workers=2, budget=budget), lambda *ignored: None)) == 3
    nothing = Budget(60.0)
    nothing.enter("study", 61.0)
    others = [cell(tmp_path, name, 0.0) for name in "de"]
    assert run_missing(others, Engine(workers=2, budget=nothing), lambda *ignored: None) == []
    assert not (tmp_path / "cells" / "d.json").exists()
    close_processes()


def test_a_model_that_is_not_there_is_said_or_left_out(tmp_path):
    model = tmp_path / "runs" / "shared" / "model"
    record = write_record(model.parent / "summary.json", {"identity": "x"})
    gone, other = cell(tmp_path, "gone", needs=model), cell(tmp_path, "other")
    with pytest.raises(TriuneError, match="gone: there are no weights in"):
        run_missing([other, gone], Engine(workers=1), lambda *ignored: None)
    assert not other.record.exists()  # said before anything is run
    budget = Budget(100.0, CLOCK)
    assert run([gone, other], budget) == ["other"]
    first, second = what_is_left(budget, [gone.record, other.record])[1:]
    assert first == "1 of 2 cells are done. What is finished is kept; none of the others can run."
    assert "runs/shared/model' has a record and no weights here" in second
    assert second.endswith("gone.")
    assert record["identity"] == "x"


def test_a_model_that_is_still_to_be_made_is_not_called_missing(tmp_path):
    budget = Budget(100.0, CLOCK)
    later = cell(tmp_path, "later", needs=tmp_path / "runs" / "shared" / "model")
    assert run([later], budget) == []
    first, second = what_is_left(budget, [later.record])[1:]
    assert "none of the others can run" in first
    assert second.startswith("These were not made, because what they need is not there")
    assert second.endswith(f": {later.record}.")


def test_where_something_did_not_fit_the_same_command_goes_on(tmp_path):
    budget = Budget(5.0, CLOCK)
    long, later = cell(tmp_path, "long"), cell(tmp_path, "later", needs=tmp_path / "runs" / "shared" / "model")
    assert run([long, later], budget) == []
    [line] = what_is_left(budget, [long.record, later.record])[1:]
    assert line == (
        "0 of 2 cells are done. What is finished is kept, and the same command goes on. Of those that did not fit, the "
        "shortest takes about 10 s."
    )


def test_what_starts_from_a_model_that_diverged_is_left_out(tmp_path):
    model = tmp_path / "runs" / "shared" / "model"
    write_record(model.parent / "summary.json", {"identity": "x", "diverged": "at step 3"})
    records = run_missing(
        [cell(tmp_path, "from it", needs=model), cell(tmp_path, "other")], Engine(workers=1), lambda *ignored: None
    )
    assert [record["identity"] for record in records] == ["other"]


def test_with_its_record_a_cell_needs_no_weights(tmp_path):
    there = cell(tmp_path, "there")
    run_cell(there)
    heard = []
    needing = replace(there, needs=tmp_path / "model")
    run_missing([needing], Engine(workers=1), lambda one, record, before: heard.append(before))
    assert heard == [True]


def test_when_all_is_done_nothing_is_left_to_say(tmp_path):
    budget = Budget(100.0, CLOCK)
    one = cell(tmp_path, "one")
    run([one], budget)
    assert what_is_left(budget, [one.record]) == []


@pytest.mark.parametrize(("seconds", "said"), [(40, "40 s"), (420, "7 min"), (9000, "2.5 h"), (200000, "2.3 days")])
def test_durations(seconds, said):
    assert duration(seconds) == said


def test_whoever_runs_a_cell_writes_what_it_took(tmp_path, monkeypatch):
    monkeypatch.setattr("triune.cells.time.monotonic", CLOCK)
    one = cell(tmp_path, "one", 7.0)
    assert run_cell(one)["cell_seconds"] == pytest.approx(7.0)
    assert finished(one)["cell_seconds"] == pytest.approx(7.0)
    assert run([one, cell(tmp_path, "two", 1.0)], Budget(6.0, CLOCK), said=1.0) == []


def test_of_two_that_a_record_says_the_longer_counts(tmp_path):
    """A pre-training that was stopped: its last part took 3 seconds, all of it 30."""
    budget = Budget(25.0, CLOCK)
    budget.enter("study", 1.0)
    budget.hear(cell(tmp_path, "one"), {"cell_seconds": 3.0, "seconds": 30.0})
    assert budget.expected(cell(tmp_path, "two")) == 30.0


def test_one_that_diverged_says_nothing_of_how_long_others_take(tmp_path):
    def diverge(record, identity):
        CLOCK.now += 1.0
        return write_record(record, {"identity": identity, "diverged": "at step 3"})

    budget = Budget(25.0, CLOCK)
    one = replace(
        cell(tmp_path, "one"), run=diverge, arguments={"record": tmp_path / "cells/one.json", "identity": "one"}
    )
    assert run([one], budget) == ["one"]
    assert budget.expected(one) == 10.0
    again = Budget(25.0, CLOCK)
    assert run([one], again) == []
    assert again.expected(one) == 10.0


def test_many_models_without_weights_are_not_many_lines(tmp_path):
    budget = Budget(100.0, CLOCK)
    models = [tmp_path / "runs" / str(number) / "model" for number in range(25)]
    for model in models:
        write_record(model.parent / "summary.json", {"identity": "x"})
    cells = [cell(tmp_path, f"of {number}", needs=model) for number, model in enumerate(models)]
    run([*cells, *cells], budget)  # a search is asked for with every seed
    lines = what_is_left(budget, [one.record for one in cells])
    assert len([line for line in lines if "no weights here" in line]) == 10
    assert lines[-1] == "Of 15 more models it is the same: 15 cells were left out."
    assert sum(line.count("of 3") for line in lines) == 1
