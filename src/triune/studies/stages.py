"""The stages of a reproduction: for each study the cells there are, from the scale and from what earlier stages made.

Everything is found on disk: a stage reads the folders that those before it wrote, and nothing is passed on in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triune.cells import Cell, Engine, Record, run_missing
from triune.presence import MODEL, RECORD, has_lost_weights, has_weights
from triune.progress import Done
from triune.studies.place import Place
from triune.studies.weights import cell_without_weights, pretrained_models


@dataclass(frozen=True)
class Stage:
    """`records(place)` are the files that will be there when it is done: known before anything is run."""

    name: str
    title: str
    records: Callable[[Place], list[Path]]
    run: Callable[[Place, Done], object]
    seconds: Callable[[Place], float]  # of one cell
    needs: tuple[str, ...] = ()
    alone: bool = False  # one cell after the other, and nothing beside it
    line: Callable[[Cell, Record], str] = field(default=lambda cell, record: cell.title)


# Parameters (Tables 3 and 4).


def parameter_records(place: Place) -> list[Path]:
    return [place.out / "parameters.json"] if place.is_first_round else []


def run_parameters(place: Place, done: Done) -> None:
    from triune.benchmarks.parameters import parameter_cell

    run_missing([parameter_cell(path) for path in parameter_records(place)], _here(place), done)


def _here(place: Place) -> Engine:
    """One cell after the other, in this process."""
    return replace(place.engine, kind="local", workers=1, options={})


# Fine-tuning (Tables 1 and 2).


def finetuning_records(place: Place) -> list[Path]:
    return [
        place.out / "tasks" / task / label / name / RECORD
        for task in place.scale.finetuning.tasks
        for label in place.in_turn
        for name in _run_folders(place, task)
    ]


def _run_folders(place: Place, task: str) -> list[str]:
    from triune.studies.searches import search_folders, search_seed

    rounds = place.rounds if place.round is None else [place]
    searches = [name for one in rounds for name in search_folders(place, task, search_seed(one, task))]
    return [*dict.fromkeys(searches), *(f"seed-{seed}" for seed in place.seeds)]


def run_finetuning(place: Place, done: Done) -> None:
    from triune.studies.searches import ending, search_seed
    from triune.training.matrix import Matrix, Search, run_matrix

    part, folder = place.scale.finetuning, place.out / "tasks"
    [seed] = place.pretraining_seeds
    sources = {name: search_seed(place, name) for name in part.tasks}
    models = {one: pretrained_models(place, one) for one in {seed, *sources.values()}}
    studied = {*place.scale.noise.tasks, *place.scale.transfer.tasks}
    recipes = {name: place.recipe_for(name) for name in part.tasks}
    matrix = Matrix(
        {label: models[seed][label] for label in place.in_turn},
        {name: place.task_data(name, recipe.data.rows) for name, recipe in recipes.items()},
        recipes[part.tasks[0]],
        place.seeds,
        folder,
        keep_for={name: "all" if name in studied else "none" for name in part.tasks},
        recipe_for=recipes,
        engine=place.engine,
        searches={name: Search(models[sources[name]], ending(sources[name])) for name in part.tasks},
        records_suffice=True,
    )
    run_matrix(matrix, done)


# Noise (Table 5).


def noise_records(place: Place) -> list[Path]:
    return [
        place.out / "noise" / task / label / f"seed-{seed}.json"
        for seed in place.seeds
        for task in place.scale.noise.tasks
        for label in place.in_turn
    ]


def run_noise(place: Place, done: Done) -> None:
    from triune.evaluation.noise import NoiseSettings, noise_cells

    part = place.scale.noise
    settings = NoiseSettings(where=part.where, draws=part.draws)
    cells = []
    for task in part.tasks:
        data = place.task_data(task, place.recipe_for(task).data.rows)
        cells += _of_kind(task, noise_cells(_models(place, task), data, settings, place.out / "noise"))
        cells += _without_weights(place, task, "noise")
    run_missing(_in_order(cells, noise_records(place)), place.engine, done)


def _in_order(cells: list[Cell], records: list[Path]) -> list[Cell]:
    """Of a seed and task all models one after the other, so that what is there can be compared."""
    return sorted(cells, key=lambda cell: records.index(cell.record))


def _of_kind(kind: str, cells: list[Cell]) -> list[Cell]:
    """A budget measures them apart from others: tasks differ in size."""
    return [replace(cell, kind=kind) for cell in cells]


def _models(place: Place, task: str) -> list[Any]:
    """Fine-tuned models of a task that are here with their weights."""
    from triune.evaluation.finetuned import find_finetuned

    folders = [(label, place.finetuned(task, label, seed)) for label in place.in_turn for seed in place.seeds]
    return find_finetuned([f"{label}={folder}" for label, folder in folders if has_weights(folder / MODEL)])


def _without_weights(place: Place, task: str, study: str) -> list[Cell]:
    """The cells of a study of fine-tuned models whose weights are not here."""
    from triune.data.tasks import get_task

    return [
        cell_without_weights(
            f"{study} · {get_task(task).title} · {label} · seed {seed}",
            place.out / study / task / label / f"seed-{seed}.json",
            place.finetuned(task, label, seed) / MODEL,
        )
        for label in place.in_turn
        for seed in place.seeds
        if not has_weights(place.finetuned(task, label, seed) / MODEL)
    ]


# Cross-task (Table 6).


def transfer_records(place: Place) -> list[Path]:
    return [
        place.out / "transfer" / task / label / f"seed-{seed}.json"
        for seed in place.seeds
        for task in place.scale.transfer.tasks
        for label in place.in_turn
    ]


def run_transfer(place: Place, done: Done) -> None:
    from triune.evaluation.transfer import transfer_cells

    tasks = place.scale.transfer.tasks
    targets = [place.task_data(task, None) for task in tasks]
    # Of one kind: all models are scored on the same targets.
    cells = transfer_cells([model for task in tasks for model in _models(place, task)], targets, place.out / "transfer")
    cells += [cell for task in tasks for cell in _without_weights(place, task, "transfer")]
    run_missing(_in_order(cells, transfer_records(place)), place.engine, done)


# Training time (Figure 3).


def time_records(place: Place) -> list[Path]:
    """All models are timed in turn, in one record: where a run takes some of them only, it times none."""
    is_timed = place.is_first_round and not place.operators
    return [place.out / "time" / f"{task}.json" for task in place.scale.time.tasks if is_timed]


def run_time(place: Place, done: Done) -> None:
    from triune.benchmarks.epoch_time import time_cell

    folders = {label: place.run_of(label) / MODEL for label in place.labels}
    unmade = [one for one in folders.values() if not has_weights(one) and not has_lost_weights(one)]
    gone = [one for one in folders.values() if not has_weights(one)]
    records = dict(zip(place.scale.time.tasks, time_records(place), strict=True))
    left_out = {task for task, record in records.items() if unmade or (gone and record.is_file())}
    if left_out != set(records):
        configs, tokenizer = _timed_models(place, from_recipes=bool(gone))
    cells = []
    for task, record in records.items():
        if task in left_out:
            cells.append(cell_without_weights(f"time · {task}", record, [*unmade, *gone][0]))
            continue
        recipe = place.recipe_for(task)
        data = place.task_data(task, recipe.data.rows)
        timed = time_cell(data, configs, tokenizer, recipe, place.scale.time.rounds, place.out / "time")
        cells += _of_kind(task, [timed])
    run_missing(cells, _here(place), done)


def _timed_models(place: Place, from_recipes: bool) -> tuple[dict[str, Any], str]:
    """Configurations and tokenizer: of the models, or, as weights do not matter for time, of what they were made of."""
    if not from_recipes:
        models = pretrained_models(place)
        return {label: model.config for label, model in models.items()}, next(iter(models.values())).path
    from triune.data.blocks import Blocks
    from triune.studies.variants import operator_recipes
    from triune.training.pretrain import model_config

    blocks = Blocks(place.blocks, "train")
    configs = {label: model_config(recipe, blocks) for label, recipe in operator_recipes(place).items()}
    return configs, str(blocks.tokenizer_folder)


# Looking inside.


def inspect_records(place: Place) -> list[Path]:
    """Of the first round; where its weights have gone and there is no record yet, of a later one."""
    records = {label: place.out / "inspect" / f"{label}.json" for label in place.in_turn}
    if place.is_first_round:
        return list(records.values())
    gone = {label for label in records if has_lost_weights(place.run_of(label) / MODEL)}
    return [record for label, record in records.items() if label in gone and not record.is_file()]


def run_inspect(place: Place, done: Done) -> None:
    from triune.data.blocks import Blocks
    from triune.data.tokenizer import load_tokenizer
    from triune.evaluation.inspection import inspect_cell
    from triune.training.recipe import read_recipe
    from triune.training.stream import ValidationBlocks

    blocks = Blocks(place.blocks, "valid")
    part = read_recipe(place.scale.pretraining.recipe, place.scale.pretraining.set).training
    spread = part.evaluate_from == "whole"  # as the validation loss
    indices = ValidationBlocks(blocks, place.scale.inspect.texts, spread).indices
    tokenizer = load_tokenizer(blocks.tokenizer_folder)
    texts = tokenizer.batch_decode(blocks.batch(indices)["input_ids"], skip_special_tokens=True)
    which = f"{len(indices)} blocks spread over" if spread else f"the first {len(indices)} blocks of"
    source = f"{which} the validation text"
    cells = []
    [seed] = place.pretraining_seeds
    for record in inspect_records(place):
        label, run = record.stem, place.run_of(record.stem, seed)
        if has_weights(run / MODEL):
            cells.append(inspect_cell(label, run, texts, source, place.out / "inspect"))
        else:
            cells.append(cell_without_weights(f"inspect · {label}", record, run / MODEL))
    run_missing(cells, place.engine, done)
