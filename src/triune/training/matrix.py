"""Models × tasks × seeds: the cells of a fine-tuning matrix. What is finished is not run again."""

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import torch

from triune.cells import LOCAL, Cell, Engine, Record, finished, run_missing, worker_device, write_record
from triune.data.encoded import CACHE
from triune.data.tasks import get_task
from triune.errors import DivergedError, TriuneError
from triune.evaluation.comparing import DEV
from triune.evaluation.finetuned import split_label
from triune.kernels import dispatch
from triune.models.here import EVERYWHERE, check_attention
from triune.models.locate import Location, locate_model
from triune.operators import with_operator_sources
from triune.presence import MODEL, RECORD
from triune.training.finetune import Job, finetune, refuse_others_model
from triune.training.finetune_recipe import FinetuneRecipe, finetune_recipe_from_dict
from triune.training.task_data import TaskData, load, problem_for

SEARCH_SEED = 0


@dataclass(frozen=True)
class Search:
    models: dict[str, Location]  # by label
    ending: str = ""  # of the names of its folders


@dataclass(frozen=True)
class Matrix:
    models: dict[str, Location]  # by label
    tasks: dict[str, TaskData]  # by name
    recipe: FinetuneRecipe
    seeds: list[int]
    out: Path
    keep: str = "first"  # models that are kept: of all seeds, of the first, none
    keep_for: Mapping[str, str] = field(default_factory=dict)  # the same for single tasks
    recipe_for: Mapping[str, FinetuneRecipe] = field(default_factory=dict)  # where a task has another recipe
    engine: Engine = LOCAL
    test_files: bool = False
    # By task, where the search of rates starts from other models than the seeds do.
    searches: Mapping[str, "Search"] = field(default_factory=dict)
    # As a study has it: a run whose record is there is finished, even if its model was to be kept and is gone; one
    # whose pre-trained model is gone cannot run; one that diverges has a record that says so, and ends nothing else.
    records_suffice: bool = False

    def recipe_of(self, task: str) -> FinetuneRecipe:
        return self.recipe_for.get(task, self.recipe)

    def keeps(self, task: str, seed: int) -> bool:
        keep = self.keep_for.get(task, self.keep)
        return keep == "all" or (keep == "first" and seed == self.seeds[0])


def label_models(given: list[str]) -> dict[str, Location]:
    """LABEL=PATH, or a path, called by its operator, or by its folder where two have the same operator."""
    found: list[tuple[str | None, Location]] = []
    for text in given:
        label, path = split_label(text)
        found.append((label, locate_model(path)))
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


def run_matrix(matrix: Matrix, done: Callable[[Cell, Record, bool], object]) -> None:
    """Run what is missing.

    The models of a task and seed come one after the other: wherever it is stopped, what is there can be compared. With
    a budget of time tasks are searched when their turn comes, as few as keep all workers busy, so that the first has a
    score soon; meanwhile workers that would wait for the end of a search do what is ready of earlier tasks.
    `done(cell, record, before)` is called for each; `before` says that it was finished before.
    """
    _check_attention(matrix)  # mistakes are found first: here, then in the data
    hashes = {name: load(data).sha256 for name, data in matrix.tasks.items()}
    for name, label, seed in product(matrix.tasks, matrix.models, matrix.seeds):
        if matrix.keeps(name, seed):
            refuse_others_model(matrix.out / name / label / f"seed-{seed}")  # now, and not after the training
    _refuse_others_records(matrix, hashes)
    in_turn = matrix.engine.budget is not None
    of = _cell_count(matrix) if in_turn else None
    ready: list[Cell] = []
    for names in _searched_together(matrix) if in_turn else [list(matrix.tasks)]:
        searches = _searches(matrix, names, hashes)
        if any(finished(cell) is None for cell in searches.values()):
            run_missing([*ready, *searches.values()], matrix.engine, done, of)
            ready = []
        else:
            run_missing(list(searches.values()), matrix.engine, done, of)
        recipes = _chosen(matrix, names, searches)
        ready += [
            _final_cell(matrix, name, label, seed, recipe, hashes[name])
            for seed in matrix.seeds
            for (name, label), recipe in recipes.items()
        ]
    run_missing(ready, matrix.engine, done, of)


def _refuse_others_records(matrix: Matrix, hashes: dict[str, str]) -> None:
    """Those of another recipe, model or data, at whichever rate: now, and not after the search that chooses it."""
    for name, label, seed in product(matrix.tasks, matrix.models, matrix.seeds):
        recipe = matrix.recipe_of(name)
        possible = [recipe.at_rate(rate) for rate in recipe.search.learning_rates] or [recipe]
        refused = []
        for one in possible:
            try:
                finished(_final_cell(matrix, name, label, seed, one, hashes[name]))
            except TriuneError as error:
                refused.append(error)
        if len(refused) == len(possible):
            raise refused[0]


def _check_attention(matrix: Matrix) -> None:
    """That of every model that is still to be trained; of jobs it is for the machine to say that has them."""
    asked = set()
    for name, label in product(matrix.tasks, matrix.models):
        training = matrix.recipe_of(name).training
        dispatch.choose(training.attention)  # a name that nobody knows is wrong everywhere
        if training.attention in EVERYWHERE:
            continue
        missing = any(not (matrix.out / name / label / f"seed-{seed}" / RECORD).is_file() for seed in matrix.seeds)
        if matrix.engine.kind == "local" and missing:
            asked.add((label, training.attention, training.precision))
    for label, attention, precision in sorted(asked):
        device = worker_device()  # not before it is needed: it takes memory of a GPU, which this process has no use for
        config = copy.deepcopy(matrix.models[label].config)
        config._attn_implementation = attention
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            check_attention(config, device)


