"""Cells of work that can be done in any order, on this machine or on others; a cell that is finished is not done again.

A cell writes a record, last of all its files, with the identity of what went into it. Whoever has the record has the
cell: that is all that is needed to go on after a kill, and for machines with a common folder to share the work.
"""

import json
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from triune.budget import CELL_SECONDS, Budget
from triune.errors import TriuneError
from triune.files import alone_at, write_text
from triune.operators import load_plugin, loaded_plugins, operator_sources, with_operator_sources
from triune.presence import has_lost_weights, has_weights
from triune.threads import threads_at_most

Record = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """`run(**arguments)` does the work, writes `record` with `identity` in it, and returns it.

    Function and arguments travel to other processes: a function of a module, and plain values.
    """

    title: str
    run: Callable[..., Record]
    arguments: dict[str, Any]
    record: Path
    identity: str
    wanted: tuple[str, ...] = ()  # files beside the record without which the cell is not finished
    needs: Path | None = None  # a folder with weights without which it cannot run
    kind: str = ""  # of the cells of a study, those of one kind take about as long


@dataclass(frozen=True)
class Engine:
    """Who does the cells: processes of this machine, or jobs that submitit hands to Slurm (see `triune.jobs`)."""

    kind: str = "local"  # local, jobs or slurm
    workers: int | None = None  # at once; by default one a GPU, without GPU one a core
    options: dict[str, str] = field(default_factory=dict)  # of slurm
    budget: Budget | None = None  # cells that do not fit are left out; only where `kind` is local

    @property
    def at_once(self) -> int:
        """One a GPU; on the CPU one a core, because small models gain nothing from a second thread."""
        if self.workers is not None:
            return self.workers
        return torch.cuda.device_count() if torch.cuda.is_available() else (os.cpu_count() or 1)


LOCAL = Engine()


def engine_from(text: str, workers: int | None) -> Engine:
    """`local`, `jobs`, `slurm` or `slurm:partition=gpu,time=60`: what --engine takes."""
    kind, _, rest = text.partition(":")
    options = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    if kind not in ("local", "jobs", "slurm"):
        raise TriuneError(f"unknown engine '{kind}': --engine is local, jobs or slurm[:OPTION=VALUE,…]")
    if options and kind != "slurm":
        raise TriuneError(f"--engine {kind} takes no options, and '{rest}' was given")
    if not all(options.values()):
        raise TriuneError(f"'{text}': options of slurm are written as in slurm:partition=gpu,time=60")
    return Engine(kind, workers, options)


