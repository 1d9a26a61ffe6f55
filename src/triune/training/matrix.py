"""Models × tasks × seeds: a queue of runs over the devices there are. What is finished is not run again."""

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from triune.data.tasks import get_task
from triune.errors import TriuneError
from triune.evaluation.comparing import DEV, RECORD
from triune.files import write_text
from triune.kernels import dispatch
from triune.models.locate import Location, locate_model
from triune.operators import load_plugin, loaded_plugins
from triune.training.finetune import MODEL, DivergedError, Job, finetune
from triune.training.finetune_recipe import FinetuneRecipe, finetune_recipe_from_dict
from triune.training.task_data import TaskData, load, problem_for

SEARCH_SEED = 0


@dataclass(frozen=True)
class Cell:
    """One run and where it is kept."""

    job: Job
    model: Location
    data: TaskData
    folder: Path
    cache: Path


@dataclass(frozen=True)
class Matrix:
    models: dict[str, Location]  # by label
    tasks: dict[str, TaskData]  # by name
    recipe: FinetuneRecipe
    seeds: list[int]
    out: Path
    keep: str = "first"  # models that are kept: of all seeds, of the first, none
    workers: int | None = None
    test_files: bool = False


def label_models(given: list[str]) -> dict[str, Location]:
    """LABEL=PATH, or a path, called by its operator, or by its folder where two have the same operator."""
    found: list[tuple[str | None, Location]] = []
    for text in given:
        label, equals, path = text.partition("=")
        explicit = bool(equals) and "/" not in label
        found.append((label if explicit else None, locate_model(path if explicit else text)))
    operators = [model.config.operator for label, model in found if label is None]
    labelled: dict[str, Location] = {}
    for given_label, model in found:
        name = given_label or model.config.operator
        if given_label is None and operators.count(name) > 1:
            parts = [part for part in Path(model.path).parts if part != "model"]
            name = parts[-1] if parts else model.path
        if name.startswith("."):  # a folder is called by it
            raise TriuneError(f"a model cannot be called '{name}': name it, as in LABEL=PATH")
        if name in labelled:
            raise TriuneError(f"two models would be called '{name}': name them, as in LABEL=PATH")
        labelled[name] = model
    return labelled


def run_matrix(matrix: Matrix, console: Console, say: Callable[[str], object]) -> list[dict[str, Any]]:
    """Run what is missing and give the records of all runs, in the order model, task, seed."""
    dispatch.choose(matrix.recipe.training.attention)  # mistakes are found first: here, and then in the data
    hashes = {name: load(data).sha256 for name, data in matrix.tasks.items()}
    recipes = _searched(matrix, hashes, console, say)
    cells = []
    for name, data in matrix.tasks.items():
        for label, model in matrix.models.items():
            for seed in matrix.seeds:
                kept = matrix.keep == "all" or (matrix.keep == "first" and seed == matrix.seeds[0])
                folder = matrix.out / name / label / f"seed-{seed}"
                cell = _cell(matrix, data, label, model, seed, recipes[name, label], hashes[name], folder)
                cells.append(replace(cell, job=replace(cell.job, keep_model=kept, test_file=matrix.test_files)))
    return _run(cells, matrix.workers, console, say)


def _searched(
    matrix: Matrix, hashes: dict[str, str], console: Console, say: Callable[[str], object]
) -> dict[tuple[str, str], FinetuneRecipe]:
    """The recipe of each task and model: where there is a search, with the best rate on the development set."""
    rates = matrix.recipe.search.learning_rates
    pairs = [(name, label) for name in matrix.tasks for label in matrix.models]
    if not rates:
        return dict.fromkeys(pairs, matrix.recipe)
    cells = []
    for name, label in pairs:
        for rate in rates:
            folder = matrix.out / name / label / f"search-{rate:g}"
            recipe = matrix.recipe.at_rate(rate)
            model = matrix.models[label]
            cells.append(_cell(matrix, matrix.tasks[name], label, model, SEARCH_SEED, recipe, hashes[name], folder))
    records = iter(_run(cells, matrix.workers, console, say))
    chosen = {}
    for pair in pairs:
        tried = [(record["primary"], rate) for rate in rates if not (record := next(records)).get("diverged")]
        if not tried:
            raise TriuneError(f"{pair[1]} on {pair[0]}: every rate of the search diverged; lower search.learning_rates")
        chosen[pair] = matrix.recipe.at_rate(max(tried)[1])
    return chosen


