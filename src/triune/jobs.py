"""Cells as jobs of a cluster, handed to Slurm by submitit; or, to try that path without one, as processes of this
machine that submitit starts the same way (`jobs`).

Each job takes an equal share of the cells, dealt out in turn. What a job did is read from the records in the common
folder, so that nothing but files passes between the machines.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from triune.cells import Cell, Engine, Record, finished, run_cell, start_worker
from triune.errors import TriuneError, one_line
from triune.operators import loaded_plugins

LOGS = "jobs"  # beside the records of the first cell
POLL_SECONDS = 0.5
TIME_MINUTES = "1440"


def run_as_jobs(cells: Sequence[Cell], engine: Engine, at_once: int, threads: int) -> Iterator[tuple[Cell, Record]]:
    shares = [list(cells[number::at_once]) for number in range(min(at_once, len(cells)))]
    executor = _executor(engine, cells[0].record.parents[1] / LOGS, threads)
    with executor.batch():
        # On a cluster every job has devices of its own; on this machine they are told apart by their numbers.
        numbers = range(len(shares)) if engine.kind == "jobs" else [0] * len(shares)
        jobs = [
            executor.submit(_run_share, share, number, threads, loaded_plugins())
            for share, number in zip(shares, numbers, strict=True)
        ]
    waiting = list(cells)
    try:
        while waiting:
            running = not all(job.done() for job in jobs)  # asked first: what ends meanwhile is seen the next time
            there = [(cell, record) for cell in waiting if (record := finished(cell)) is not None]
            yield from there
            found = {id(cell) for cell, _ in there}
            waiting = [cell for cell in waiting if id(cell) not in found]
            if waiting and not running:
                raise TriuneError(_what_happened(jobs, waiting))
            if waiting:
                time.sleep(POLL_SECONDS)
    except BaseException:
        for job in jobs:
            job.cancel(check=False)
        raise


def _executor(engine: Engine, logs: Path, threads: int) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise TriuneError(
            f"--engine {engine.kind} needs the package submitit: install it with pip install 'triune[slurm]'"
        ) from error
    try:
        executor = submitit.AutoExecutor(folder=str(logs), cluster="local" if engine.kind == "jobs" else "slurm")
        options = dict(engine.options)
        executor.update_parameters(timeout_min=int(options.pop("time", TIME_MINUTES)), cpus_per_task=threads)
        if engine.kind == "slurm":
            executor.update_parameters(gpus_per_node=int(options.pop("gpus", "1")))
            executor.update_parameters(**{f"slurm_{name}": value for name, value in options.items()})
    except (RuntimeError, ValueError, AssertionError, NameError, OSError) as error:
        raise TriuneError(f"--engine {engine.kind}: {one_line(error)}") from error
    return executor


def _run_share(cells: list[Cell], number: int, threads: int, plugins: list[str]) -> str | None:
    """What is left of a share is done; a user's mistake comes back as its line and not as a traceback."""
    start_worker(number, threads, plugins)
    try:
        for cell in cells:
            if finished(cell) is None:
                run_cell(cell)
    except TriuneError as error:
        return one_line(error)
    return None


def _what_happened(jobs: list[Any], waiting: list[Cell]) -> str:
    for job in jobs:
        if (error := job.exception()) is not None:
            last = [line for line in str(error).splitlines() if line.strip()][-1]
            return f"job {job.job_id} failed: {last.strip()}; what is finished is kept (log: {job.paths.stderr})"
        if (said := job.result()) is not None:
            return said
    return f"all jobs ended and '{waiting[0].record}' is not there: is the folder common to all machines?"
