"""The stages of a reproduction: for each study the cells there are, from the scale and from what earlier stages made.

Everything is found on disk: a stage reads the folders that those before it wrote, and nothing is passed on in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triune.cells import LOCAL, Cell, Record, run_missing
from triune.progress import Done
from triune.studies.place import FIRST_SEED, Place


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
    return [place.out / "parameters.json"]


def run_parameters(place: Place, done: Done) -> None:
    from triune.benchmarks.parameters import parameter_cell

    run_missing([parameter_cell(parameter_records(place)[0])], LOCAL, done)


# Pre-training (Figure 2).


def pretraining_records(place: Place) -> list[Path]:
    return [place.run_of(label) / "summary.json" for label in place.labels]


def run_pretraining(place: Place, done: Done) -> None:
    from triune.training.pretraining_cell import pretraining_cell
    from triune.training.recipe import load_recipe, swap_operator

    name, settings = place.scale.pretraining.recipe, place.scale.pretraining.settings
    own = load_recipe(name).model.operator
    cells = []
    for operator in place.labels:
        # The recipe's settings are those of its own operator.
        overrides = [] if operator == own else swap_operator(operator)
        overrides += [f"model.operator_settings.{key}={value}" for key, value in settings.get(operator, {}).items()]
        recipe = load_recipe(name, overrides)
        cells.append(pretraining_cell(f"{operator}, {recipe.about}", recipe, place.blocks, place.run_of(operator)))
    run_missing(cells, place.engine, done)


# Fine-tuning (Tables 1 and 2).


def finetuning_records(place: Place) -> list[Path]:
    return [
        place.out / "tasks" / task / label / name / "record.json"
        for task in place.scale.finetuning.tasks
        for label in place.labels
        for name in _run_folders(place, task)
    ]


def _run_folders(place: Place, task: str) -> list[str]:
    rates = place.recipe_for(task).search.learning_rates
    return [f"search-{rate:g}" for rate in rates] + [f"seed-{seed}" for seed in place.seeds]


def run_finetuning(place: Place, done: Done) -> None:
    from triune.data.tasks import get_task
    from triune.training.matrix import Matrix, label_models, run_matrix

    part, folder = place.scale.finetuning, place.out / "tasks"
    models = label_models([f"{label}={place.run_of(label)}" for label in place.labels])
    studied = {*place.scale.noise.tasks, *place.scale.transfer.tasks}
    spans = [name for name in part.tasks if get_task(name).kind == "span"]
    for names in filter(None, ([name for name in part.tasks if name not in spans], spans)):
        recipe = place.recipe_for(names[0])
        tasks = {name: place.task_data(name, recipe.data.rows) for name in names}
        keep = {name: "all" if name in studied else "none" for name in names}
        run_matrix(Matrix(models, tasks, recipe, place.seeds, folder, keep_for=keep, engine=place.engine), done)


# Noise (Table 5).


def noise_records(place: Place) -> list[Path]:
    return [
        place.out / "noise" / task / label / f"seed-{seed}.json"
        for task in place.scale.noise.tasks
        for label in place.labels
        for seed in place.seeds
    ]


def run_noise(place: Place, done: Done) -> None:
    from triune.evaluation.noise import NoiseSettings, noise_cells

    part = place.scale.noise
    settings = NoiseSettings(where=part.where, draws=part.draws)
    cells = []
    for task in part.tasks:
        data = place.task_data(task, place.recipe_for(task).data.rows)
        cells += noise_cells(_models(place, task), data, settings, place.out / "noise")
    run_missing(cells, place.engine, done)


def _models(place: Place, task: str) -> list[Any]:
    from triune.evaluation.finetuned import find_finetuned

    folders = [f"{label}={place.finetuned(task, label, seed)}" for label in place.labels for seed in place.seeds]
    return find_finetuned(folders)


# Cross-task (Table 6).


def transfer_records(place: Place) -> list[Path]:
    return [
        place.out / "transfer" / task / label / f"seed-{seed}.json"
        for task in place.scale.transfer.tasks
        for label in place.labels
        for seed in place.seeds
    ]


def run_transfer(place: Place, done: Done) -> None:
    from triune.evaluation.transfer import transfer_cells

    tasks = place.scale.transfer.tasks
    models = [model for task in tasks for model in _models(place, task)]
    targets = [place.task_data(task, None) for task in tasks]
    run_missing(transfer_cells(models, targets, place.out / "transfer"), place.engine, done)


# Training time (Figure 3).


def time_records(place: Place) -> list[Path]:
    return [place.out / "time" / f"{task}.json" for task in place.scale.time.tasks]


def run_time(place: Place, done: Done) -> None:
    from triune.benchmarks.epoch_time import time_cell
    from triune.models.locate import locate_model

    part = place.scale.time
    models = {label: locate_model(str(place.run_of(label))) for label in place.labels}
    configs = {label: model.config for label, model in models.items()}
    tokenizer = next(iter(models.values())).path
    cells = []
    for task in part.tasks:
        recipe = place.recipe_for(task)
        data = place.task_data(task, recipe.data.rows)
        cells.append(time_cell(data, configs, tokenizer, recipe, part.rounds, place.out / "time"))
    run_missing(cells, replace(place.engine, kind="local", workers=1, options={}), done)


# Ablations and controls.


def ablation_records(place: Place) -> list[Path]:
    from triune.studies.ablations import load_ablations

    part = place.scale.ablations
    return [
        place.out / "ablations" / variant.name / f"seed-{seed}" / "summary.json"
        for variant in load_ablations(part.variants).variants
        for seed in _ablation_seeds(place)
    ]


def run_ablations(place: Place, done: Done) -> None:
    from triune.studies.ablations import ablation_cells, load_ablations, write_ablations

    part, folder = place.scale.ablations, place.out / "ablations"
    ablations = load_ablations(part.variants)
    seeds = _ablation_seeds(place)
    cells = ablation_cells(ablations, place.scale.pretraining.recipe, part.set, seeds, place.blocks, folder)
    run_missing(cells, place.engine, done)
    write_ablations(ablations, seeds, folder)


def _ablation_seeds(place: Place) -> list[int]:
    return list(range(FIRST_SEED, FIRST_SEED + place.scale.ablations.seeds))


# Looking inside.


def inspect_records(place: Place) -> list[Path]:
    return [place.out / "inspect" / f"{label}.json" for label in place.labels]


def run_inspect(place: Place, done: Done) -> None:
    from triune.data.blocks import Blocks
    from triune.data.tokenizer import load_tokenizer
    from triune.evaluation.inspection import inspect_cell

    blocks = Blocks(place.blocks, "valid")
    count = min(place.scale.inspect.texts, len(blocks))
    tokenizer = load_tokenizer(blocks.tokenizer_folder)
    texts = tokenizer.batch_decode(blocks.batch(list(range(count)))["input_ids"], skip_special_tokens=True)
    source = f"the first {count} blocks of the validation text"
    cells = [inspect_cell(label, place.run_of(label), texts, source, place.out / "inspect") for label in place.labels]
    run_missing(cells, place.engine, done)
