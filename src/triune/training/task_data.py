"""What a fine-tuning run reads, as plain values that travel to other processes; and the problem built from it."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from triune.data import squad
from triune.data.tasks import POCKET, Examples, Task, found, get_task, has_split, load_split, own_task, split_path
from triune.errors import TriuneError, one_line
from triune.models.locate import Location
from triune.training.finetune_recipe import FinetuneRecipe
from triune.training.problems import Problem, SpanProblem, TextProblem


@dataclass(frozen=True)
class TaskData:
    """A task by name with its data from a folder or the hub, or a user's own files."""

    name: str
    data_dir: str | None = None
    own: tuple[str, str, str, str | None, str, str | None] | None = None  # train, dev, text, text2, label, kind
    rows: int | None = None  # of the training split, at most
    with_test: bool = False


@dataclass(frozen=True)
class Loaded:
    task: Task
    splits: dict[str, Any]
    sha256: str
    pocket: bool = False  # the generated benchmark's, whose tasks have the names of GLUE's and SQuAD's


@lru_cache(maxsize=2)
def load(data: TaskData) -> Loaded:
    """Read and check all that the task needs, before anything is trained."""
    if data.own is not None:
        train, dev, text, text2, label, kind = data.own
        task, train_rows, dev_rows = own_task(Path(train), Path(dev), text, text2, label, kind)
        return _loaded(task, {"train": _first(train_rows, data.rows), "dev": dev_rows})
    task = get_task(data.name)
    folder = None if data.data_dir is None else Path(data.data_dir)
    if data.with_test and not task.server_files:
        raise TriuneError(f"there is no test-server file for {task.title}: leave --test-files out")
    pocket = folder is not None and (folder / POCKET).is_file()
    if task.kind == "span":
        return _load_questions(task, folder, data.rows, pocket)
    splits = {"train": load_split(task, "train", folder, data.rows), "dev": load_split(task, "dev", folder)}
    for split in task.dev_splits[1:]:
        if folder is None or has_split(task, split, folder):  # it is a second opinion, not needed
            splits[split] = load_split(task, split, folder)
    if data.with_test:
        splits |= {split: load_split(task, split, folder) for split in task.server_files}
    return _loaded(task, splits, pocket)


def problem_for(data: TaskData, model: Location, recipe: FinetuneRecipe, cache: Path | None) -> Problem:
    loaded = load(data)
    if loaded.task.kind == "span":
        return SpanProblem(loaded.task, model, recipe, loaded.splits, loaded.sha256, loaded.pocket)
    return TextProblem(loaded.task, model, recipe, loaded.splits, cache, loaded.pocket)


def found_lines(data: TaskData) -> list[str]:
    """What was read of each split, for people."""
    loaded = load(data)
    lines = []
    for name, split in loaded.splits.items():
        if loaded.task.kind == "span":
            questions, source, subset = split
            without = sum(not question.answers for question in questions)
            what = f"{len(questions):,} questions, {without:,} of them without an answer"
        else:
            source, subset, what = split.source, split.subset, found(loaded.task, split)
        part = ", not the whole official split" if subset else ""
        lines.append(f"{loaded.task.title}, {name}: {what} ({source}{part})")
    if data.own is not None and (seen := _seen_in_training(loaded.splits)):
        rows = len(loaded.splits["dev"].first)
        lines.append(f"{loaded.task.title}: of {rows:,} rows to score on, the texts of {seen:,} were trained on too")
    return lines


def _seen_in_training(splits: dict[str, Examples]) -> int:
    """Somebody's own split may overlap, or be a copy: how many rows to score on have a text that is trained on."""
    texts = {name: list(zip(part.first, part.second or part.first, strict=True)) for name, part in splits.items()}
    trained = set(texts["train"])
    return sum(text in trained for text in texts["dev"])


def _loaded(task: Task, splits: dict[str, Examples], pocket: bool = False) -> Loaded:
    """The checksum is over what a model is trained and scored on, with the names of its classes."""
    parts = [f"{name}:{part.sha256};" for name, part in splits.items() if not name.startswith("test")]
    return Loaded(task, splits, hashlib.sha256("".join([*parts, *task.classes]).encode()).hexdigest(), pocket)


def _first(examples: Examples, rows: int | None) -> Examples:
    import dataclasses

    if rows is None or rows >= len(examples.first):
        return examples
    second = None if examples.second is None else examples.second[:rows]
    labels = None if examples.labels is None else examples.labels[:rows]
    digest = hashlib.sha256(f"{examples.sha256}:{rows}".encode()).hexdigest()
    return dataclasses.replace(
        examples,
        first=examples.first[:rows],
        second=second,
        labels=labels,
        ids=examples.ids[:rows],
        subset=True,
        sha256=digest,
    )


def _load_questions(task: Task, folder: Path | None, rows: int | None, pocket: bool) -> Loaded:
    splits, parts = {}, []
    for split in ("train", "dev"):
        if folder is None:
            questions, source = _from_hub(task, split)
        else:
            paths = split_path(task, split, folder)
            questions = squad.read_squad_files(paths)
            source = " + ".join(str(path.relative_to(folder)) for path in paths)
        cut = split == "train" and rows is not None and rows < len(questions)
        if cut:
            questions = questions[:rows]
        official = None if pocket else task.counts.get(split)
        subset = cut or (official is not None and len(questions) != official)
        splits[split] = (questions, source, subset)
        parts.append(split)  # a question that moves from one to the other changes both
        parts += [f"{one.id}\0{one.question}\0{one.context}\0{one.answers}" for one in questions]
    return Loaded(task, splits, hashlib.sha256("\n".join(parts).encode()).hexdigest(), pocket)


def _from_hub(task: Task, split: str) -> tuple[list[squad.Question], str]:
    from datasets import load_dataset

    assert task.hub is not None  # every span task that comes with us has one
    where = task.hub.address(split)
    try:
        rows = load_dataset(task.hub.name, task.hub.config, split=task.hub.splits[split])
    except Exception as error:  # datasets and the hub raise many kinds
        raise TriuneError(f"cannot read {where}: {one_line(error)}; or give --data-dir") from error
    if task.name == "triviaqa":
        return squad.trivia_questions(rows)[0], where
    return squad.rows_to_questions(rows, where), where
