"""How much of its score a fine-tuned model keeps when its input is noisy (the paper's Table 5, and corruptions).

Gaussian noise is added to the embeddings at evaluation, with σ = level · mean‖e‖ / √d; corruptions change texts or
tokens at a rate. Shapes as in `perturbed`.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError

from triune.benchmarks.paper import TABLE_5_LEVELS
from triune.cells import Cell, Record, worker_device, write_record
from triune.data.corruptions import MASKED, TEXT_KINDS, Draws
from triune.data.encoded import CACHE, encode_pairs
from triune.data.examples import class_list, ids_sha256
from triune.data.task_list import Task, get_task
from triune.errors import TriuneError, did_you_mean, one_line, shown
from triune.evaluation.finetuned import Finetuned, precision_of
from triune.evaluation.metrics import METRICS, score
from triune.evaluation.perturbed import Array, Asked, embedding_norm, under_corruption, under_noise
from triune.evaluation.predict import HEADS, Predictor
from triune.models.heads import TriuneForSequenceClassification
from triune.training.run_folder import versions
from triune.training.task_data import TaskData, load

STUDY = "noise"
VERSION = 1  # of what is measured: records of another one are not taken
GAUSSIAN = "gaussian"
KINDS = (GAUSSIAN, *TEXT_KINDS, MASKED)


@strict
@dataclass
class NoiseSettings:
    where: Literal["before", "after"] = "after"  # the embedding LayerNorm
    draws: int = 3
    levels: list = field(default_factory=lambda: list(TABLE_5_LEVELS))  # of Gaussian noise: shares of the mean norm
    rates: list = field(default_factory=lambda: [0.0, 0.1, 0.2, 0.4])  # of corruptions
    kinds: list = field(default_factory=lambda: list(KINDS))
    seed: int = 0

    def validate_values(self) -> None:
        for name in ("levels", "rates"):
            values = getattr(self, name)
            numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values)
            rising = numbers and all(a < b for a, b in itertools.pairwise(values))
            if len(values) < 2 or not rising or values[0] != 0 or not values[-1] < math.inf:
                raise ValueError(f"{name} must begin with 0 and rise, with one or more after it, not {values}")
        if self.rates[-1] > 1:
            raise ValueError(f"rates are shares up to 1 (100 %), not {self.rates[-1]}")
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f"unknown kind of noise '{shown(kind)}'{did_you_mean(str(kind), KINDS)}")
        if not self.kinds or len(set(self.kinds)) != len(self.kinds):
            raise ValueError(f"kinds must be one or more of {', '.join(KINDS)}, each once")
        if self.draws < 1 or self.seed < 0:
            raise ValueError(f"draws must be at least 1 and seed at least 0, not {self.draws} and {self.seed}")

    def steps(self, kind: str) -> list[float]:
        return self.levels if kind == GAUSSIAN else self.rates


def noise_settings(**values: Any) -> NoiseSettings:
    """Settings as a user gives them: what is wrong is one line."""
    try:
        return NoiseSettings(**values)
    except StrictDataclassError as error:
        raise TriuneError(f"settings of the noise: {one_line(error.__cause__ or error)}") from error


def noise_cells(models: Sequence[Finetuned], data: TaskData, settings: NoiseSettings, out: Path) -> list[Cell]:
    """A cell for each model; records are out/TASK/MODEL/seed-N.json. Models that do not fit the task are found here."""
    if data.own is None and get_task(data.name).kind == "span":
        title = get_task(data.name).title
        raise TriuneError(f"{title} asks for answers in a text: noise is measured on tasks with classes or numbers")
    loaded = load(data)
    cells: list[Cell] = []
    for model in models:
        _check_fits(model, data, loaded.task)
        precision = precision_of(model.location)
        described = {"study": STUDY, "version": VERSION, "model": model.location.sha256, "data": loaded.sha256}
        described |= {"settings": asdict(settings), "precision": precision}
        identity = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:24]
        record = out / loaded.task.name / model.label / f"seed-{model.seed}.json"
        if any(cell.record == record for cell in cells):  # of several tasks, on one's own data
            raise TriuneError(f"two models would be '{model.label}', seed {model.seed}: name them, as in LABEL=PATH")
        arguments = {
            "model": model.path,
            "label": model.label,
            "seed": model.seed,
            "sha256": model.location.sha256,
            "data": data,
            "settings": asdict(settings),
            "precision": precision,
            "record": record,
            "identity": identity,
            "cache": out / CACHE,
        }
        title = f"noise · {loaded.task.title} · {model.label} · seed {model.seed}"
        cells.append(Cell(title, measure_noise, arguments, record, identity))
    return cells


def measure_noise(
    model: str,
    label: str,
    seed: int,
    sha256: str,
    data: TaskData,
    settings: dict[str, Any],
    precision: str,
    record: Path,
    identity: str,
    cache: Path | None = None,
) -> Record:
    """Measure the model in a folder and write its record."""
    chosen, loaded, device = NoiseSettings(**settings), load(data), worker_device()
    task, examples = loaded.task, loaded.splits["dev"]
    predictor = Predictor(model, device)
    asked = Asked(predictor, task.kind, precision == "bfloat16")
    dev = encode_pairs(asked.tokenizer, examples.first, examples.second, examples.labels, asked.longest)
    clean = asked.answers(dev, asked.longest)  # in the batches of `triune finetune`: the same to the last digit
    norm = embedding_norm(asked, dev, chosen.where)
    found: dict[str, tuple[Array, float]] = {}
    if GAUSSIAN in chosen.kinds:
        sigmas = [level * norm / math.sqrt(predictor.config.hidden_size) for level in chosen.levels[1:]]
        found[GAUSSIAN] = under_noise(asked, dev, chosen.where, sigmas, chosen.draws, chosen.seed), 1.0
    kinds = tuple(kind for kind in chosen.kinds if kind != GAUSSIAN)
    drawn = Draws(kinds, tuple(chosen.rates[1:]), chosen.draws, chosen.seed)
    found |= under_corruption(asked, clean, examples, drawn, cache)
    return write_record(
        record,
        {
            "study": STUDY,
            "identity": identity,
            "task": task.name,
            "task_title": task.title,
            "metric": task.primary,
            "metric_title": METRICS[task.primary].title,
            "model": label,
            "operator": predictor.config.operator,
            "model_path": model,
            "model_sha256": sha256,
            "seed": seed,
            "data_sha256": loaded.sha256,
            "dev_source": examples.source,
            "dev_rows": len(dev),
            "subset": examples.subset or loaded.splits["train"].subset,
            "settings": settings,
            "precision": precision,
            "embedding_norm": norm,
            # Of the rows at all rates and draws, the share whose input is another than without noise.
            "changed": {kind: round(found[kind][1], 6) for kind in chosen.kinds},
            **_curves(task, dev.labels, clean, {kind: found[kind][0] for kind in chosen.kinds}, chosen, examples.ids),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "versions": versions(),
        },
    )


def noise_line(cell: Cell, record: Record) -> str:
    """A finished cell in one line."""
    kept = ", ".join(f"{kind} {value:.1f} %" for kind, value in record["retention"].items() if value is not None)
    return (
        f"{cell.title}: {record['metric_title']} {record['clean']:.2f}, kept under noise: {kept or 'nothing to keep'}"
    )


def area_weights(levels: Sequence[float]) -> Array:
    """The weight of each level in the area under a curve (trapezoids) divided by the range of the levels."""
    steps = np.diff(levels)
    weights = np.zeros(len(levels))
    weights[:-1] += steps / 2
    weights[1:] += steps / 2
    return weights / (levels[-1] - levels[0])


def _curves(
    task: Task, labels: Array, clean: Array, answers: dict[str, Array], settings: NoiseSettings, ids: Sequence[Any]
) -> dict[str, Any]:
    """The part of a record that says how the score falls. Answers are (S, D, N), without the first level."""
    clean_score = score(task.primary, clean, labels)
    curves, area, shares = {}, {}, {}
    for kind, answers_SDN in answers.items():
        levels = settings.steps(kind)
        scores = [[clean_score], *([score(task.primary, one, labels) for one in draws] for draws in answers_SDN)]
        curves[kind] = [{"level": level, "scores": one} for level, one in zip(levels, scores, strict=True)]
        weights = area_weights(levels)
        area[kind] = float(weights @ [np.mean(one) for one in scores])
        right_SN = np.concatenate([[clean == labels], (answers_SDN == labels).mean(axis=1)])
        shares[kind] = [round(float(share), 6) for share in weights @ right_SN]
    examples = {"ids": ids_sha256(ids), "clean": [int(right) for right in clean == labels], "area": shares}
    return {
        "clean": clean_score,
        "curves": curves,
        "area": area,
        "retention": {kind: 100 * one / clean_score if clean_score > 0 else None for kind, one in area.items()},
        "examples": examples if task.primary == "accuracy" else None,
    }


def _check_fits(model: Finetuned, data: TaskData, task: Task) -> None:
    config = model.location.config
    saved_as = (config.architectures or ["nothing"])[0]
    if HEADS.get(saved_as) is not TriuneForSequenceClassification:
        raise TriuneError(
            f"'{model.path}' is saved as {saved_as}, which gives no classes or numbers: fine-tune it on {task.title} "
            "(`triune finetune`)"
        )
    if data.own is None and model.task != task.name:
        raise TriuneError(
            f"'{model.path}' was fine-tuned on {model.task}, not on {task.name}; `triune transfer` tests a model on "
            "other tasks"
        )
    names = tuple(config.id2label[number] for number in range(config.num_labels))
    if len(names) != max(1, len(task.classes)) or (task.classes and names != task.classes):
        wanted = f"the classes {class_list(task.classes)}" if task.classes else "a number"
        gives = f"the classes {class_list(names)}" if len(names) > 1 else "a number"
        raise TriuneError(f"'{model.path}' gives {gives}, and {task.title} asks for {wanted}")