def write_record(path: Path, record: Record) -> Record:
    write_text(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return record


def finished(cell: Cell) -> Record | None:
    """The record of a cell that is done; one of something else in its place is an error, and is left alone."""
    try:
        record = json.loads(cell.record.read_text(encoding="utf-8"))
    except OSError:
        return None
    except ValueError as error:
        raise TriuneError(f"'{cell.record}' is not valid JSON ({error}): remove it and start again") from error
    if not isinstance(record, dict) or record.get("identity") != cell.identity:
        what = _edited_operator(record) or "recipe, model or data"
        raise TriuneError(f"'{cell.record}' is of another {what}: choose another --out, or remove that folder")
    if "diverged" in record:  # there is nothing beside it
        return record
    return record if all((cell.record.parent / name).exists() for name in cell.wanted) else None


def _edited_operator(record: Any) -> str | None:
    """What a record was made with, where that is known to be the source of an operator, edited since."""
    before = record.get("operator_sources", {}) if isinstance(record, dict) else {}
    now = operator_sources(before)
    return next((f"source of the operator '{name}'" for name in now if before[name] != now[name]), None)


def run_missing(
    cells: Sequence[Cell],
    engine: Engine,
    done: Callable[[Cell, Record, bool], object],
    of: int | None = None,
) -> list[Record]:
    """The records of all cells, in their order; `done(cell, record, before)` hears of each as it is there.

    Where the engine has a budget, cells that do not fit or whose model is not here are left out. `of` as in
    `run_cells`, for whoever asks for cells of one study in several calls.
    """
    records = {cell.record: finished(cell) for cell in cells}
    waiting = []
    for cell in cells:
        if (record := records[cell.record]) is None:
            waiting.append(cell)
            continue
        if engine.budget is not None:
            engine.budget.hear(cell, record)
        done(cell, record, True)
    for cell, record in run_cells(_with_weights(waiting, engine.budget), engine, of or len(cells)):
        records[cell.record] = record
        done(cell, record, False)
    return [record for cell in cells if (record := records[cell.record]) is not None]


def _with_weights(cells: list[Cell], budget: Budget | None) -> list[Cell]:
    """Those that can run: records may be kept without their models, and a model that diverged was never there."""
    gone = [cell for cell in cells if cell.needs is not None and not has_weights(cell.needs)]
    kept = [cell for cell in gone if cell.needs is not None and has_lost_weights(cell.needs)]
    if budget is not None:
        budget.without_weights += gone
    elif kept:
        raise TriuneError(
            f"{kept[0].title}: there are no weights in '{kept[0].needs}': put them there, or leave it out by --budget"
        )
    return [cell for cell in cells if all(cell is not one for one in gone)]


def run_cells(cells: Sequence[Cell], engine: Engine = LOCAL, of: int | None = None) -> Iterator[tuple[Cell, Record]]:
    """Do the cells and give each with its record as it is done, in no particular order.

    `of` is the number of cells with those that were done before. Threads follow from it: sums of a matrix product may
    differ with their number, and a run that was stopped must end as one that was not.
    """
    if not cells:
        return
    at_once = min(max(len(cells), of or 0), engine.at_once)
    threads = max(1, (os.cpu_count() or 1) // at_once) if at_once > 1 else torch.get_num_threads()
    if engine.kind != "local":
        from triune.jobs import run_as_jobs

        yield from run_as_jobs(cells, engine, at_once, threads)
    elif min(len(cells), at_once) <= 1:
        with threads_at_most(threads):
            for cell in cells:
                if engine.budget is None or engine.budget.start(cell):
                    record = run_cell(cell)
                    if engine.budget is not None:
                        engine.budget.end(cell, record)
                    yield cell, record
    else:
        yield from _in_processes(cells, engine, threads)


def run_cell(cell: Cell) -> Record:
    from transformers.utils import logging

    verbosity, progress_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # a fresh head is what we want, and not worth a warning in each run
    logging.disable_progress_bar()
    try:
        with alone_at(_lock_of(cell)):
            # Whoever had it before may have done it: a job of a run that was killed, or of one beside this.
            return finished(cell) or _timed(cell)
    finally:
        logging.set_verbosity(verbosity)
        if progress_bar:
            logging.enable_progress_bar()


def _timed(cell: Cell) -> Record:
    """For all studies alike the record says what the cell took: the budget of a later run counts on it.

    And with which source of an operator: whoever edits that is told so.
    """
    began = time.monotonic()
    record = cell.run(**cell.arguments)
    record = {**record, CELL_SECONDS: round(time.monotonic() - began, 3)}
    if "operator" in record:
        record = with_operator_sources(record, [record["operator"]])
    return write_record(cell.record, record)


def _lock_of(cell: Cell) -> Path:
    """Two processes at one cell would write into each other's files."""
    folder = cell.record.parent
    return folder.parent / f".{folder.name}.{cell.record.name}.lock"


def worker_device() -> torch.device:
    """The device of this process: workers on a machine with several GPUs take one each."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", _worker_number % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def start_worker(number: int, threads: int, plugins: list[str]) -> None:
    """What a process that was started for cells must know of the one that started it."""
    global _worker_number
    _worker_number = number
    torch.set_num_threads(threads)
    for plugin in plugins:
        load_plugin(plugin)


_worker_number = 0
_pool: tuple[tuple[Any, ...], ProcessPoolExecutor] | None = None


def _processes(count: int) -> ProcessPoolExecutor:
    """At most so many worker processes, started as there is work for them and kept from one study to the next.

    Starting one takes seconds, and on a GPU what was compiled and loaded there goes with it.
    """
    global _pool
    wanted = (count, tuple(loaded_plugins()))
    if _pool is not None and _pool[0] == wanted:
        return _pool[1]
    close_processes()
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(count, context, _start_beside, (loaded_plugins(),))
    _pool = (wanted, executor)
    return executor


def close_processes() -> None:
    """End the worker processes, at once; what they are at is lost, and what is finished is not."""
    global _pool
    if _pool is not None:
        executor = _pool[1]
        # Its own alone: other children of this process are the caller's. Only Python 3.14 has a way to ask for them.
        workers = list((executor._processes or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for process in workers:  # they would end what they are at, and we wait for them
            process.terminate()
        _pool = None


def _in_processes(cells: Sequence[Cell], engine: Engine, threads: int) -> Iterator[tuple[Cell, Record]]:
    budget = engine.budget
    executor = _processes(engine.at_once)
    waiting = deque(cells)
    running: dict[Future[Record], tuple[Cell, int]] = {}
    free = list(range(engine.at_once))
    try:
        while waiting or running:
            # A cell is started when there is a process for it: only then is known what time is left of a budget, and
            # which numbers, and so devices, are free.
            while waiting and free:
                cell = waiting.popleft()
                if budget is None or budget.start(cell):
                    number = min(free)
                    free.remove(number)
                    running[executor.submit(_run_with, number, threads, cell)] = (cell, number)
            done = wait(running, return_when=FIRST_COMPLETED).done
            for future in done:
                (cell, number), record = running.pop(future), future.result()
                free.append(number)
                if budget is not None:
                    budget.end(cell, record)
                yield cell, record
    except BrokenProcessPool as error:
        close_processes()
        raise TriuneError(
            "a worker process ended before its run did, perhaps for want of memory; what is finished is kept: "
            "start again, with fewer --workers"
        ) from error
    except BaseException:
        close_processes()
        raise


def _run_with(number: int, threads: int, cell: Cell) -> Record:
    global _worker_number
    _worker_number = number
    with threads_at_most(threads):
        return run_cell(cell)


def _start_beside(plugins: list[str]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start_worker(0, 1, plugins)


def _end_with_parent() -> None:
    """A worker whose parent was killed would go on, beside those of a run that is started again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
