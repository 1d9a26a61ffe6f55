"""Where a reproduction is made and of what: its folders, and the text, tokenizer and blocks that studies stand on."""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triune.cells import LOCAL, Engine
from triune.errors import TriuneError, did_you_mean, shown
from triune.evaluation.comparing import ONE_MATRIX, REFERENCE
from triune.files import write_text
from triune.studies.scale import VARIANT_LIST, Scale

FIRST_SEED = 1
FIRST = (REFERENCE, *ONE_MATRIX)  # the comparison that all of it is about
MADE_OF = "made-of.json"  # beside a tokenizer that was trained here


@dataclass(frozen=True)
class Place:
    """Where a reproduction is made, of what, and by whom.

    With several pre-training seeds the work is done in rounds: one pre-training seed of every model and all that
    starts from it, so that each round is a comparison by itself and needs the weights of that round only.
    """

    out: Path
    scale: Scale
    data_dir: Path | None = None
    engine: Engine = LOCAL
    round: int | None = None  # only what belongs to it; by default all of them
    turn: int | None = None  # only this seed of fine-tuning; by default all of the round
    variants: str | None = None  # only this list of variants; by default all of them
    operators: tuple[str, ...] = ()  # only models of these are made and studied in this run; by default all of them

    @property
    def rounds(self) -> list["Place"]:
        return [replace(self, round=number) for number in range(self.scale.pretraining.seeds)]

    @property
    def turns(self) -> list["Place"]:
        """With a budget, all that is made of one fine-tuning seed comes before the next; otherwise all at once."""
        if self.engine.budget is None:
            return [self]
        return [replace(self, turn=seed) for seed in self.seeds]

    @property
    def by_list(self) -> list["Place"]:
        """With a budget, the rates and runs of one list of variants come before the next; otherwise all at once."""
        if self.engine.budget is None:
            return [self]
        return [replace(self, variants=name) for name in self.scale.ablations.lists]

    def of_round(self, seeds: int) -> list[int]:
        """Of so many seeds, those of the round: they take turns."""
        all_of_them = range(FIRST_SEED, FIRST_SEED + seeds)
        count = self.scale.pretraining.seeds
        return [seed for seed in all_of_them if self.round is None or (seed - FIRST_SEED) % count == self.round]

    @property
    def is_first_round(self) -> bool:
        return self.round in (None, 0)

    @property
    def blocks(self) -> Path:
        return self.out / "blocks"

    @property
    def tasks_dir(self) -> Path | None:
        return self.out / "pocket" if self.scale.data.source == "pocket" else self.data_dir

    @property
    def labels(self) -> list[str]:
        return list(self.scale.pretraining.operators)

    def takes(self, operator: str) -> bool:
        """Whether models of an operator are made and studied in this run."""
        return not self.operators or operator in self.operators

    @property
    def in_turn(self) -> list[str]:
        """The labels that are worked at in this run, in that order."""
        taken = filter(self.takes, self.labels)
        return sorted(taken, key=lambda label: FIRST.index(label) if label in FIRST else len(FIRST))

    @property
    def pretraining_seeds(self) -> list[int]:
        return self.of_round(self.scale.pretraining.seeds)

    @property
    def seeds(self) -> list[int]:
        """Of fine-tuning."""
        all_of_round = self.of_round(self.scale.finetuning.seeds)
        return all_of_round if self.turn is None else [self.turn]

    def run_of(self, label: str, seed: int = FIRST_SEED) -> Path:
        run = self.out / "runs" / label
        return run if self.scale.pretraining.seeds == 1 else run / f"seed-{seed}"

    def finetuned(self, task: str, label: str, seed: int) -> Path:
        return self.out / "tasks" / task / label / f"seed-{seed}"

    def recipe_for(self, task: str) -> Any:
        """Of fine-tuning on a task."""
        from triune.data.tasks import get_task
        from triune.training.finetune_recipe import load_finetune_recipe

        part = self.scale.finetuning
        is_span = get_task(task).kind == "span"
        return load_finetune_recipe(part.span_recipe if is_span and part.span_recipe else part.recipe, part.set)

    def task_data(self, name: str, rows: int | None) -> Any:
        from triune.training.task_data import TaskData

        return TaskData(name, None if self.tasks_dir is None else str(self.tasks_dir), None, rows)


