"""Cells that fail, cells that two processes want, and what is left behind."""

import json
import multiprocessing
import os
import time
from contextlib import suppress

import pytest
import torch
from transformers.utils import logging

from triune import TriuneError, cells, operators
from triune.cells import Cell, Engine, close_processes, finished, run_cell, run_cells, run_missing, write_record
from triune.files import alone_at


def write_number(record, identity, number, seconds=0.0):
    """A cell that says how often it was run."""
    with (record.parent.parent / f"ran-{number}").open("a") as file:
        file.write("x")
    time.sleep(seconds)
    return write_record(record, {"identity": identity, "number": number})


def fail(**ignored):
    raise TriuneError("this one cannot be done")


def cell(folder, number, run=write_number, **more):
    record = folder / "cells" / f"{number}.json"
    arguments = {"record": record, "identity": str(number), "number": number, **more}
    return Cell(f"cell {number}", run, arguments, record, str(number))


def test_what_is_finished_is_told_and_not_run_again(tmp_path):
    cells = [cell(tmp_path, number) for number in range(3)]
    run_cell(cells[1])
    heard = []
    records = run_missing(cells, Engine(workers=1), lambda one, record, before: heard.append((one.title, before)))
    assert [record["number"] for record in records] == [0, 1, 2]
    assert sorted(heard) == [("cell 0", False), ("cell 1", True), ("cell 2", False)]
    assert all((tmp_path / f"ran-{number}").read_text() == "x" for number in range(3))
    assert sorted(path.name for path in (tmp_path / "cells").iterdir()) == ["0.json", "1.json", "2.json"]


def say_how_much_is_shown(record, identity):
    shown = {"verbosity": logging.get_verbosity(), "bar": logging.is_progress_bar_enabled()}
    return write_record(record, {"identity": identity, **shown})


@pytest.mark.parametrize("bar", [True, False])
def test_after_a_cell_transformers_shows_what_it_showed(tmp_path, bar):
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    (logging.enable_progress_bar if bar else logging.disable_progress_bar)()
    logging.set_verbosity_info()
    try:
        record = tmp_path / "cells" / "1.json"
        done = run_cell(Cell("one", say_how_much_is_shown, {"record": record, "identity": "1"}, record, "1"))
        assert (done["verbosity"], done["bar"]) == (logging.ERROR, False)
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (logging.INFO, bar)
    finally:
        logging.set_verbosity(before[0])
        (logging.enable_progress_bar if before[1] else logging.disable_progress_bar)()


def test_a_record_of_something_else_is_left_alone(tmp_path):
    other = cell(tmp_path, 1)
    write_record(other.record, {"identity": "another"})
    with pytest.raises(TriuneError, match="of another recipe, model or data"):
        run_missing([other], Engine(workers=1), lambda *ignored: None)
    assert json.loads(other.record.read_text()) == {"identity": "another"}


def write_of_operator(record, identity):
    return write_record(record, {"identity": identity, "operator": "mine"})


def test_an_operator_that_was_edited_is_named(tmp_path, monkeypatch):
    class Mine(operators.get("shared")):
        source_sha256 = "before"

    monkeypatch.setitem(operators.registry._OPERATORS, "mine", Mine)
    record = tmp_path / "cells" / "1.json"
    run_cell(Cell("one", write_of_operator, {"record": record, "identity": "1"}, record, "1"))
    assert json.loads(record.read_text())["operator_sources"] == {"mine": "before"}
    Mine.source_sha256 = "after"
    with pytest.raises(TriuneError, match="is of another source of the operator 'mine': choose another --out"):
        finished(Cell("one", write_of_operator, {}, record, "2"))


def test_two_processes_do_a_cell_once(tmp_path):
    """As after a kill, when a job of the run before is still at it."""
    slow = cell(tmp_path, 7, seconds=1.0)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=run_cell, args=(slow,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert (tmp_path / "ran-7").read_text() == "x"
    assert list(tmp_path.rglob("*.lock")) == []


def tell_process(record, identity, number, together):
    """Once all cells of `together` were begun, so that each is in another process."""
    (record.parent.parent / f"begun-{number}").touch()
    ends = time.monotonic() + 60
    while not all((record.parent.parent / f"begun-{one}").exists() for one in together) and time.monotonic() < ends:
        time.sleep(0.01)
    seen = {"process": os.getpid(), "threads": torch.get_num_threads(), "number": cells._worker_number}
    return write_record(record, {"identity": identity, **seen})


def test_workers_are_kept_however_many_cells_come_next(tmp_path):
    """Starting one takes seconds: a search of twelve and then four seeds of a task use the same ones."""
    close_processes()
    engine = Engine(workers=3)
    try:
        first, then = (
            [
                record
                for _, record in run_cells([cell(tmp_path, n, tell_process, together=numbers) for n in numbers], engine)
            ]
            for numbers in ((0, 1, 2), (3, 4))
        )
        workers = {record["process"] for record in first}
        assert len(workers) == 3
        assert {record["process"] for record in then} <= workers
        assert {record["number"] for record in first} == {0, 1, 2}
        assert {record["number"] for record in then} == {0, 1}  # whoever does them: on two GPUs, one each
        cores = os.cpu_count() or 1
        assert {record["threads"] for record in first} == {max(1, cores // 3)}
        assert {record["threads"] for record in then} == {max(1, cores // 2)}
    finally:
        close_processes()


def test_other_processes_of_the_caller_live_on(tmp_path):
    close_processes()
    own = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    own.start()
    try:
        list(run_cells([cell(tmp_path, number) for number in range(2)], Engine(workers=2)))
        close_processes()
        own.join(2)
        assert own.is_alive()
    finally:
        own.kill()
        own.join()


def fail_in_new_folder(folder):
    """Gives what is said to whoever wants in while another one fails and takes the new folder away."""
    said = []
    for turn in range(60):
        with suppress(ValueError):
            try:
                with alone_at(folder / str(turn) / "inner" / "lock"):
                    raise ValueError("the real one")
            except TriuneError as error:
                said.append(str(error))
    return said


def test_a_folder_that_goes_away_meanwhile_is_made_again(tmp_path):
    with multiprocessing.get_context("fork").Pool(6) as pool:
        said = pool.map(fail_in_new_folder, [tmp_path] * 6)
    assert said == [[]] * 6


def test_a_failure_does_not_wait_for_the_others(tmp_path):
    close_processes()
    before = set(multiprocessing.active_children())
    cells = [cell(tmp_path, 1, fail), cell(tmp_path, 2, seconds=60.0)]
    began = time.monotonic()
    with pytest.raises(TriuneError, match="this one cannot be done"):
        list(run_cells(cells, Engine(workers=2)))
    # Not by join: a thread of the pool waits for the same processes, and whoever comes second hears nothing of the end.
    while set(multiprocessing.active_children()) - before and time.monotonic() - began < 50:
        time.sleep(0.05)
    assert set(multiprocessing.active_children()) <= before  # other tests may have left some
