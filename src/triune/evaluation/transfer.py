"""A model that was fine-tuned on one task of text pairs, tested on the development sets of others (paper: Table 6).

On its own task it is scored on that task's classes. On another, both sides are reduced to two: the class that says that
the second text follows from the first, or says the same (`agreement` in tasks.yaml), against the rest. A model of three
classes answers "the rest" where its most likely class is not that one; labels of three classes are reduced likewise.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from triune import operators
from triune.benchmarks.paper import TABLE_6_TASKS
from triune.cells import Cell, Record, worker_device, write_record
from triune.data.encoded import encode_pairs
from triune.data.examples import ids_sha256
from triune.data.tasks import Examples, Task, get_task, has_split, load_split, own_task, task_names
from triune.errors import TriuneError, did_you_mean, shown
from triune.evaluation.finetuned import Finetuned, precision_of, task_of
from triune.evaluation.metrics import score
from triune.evaluation.predict import Predictor
from triune.evaluation.predicting import predict_logits
from triune.training.run_folder import versions
from triune.training.task_data import TaskData

STUDY = "transfer"
VERSION = 1  # of what is measured: records of another one are not taken
REST = "rest"


@dataclass(frozen=True)
class OwnFile:
    """A user's own pairs of texts. `agreement` is the class in it that says so; found where it has a usual name."""

    path: str
    text: str
    text2: str
    label: str
    agreement: str | None = None


@dataclass(frozen=True)
class Target:
    """A development set. `agreement` is None where it is scored on the classes of the source task."""

    name: str
    split: str
    title: str
    examples: Examples
    classes: tuple[str, ...]
    agreement: str | None
    own_task: bool = False
    out_of_domain: bool = False


def pair_task(name: str) -> Task:
    """A task of two texts with a class that says that they agree; no other can take part."""
    task = get_task(name)
    if task.agreement is None:
        fit = [one for one in task_names() if get_task(one).agreement is not None]
        raise TriuneError(f"{task.title} has no class that says that two texts agree: choose among {', '.join(fit)}")
    return task


def transfer_cells(
    models: Sequence[Finetuned], targets: Sequence[TaskData], out: Path, own: OwnFile | None = None
) -> list[Cell]:
    """A cell for each model, with all targets in it; records are out/SOURCE/MODEL/seed-N.json."""
    cells = []
    for model in models:
        data = [
            [one.name, one.split, one.title, one.examples.sha256, one.classes, one.agreement]
            for one in find_targets(model.task, targets, own)
        ]
        precision = precision_of(model.location)
        described = {"study": STUDY, "version": VERSION, "model": model.location.sha256, "data": data}
        described["precision"] = precision
        identity = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:24]
        record = out / model.task / model.label / f"seed-{model.seed}.json"
        arguments = {
            "model": model.path,
            "label": model.label,
            "seed": model.seed,
            "sha256": model.location.sha256,
            "precision": precision,
            "targets": tuple(targets),
            "own": own,
            "record": record,
            "identity": identity,
        }
        title = f"transfer · {get_task(model.task).title} · {model.label} · seed {model.seed}"
        cells.append(Cell(title, measure_transfer, arguments, record, identity))
    return cells


def measure_transfer(
    model: str,
    label: str,
    seed: int,
    sha256: str,
    precision: str,
    targets: Sequence[TaskData],
    own: OwnFile | None,
    record: Path,
    identity: str,
) -> Record:
    """Score the model in a folder on every target and write the record."""
    device = worker_device()
    predictor = Predictor(model, device)
    source = pair_task(task_of(model))
    known = tuple(predictor.config.id2label[number] for number in range(predictor.config.num_labels))
    if known != source.classes:
        raise TriuneError(f"'{model}' has the classes {', '.join(known)}, which are not those of {source.title}")
    found = find_targets(source.name, targets, own)
    return write_record(
        record,
        {
            "study": STUDY,
            "identity": identity,
            "source": source.name,
            "source_title": source.title,
            "model": label,
            "operator": predictor.config.operator,
            "model_path": model,
            "model_sha256": sha256,
            "seed": seed,
            "precision": precision,
            "targets": [_scored(source, target, _predicted(predictor, target, precision)) for target in found],
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "versions": versions(),
        },
    )


def transfer_line(cell: Cell, record: Record) -> str:
    scores = ", ".join(f"{target['title']} {target['score']:.2f}" for target in record["targets"])
    return f"{cell.title}: {scores}"