def check(place: Place) -> None:
    """Find what is wrong with a scale or a folder before anything is run."""
    from triune.data.sources import HUB, source_files
    from triune.data.tasks import get_task
    from triune.evaluation.transfer import pair_task
    from triune.studies.ablations import load_ablations
    from triune.studies.variants import lists_of, operator_recipes
    from triune.training.pretrain import check_recipe
    from triune.training.recipe_files import recipes_with

    if place.out.exists() and not place.out.is_dir():
        raise TriuneError(f"--out '{place.out}' is not a folder")
    scale = place.scale
    if scale.data.source == "files":
        for source in [*_sources(place, scale.data.corpus), *_sources(place, scale.data.valid)]:
            if not source.where.startswith(HUB):
                source_files(source)  # one that is not there is said
    for label, recipe in operator_recipes(place).items():
        check_recipe(recipe, label)
    for task in scale.finetuning.tasks:
        place.recipe_for(task)
    for task in scale.transfer.tasks:
        pair_task(task)
    for task in {*scale.noise.tasks, *scale.time.tasks}:
        if get_task(task).kind == "span":
            raise TriuneError(f"{get_task(task).title} asks for answers in a text: noise and time take tasks of texts")
    if left_out := scale.ablations.leave_out:
        lists = [*scale.ablations.lists, *recipes_with(VARIANT_LIST)]  # a call may do without some that a scale has
        known = list(dict.fromkeys(one.name for name in lists for one in load_ablations(name).variants))
        for name in left_out:
            if name not in known:
                hint = did_you_mean(name, known)
                raise TriuneError(f"ablations.leave_out: no list has a variant '{shown(name)}'{hint}")
    made = dict.fromkeys(place.labels)
    for one in lists_of(place):
        for name, recipe in one.recipes.items():
            check_recipe(recipe, name)
            made[recipe.model.operator] = None
    for operator in place.operators:
        if operator not in made:
            hint = did_you_mean(operator, made)
            raise TriuneError(f"--operator: no model of this scale has '{shown(operator)}'{hint}")


def check_tasks(place: Place, studies: Collection[str]) -> None:
    """Find out that a task's files are not in the user's folder before models are trained for it."""
    from triune.data.tasks import get_task, split_path

    if place.scale.data.source != "files" or place.data_dir is None:
        return
    for task in place.scale.finetuning.tasks if "finetuning" in studies else ():
        for split in ("train", "dev"):
            split_path(get_task(task), split, place.data_dir)
    for task in place.scale.time.tasks if "time" in studies else ():
        if not (place.out / "time" / f"{task}.json").is_file():
            split_path(get_task(task), "train", place.data_dir)


def make_data(place: Place, say: Callable[[str], None]) -> None:
    """Text, tokenizer and blocks; what is there and current is left alone."""
    from triune.data.pocket import write_pocket
    from triune.data.prepare import prepare
    from triune.training.recipe import read_recipe

    part = place.scale.data
    if part.source == "pocket":
        write_pocket(place.out / "pocket")
        corpus: list[Any] = [str(place.out / "pocket" / "corpus" / "pocket-*.txt")]
        valid: list[Any] = [str(place.out / "pocket" / "corpus" / "valid-pocket.txt")]
    else:
        corpus, valid = (_sources(place, listed) for listed in (part.corpus, part.valid))
    tokenizer: str | Path = place.out / "tokenizer"
    if part.vocabulary is None:
        inside = None if place.data_dir is None else place.data_dir / str(part.tokenizer)
        tokenizer = inside if inside is not None and inside.is_dir() else str(part.tokenizer)
    else:
        _own_tokenizer(place, corpus, part.vocabulary)
    recipe = read_recipe(place.scale.pretraining.recipe, place.scale.pretraining.set)
    prepare(corpus, tokenizer, place.blocks, recipe.data.block_length, valid_sources=valid, say=say)


def _own_tokenizer(place: Place, corpus: list[Any], size: int) -> None:
    """Trained once; one that was trained for something else is an error, because models are made for it."""
    from triune.data.tokenizer import train_tokenizer

    folder = place.out / "tokenizer"
    described = {"vocabulary": size, "corpus": place.scale.data.corpus or "pocket"}
    try:
        before = json.loads((folder / MADE_OF).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        train_tokenizer(corpus, size, folder)
        write_text(folder / MADE_OF, json.dumps(described) + "\n")
        return
    if before != described:
        raise TriuneError(f"'{folder}' was trained for {before}, and {described} is wanted: choose another --out")


def _sources(place: Place, listed: list[str]) -> list[Any]:
    from triune.data.sources import HUB, source_from

    if place.data_dir is None:
        raise TriuneError("this scale reads its text from files: give --data-dir")
    if not place.data_dir.is_dir():
        raise TriuneError(f"--data-dir '{place.data_dir}' is not a folder")
    return [source_from(one if one.startswith(HUB) else str(place.data_dir / one)) for one in listed]