def _searched_together(matrix: Matrix) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    runs = 0
    for name in matrix.tasks:
        if runs >= matrix.engine.at_once:
            groups.append([])
            runs = 0
        groups[-1].append(name)
        runs += len(matrix.models) * len(matrix.recipe_of(name).search.learning_rates)
    return groups


def _cell_count(matrix: Matrix) -> int:
    """Whatever of them is finished already: calls that go on take as many threads as those before."""
    runs = [len(matrix.seeds) + len(matrix.recipe_of(name).search.learning_rates) for name in matrix.tasks]
    return sum(runs) * len(matrix.models)


Searches = dict[tuple[str, str, float], Cell]  # by task, label and rate


def _searches(matrix: Matrix, names: list[str], hashes: dict[str, str]) -> Searches:
    searches = {name: matrix.searches.get(name, Search(matrix.models)) for name in names}
    return {
        (name, label, rate): _cell(
            matrix,
            name,
            label,
            searches[name].models[label],
            SEARCH_SEED,
            matrix.recipe_of(name).at_rate(rate),
            hashes[name],
            search_folder(rate, searches[name].ending),
            f"search, rate {rate:g}",
        )
        for name in names
        for label in matrix.models
        for rate in matrix.recipe_of(name).search.learning_rates
    }


def _chosen(matrix: Matrix, names: list[str], searches: Searches) -> dict[tuple[str, str], FinetuneRecipe]:
    """The recipe of each task and model: where there is a search, with the best rate on the development set.

    A pair whose search was not finished, for want of time, is left out.
    """
    chosen = {}
    for name, label in ((name, label) for name in names for label in matrix.models):
        recipe = matrix.recipe_of(name)
        rates = recipe.search.learning_rates
        if not rates:
            chosen[name, label] = recipe
            continue
        records = {rate: finished(searches[name, label, rate]) for rate in rates}
        if not all(records.values()):
            continue
        tried = [(record["primary"], rate) for rate, record in records.items() if record and "diverged" not in record]
        if not tried and matrix.records_suffice:
            continue  # the study goes on without the pair, and names it at its end
        if not tried:
            raise TriuneError(f"{label} on {name}: every rate of the search diverged; lower search.learning_rates")
        chosen[name, label] = recipe.at_rate(max(tried)[1])
    return chosen


def search_folder(rate: float, ending: str = "") -> str:
    return f"search-{rate:g}{ending}"


def _final_cell(matrix: Matrix, name: str, label: str, seed: int, recipe: FinetuneRecipe, data_hash: str) -> Cell:
    return _cell(matrix, name, label, matrix.models[label], seed, recipe, data_hash, f"seed-{seed}", f"seed {seed}")


def _cell(
    matrix: Matrix,
    task: str,
    label: str,
    model: Location,
    seed: int,
    recipe: FinetuneRecipe,
    data_hash: str,
    folder: str,
    what: str,
) -> Cell:
    data = matrix.tasks[task]
    described = recipe.to_dict()
    identity = {"recipe": {**described, "about": ""}, "model": model.sha256, "data": data_hash, "seed": seed}
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    is_search = seed == SEARCH_SEED
    keep, test_file = not is_search and matrix.keeps(task, seed), not is_search and matrix.test_files
    kept = (MODEL,) if keep and not matrix.records_suffice else ()
    wanted = () if is_search else (DEV, *kept)  # a search that diverged has a record only
    if test_file:
        wanted += tuple(get_task(data.name).server_files.values())
    where = matrix.out / task / label / folder
    job = Job(model.path, label, seed, described, model.sha256, key, keep, test_file)
    arguments = {"job": job, "model": model, "data": data, "folder": where, "cache": matrix.out / CACHE}
    arguments["diverged_is_kept"] = matrix.records_suffice
    needs = Path(model.path) if matrix.records_suffice else None
    return Cell(f"{data.name} · {label} · {what}", run_finetuning, arguments, where / RECORD, key, wanted, needs, task)


def run_finetuning(
    job: Job, model: Location, data: TaskData, folder: Path, cache: Path, diverged_is_kept: bool = False
) -> Record:
    recipe = finetune_recipe_from_dict(job.recipe, "recipe")
    problem = problem_for(data, model, recipe, cache)
    try:
        return finetune(job, problem, recipe, folder, worker_device())
    except DivergedError as error:
        if job.seed != SEARCH_SEED and not diverged_is_kept:
            raise
        # A rate that is too high loses the search; in a study, a run that diverges is a result.
        started = {"model_path": job.model, "model_sha256": job.model_sha256}
        record = {"identity": job.identity, **started, "diverged": str(error)}
        return write_record(folder / RECORD, with_operator_sources(record, [model.config.operator]))


def finetuning_line(cell: Cell, record: Record) -> str:
    if "diverged" in record:
        return f"{cell.title}: {record['diverged']}"
    what = cell.title.rpartition(" · ")[2]
    return (
        f"{record['task_title']}{' (pocket)' if record.get('pocket') else ''} · {record['model']} · {what}: "
        f"{record['metric_title']} "
        f"{record['primary']:.2f} (epoch {record['best_epoch']} of {record['epochs']}, "
        f"{record['train_seconds']:.1f} s of training)"
    )
