"""Cells that fail, cells that two processes want, and what is left behind."""

import json
import multiprocessing
import os
import time

import pytest
import torch

from triune import TriuneError
from triune.cells import Cell, Engine, close_processes, run_cell, run_cells, run_missing, write_record


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


def test_a_record_of_something_else_is_left_alone(tmp_path):
    other = cell(tmp_path, 1)
    write_record(other.record, {"identity": "another"})
    with pytest.raises(TriuneError, match="of another recipe, model or data"):
        run_missing([other], Engine(workers=1), lambda *ignored: None)
    assert json.loads(other.record.read_text()) == {"identity": "another"}


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


def tell_process(record, identity, number):
    time.sleep(0.2)  # so that there is work for both
    return write_record(record, {"identity": identity, "process": os.getpid(), "threads": torch.get_num_threads()})


def test_workers_are_kept_however_many_cells_come_next(tmp_path):
    """Starting one takes seconds: a search of twelve and then four seeds of a task use the same ones."""
    close_processes()
    engine = Engine(workers=3)
    try:
        first, then = (
            [record for _, record in run_cells([cell(tmp_path, n, tell_process) for n in numbers], engine, of)]
            for numbers, of in ((range(3), None), (range(3, 5), 2))
        )
        workers = {record["process"] for record in first}
        assert len(workers) == 3
        assert {record["process"] for record in then} <= workers
        cores = os.cpu_count() or 1
        assert {record["threads"] for record in first} == {max(1, cores // 3)}
        assert {record["threads"] for record in then} == {max(1, cores // 2)}
    finally:
        close_processes()


def test_a_failure_does_not_wait_for_the_others(tmp_path):
    close_processes()
    cells = [cell(tmp_path, 1, fail), cell(tmp_path, 2, seconds=60.0)]
    began = time.monotonic()
    with pytest.raises(TriuneError, match="this one cannot be done"):
        list(run_cells(cells, Engine(workers=2)))
    # Not by join: a thread of the pool waits for the same processes, and whoever comes second hears nothing of the end.
    while multiprocessing.active_children() and time.monotonic() - began < 50:
        time.sleep(0.05)
    assert multiprocessing.active_children() == []