def _cell(
    matrix: Matrix,
    data: TaskData,
    label: str,
    model: Location,
    seed: int,
    recipe: FinetuneRecipe,
    data_hash: str,
    folder: Path,
) -> Cell:
    described = recipe.to_dict()
    identity = {"recipe": {**described, "about": ""}, "model": model.sha256, "data": data_hash, "seed": seed}
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    job = Job(model.path, label, seed, described, model.sha256, key)
    return Cell(job, model, data, folder, matrix.out / "cache")


def _run(
    cells: list[Cell], workers: int | None, console: Console, say: Callable[[str], object]
) -> list[dict[str, Any]]:
    records: dict[Path, dict[str, Any] | None] = {cell.folder: _finished(cell) for cell in cells}
    waiting = [cell for cell in cells if records[cell.folder] is None]
    if len(waiting) < len(cells):
        say(f"{len(cells) - len(waiting)} of {len(cells)} runs are finished already")
    with _progress(console) as progress:
        task = progress.add_task("runs", total=len(cells), completed=len(cells) - len(waiting))
        for cell, finished in _each(waiting, workers):
            records[cell.folder] = finished
            progress.advance(task)
            progress.console.print(_line(finished), soft_wrap=True, markup=False)
    return [record for cell in cells if (record := records[cell.folder]) is not None]


def _each(cells: list[Cell], workers: int | None) -> Iterator[tuple[Cell, dict[str, Any]]]:
    count = min(len(cells), workers or _devices())
    if count <= 1:
        for cell in cells:
            yield cell, _run_cell(cell)
        return
    context = multiprocessing.get_context("spawn")
    numbers = context.Queue()
    for number in range(count):
        numbers.put(number)
    start = (numbers, max(1, (os.cpu_count() or 1) // count), loaded_plugins())
    with ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker, initargs=start) as executor:
        try:
            running = {executor.submit(_run_cell, cell): cell for cell in cells}
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool as error:
            raise TriuneError(
                "a worker process ended before its run did, perhaps for want of memory; what is finished is kept: "
                "start again, with fewer --workers"
            ) from error
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def _devices() -> int:
    """Runs at once: one a GPU; on the CPU one a core, because small models gain nothing from a second thread."""
    return torch.cuda.device_count() if torch.cuda.is_available() else (os.cpu_count() or 1)


_worker_number = 0


def _start_worker(numbers: Any, threads: int, plugins: list[str]) -> None:
    global _worker_number
    _worker_number = numbers.get()
    torch.set_num_threads(threads)
    for plugin in plugins:
        load_plugin(plugin)


def _run_cell(cell: Cell) -> dict[str, Any]:
    from transformers.utils import logging

    logging.set_verbosity_error()  # a fresh head is what we want, and not worth a warning in each run
    logging.disable_progress_bar()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", _worker_number % torch.cuda.device_count())
        torch.cuda.set_device(device)
    recipe = finetune_recipe_from_dict(cell.job.recipe, "recipe")
    problem = problem_for(cell.data, cell.model, recipe, cell.cache)
    try:
        return finetune(cell.job, problem, recipe, cell.folder, device)
    except DivergedError as error:
        if cell.job.seed != SEARCH_SEED:
            raise
        record = {"identity": cell.job.identity, "diverged": str(error)}  # a rate that is too high loses the search
        write_text(cell.folder / RECORD, json.dumps(record) + "\n")
        return record


def _finished(cell: Cell) -> dict[str, Any] | None:
    path = cell.folder / RECORD
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        return None
    except ValueError as error:
        raise TriuneError(f"'{path}' is not valid JSON ({error}): remove its folder and start again") from error
    if not isinstance(record, dict) or record.get("identity") != cell.job.identity:
        raise TriuneError(f"'{path}' is of another recipe, model or data: choose another --out, or remove that folder")
    if "diverged" in record:
        return record
    wanted = [DEV, *([MODEL] if cell.job.keep_model else [])]
    if cell.job.test_file:
        wanted += get_task(cell.data.name).server_files.values()
    return record if all((cell.folder / name).exists() for name in wanted) else None


def _line(record: dict[str, Any]) -> str:
    if "diverged" in record:
        return f"search: {record['diverged']}"
    what = f"seed {record['seed']}"
    if record["seed"] == SEARCH_SEED:
        what = f"search, rate {record['recipe']['optimizer']['learning_rates'][0]:g}"
    return (
        f"{record['task_title']} · {record['model']} · {what}: {record['metric_title']} "
        f"{record['primary']:.2f} (epoch {record['best_epoch']} of {record['epochs']}, "
        f"{record['train_seconds']:.1f} s of training)"
    )


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