def find_targets(source_name: str, targets: Sequence[TaskData], own: OwnFile | None = None) -> list[Target]:
    """The development set of each target, other ones of the source task where they are there, and the user's own."""
    source = pair_task(source_name)
    found, more = [], []
    for data in targets:
        task = pair_task(data.name)
        is_source = task.name == source.name
        agreement = None if is_source else task.agreement
        examples = _examples(task.name, "dev", data.data_dir)
        found.append(Target(task.name, "dev", task.title, examples, task.classes, agreement, own_task=is_source))
        for split in task.dev_splits[1:] if is_source else ():
            if data.data_dir is None or has_split(task, split, Path(data.data_dir)):
                examples = _examples(task.name, split, data.data_dir)
                title = f"{task.title} {split.removeprefix('dev_')}"
                more.append(Target(task.name, split, title, examples, task.classes, None, out_of_domain=True))
    if own is not None:
        more.append(_own_target(source, own))
    return found + more


def read_transfers(out: Path) -> list[Record]:
    """All records of the study under a folder, in the order of the paper's table."""
    records = []
    for path in sorted(out.glob("*/*/seed-*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TriuneError(f"cannot read '{path}': {error}") from error
        if not isinstance(record, dict) or record.get("study") != STUDY:
            raise TriuneError(f"'{path}' is no record of `triune transfer`: choose another --out")
        records.append({**record, "file": path.relative_to(out).as_posix()})
    return sorted(records, key=_order)


def _order(record: Record) -> tuple[Any, ...]:
    tasks, known = list(TABLE_6_TASKS), operators.names()
    task = tasks.index(record["source"]) if record["source"] in tasks else len(tasks)
    model = known.index(record["model"]) if record["model"] in known else len(known)
    return task, record["source"], model, record["model"], record["seed"]


@lru_cache(maxsize=16)
def _examples(task: str, split: str, data_dir: str | None) -> Examples:
    return load_split(get_task(task), split, None if data_dir is None else Path(data_dir))


@lru_cache(maxsize=2)
def _own_examples(own: OwnFile) -> tuple[Task, Examples]:
    task, _, examples = own_task(Path(own.path), Path(own.path), own.text, own.text2, own.label, "classification")
    return task, examples


def _own_target(source: Task, own: OwnFile) -> Target:
    """Scored on the source's classes where it has all that are in the file, otherwise on two."""
    task, examples = _own_examples(own)
    agreement = own.agreement
    if agreement is not None and agreement not in task.classes:
        raise TriuneError(f"'{own.path}' has no class '{shown(agreement)}'{did_you_mean(agreement, task.classes)}")
    if agreement is None and not set(task.classes) <= set(source.classes):
        usual = {get_task(name).agreement for name in task_names()}
        fit = [name for name in task.classes if name in usual]
        if len(fit) != 1:
            classes = ", ".join(shown(name) for name in task.classes)
            raise TriuneError(
                f"which class of '{own.path}' says that the second text follows from the first, or says the same? "
                f"Give it as --positive; there are {classes}"
            )
        agreement = fit[0]
    return Target("own", "dev", task.title, examples, task.classes, agreement, out_of_domain=True)


def _predicted(predictor: Predictor, target: Target, precision: str) -> np.ndarray:
    """The most likely class of the source task for each row, in the precision of its fine-tuning."""
    examples = target.examples
    encoded = encode_pairs(predictor.tokenizer, examples.first, examples.second, None, predictor.longest)
    pad = int(predictor.tokenizer.pad_token_id)
    half = precision == "bfloat16"
    logits = predict_logits(predictor.model, encoded, "classification", pad, predictor.longest, predictor.device, half)
    return logits.argmax(1)


def _scored(source: Task, target: Target, predicted: np.ndarray) -> dict[str, Any]:
    assert target.examples.labels is not None  # development sets have them
    names = [target.classes[int(label)] for label in target.examples.labels]
    if target.agreement is None:
        classes = source.classes
        gold = np.array([classes.index(name) for name in names])
        mapping = f"The classes of {source.title}: {', '.join(classes)}."
    else:
        assert source.agreement is not None
        others = [name for name in target.classes if name != target.agreement]
        classes = (target.agreement, others[0] if len(others) == 1 else REST)
        gold = np.array([int(name != target.agreement) for name in names])
        predicted = (predicted != source.classes.index(source.agreement)).astype(np.int64)
        mapping = (
            f"Two classes: {_against(source.classes, source.agreement)} in {source.title} stands for "
            f"{_against(target.classes, target.agreement)} in {target.title}."
        )
    return {
        "target": target.name,
        "split": target.split,
        "title": target.title,
        "out_of_domain": target.out_of_domain,
        "own_task": target.own_task,
        "dev_source": target.examples.source,
        "data_sha256": target.examples.sha256,
        "rows": len(gold),
        "subset": target.examples.subset,
        "classes": list(classes),
        "mapping": mapping,
        "score": score("accuracy", predicted, gold),
        "majority": 100 * max(Counter(gold.tolist()).values()) / len(gold),
        "ids": ids_sha256(target.examples.ids),
        "right": (predicted == gold).astype(int).tolist(),
    }


def _against(classes: Sequence[str], agreement: str) -> str:
    return f"{agreement} (against {' and '.join(name for name in classes if name != agreement)})"
