"""How long an epoch of fine-tuning takes with each operator (paper: Figure 3), and what arithmetic alone would save.

Weights are random: they do not matter for time. All operators run in one process, in turn, the order rotated from round
to round, on the same batches. The step is that of `triune finetune`; nothing waits inside an epoch that does not there.
On the CPU it has one thread, as its runs have: threads that wait for each other would measure who else is running.

A cell of this study must run alone on its machine: other work at the same time is measured with it.
"""

import hashlib
import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from triune.benchmarks.flops import training_flops_a_token
from triune.benchmarks.timing import wait_for
from triune.cells import Cell, Record, worker_device, write_record
from triune.data.batches import training_plan
from triune.data.encoded import Encoded, OnDevice, encode_pairs
from triune.data.tasks import Examples, Task, get_task, load_split
from triune.data.tokenizer import describe_tokenizer, load_tokenizer
from triune.errors import TriuneError
from triune.evaluation.comparing import REFERENCE
from triune.models.configuration import TriuneConfig
from triune.models.heads import TriuneForSequenceClassification
from triune.operators import with_operator_sources
from triune.threads import threads_at_most
from triune.training.finetune_recipe import FinetuneRecipe, finetune_recipe_from_dict
from triune.training.run_folder import versions
from triune.training.steps import Steps
from triune.training.task_data import TaskData

STUDY = "time"
VERSION = 1
WARM_STEPS = 10  # on the CPU; on CUDA a whole epoch, because a step is captured for each length that it meets

Plan = list[tuple[int, np.ndarray]]


class Contestant(Protocol):
    how: str

    def warm_up(self) -> None: ...

    def epoch(self) -> float:
        """The seconds of one."""
        ...


def time_cell(
    data: TaskData,
    configs: Mapping[str, TriuneConfig],
    tokenizer: str,
    recipe: FinetuneRecipe,
    rounds: int,
    out: Path,
) -> Cell:
    """One task with all models, by label: the record is out/TASK.json. Cells must run one after the other, and alone.

    `tokenizer` is a folder or hub name; of the configurations, sizes and operators count.
    """
    task, examples = training_rows(data)
    _check_sizes(configs)
    described = {
        "models": {label: _counting(config) for label, config in configs.items()},
        "recipe": {**recipe.to_dict(), "about": ""},
        "rounds": rounds,
    }
    what = {
        "study": STUDY,
        "version": VERSION,
        "task": task.name,
        "data": examples.sha256,
        "tokenizer": describe_tokenizer(load_tokenizer(tokenizer)),
        **described,
    }
    what = with_operator_sources(what, [config.operator for config in configs.values()])
    identity = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:24]
    record = out / f"{task.name}.json"
    arguments = {"data": data, "tokenizer": tokenizer, "record": record, "identity": identity, **described}
    return Cell(f"time · {task.title}", measure_time, arguments, record, identity)


def measure_time(
    data: TaskData,
    models: dict[str, dict[str, Any]],
    tokenizer: str,
    recipe: dict[str, Any],
    rounds: int,
    record: Path,
    identity: str,
) -> Record:
    """Time warm epochs of all models in turn and write the record."""
    device = worker_device()
    chosen = finetune_recipe_from_dict(recipe, "recipe")
    task, examples = training_rows(data)
    configs = {label: TriuneConfig.from_dict(values) for label, values in models.items()}
    encoder = load_tokenizer(tokenizer)
    first = next(iter(configs.values()))
    longest = min(chosen.data.max_length, first.max_position_embeddings)
    encoded = encode_pairs(encoder, examples.first, examples.second, examples.labels, longest)
    plan = training_plan(encoded.lengths, chosen.training.batch, 1, 0, longest)
    pad = int(encoder.pad_token_id)
    contestants = {
        label: Epochs(config, task, encoded, plan, pad, chosen, rounds, device) for label, config in configs.items()
    }
    with threads_at_most(1):
        seconds = in_turn(contestants, rounds)
    flops = {label: epoch_flops(config, plan) for label, config in configs.items()}
    reference = next((label for label, config in configs.items() if config.operator == REFERENCE), next(iter(configs)))
    medians = {label: statistics.median(spent) for label, spent in seconds.items()}
    measured = {
        "study": STUDY,
        "identity": identity,
        "task": task.name,
        "task_title": task.title,
        "rows": len(encoded),
        "subset": examples.subset,
        "source": examples.source,
        "batch": chosen.training.batch,
        "steps": len(plan),
        "mean_tokens": float(encoded.lengths.mean()),
        "precision": chosen.training.precision,
        "rounds": rounds,
        "reference": reference,
        "model": {
            "layers": first.num_hidden_layers,
            "width": first.hidden_size,
            "heads": first.num_attention_heads,
            "feed_forward": first.intermediate_size,
            "vocabulary": first.vocab_size,
        },
        "contestants": [
            {
                "model": label,
                "operator": config.operator,
                "operator_settings": config.operator_settings,
                "seconds": seconds[label],
                "median": medians[label],
                "ratio": medians[label] / medians[reference],
                "flops": flops[label],
                "flop_ratio": flops[label] / flops[reference],
                "how": contestants[label].how,
            }
            for label, config in configs.items()
        ],
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "versions": versions(),
    }
    operators = [config.operator for config in configs.values()]
    return write_record(record, with_operator_sources(measured, operators))


def time_line(cell: Cell, record: Record) -> str:
    medians = ", ".join(f"{one['model']} {one['median']:.2f} s" for one in record["contestants"])
    return f"{cell.title}: {medians}"


def training_rows(data: TaskData) -> tuple[Task, Examples]:
    """The rows of an epoch; development sets are not read."""
    task = get_task(data.name)
    if task.kind == "span":
        raise TriuneError(f"{task.title} is no task of whole texts: epochs are timed on those of GLUE")
    return task, load_split(task, "train", None if data.data_dir is None else Path(data.data_dir), data.rows)


def in_turn(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """Seconds of an epoch of each in every round; each round begins with another, so that no place is always one's."""
    for contestant in contestants.values():
        contestant.warm_up()
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        begin = number % len(names)
        for name in names[begin:] + names[:begin]:
            seconds[name].append(contestants[name].epoch())
    return seconds


def epoch_flops(config: TriuneConfig, plan: Plan) -> float:
    """Of the batches as they are padded, forward and backward; embeddings and the task's head are left out."""
    tokens: dict[int, int] = {}
    for length, rows in plan:
        tokens[length] = tokens.get(length, 0) + length * len(rows)
    return sum(count * training_flops_a_token(config, length, 0.0) for length, count in tokens.items())


class Epochs:
    """A model with random weights and epochs of its fine-tuning, as `triune finetune` takes them."""

    def __init__(
        self,
        config: TriuneConfig,
        task: Task,
        encoded: Encoded,
        plan: Plan,
        pad_id: int,
        recipe: FinetuneRecipe,
        rounds: int,
        device: torch.device,
    ) -> None:
        self.plan, self.device = plan, device
        self.model = TriuneForSequenceClassification(for_task(config, task, recipe)).to(device)
        steps = (1 + rounds) * len(plan)  # the first is for warming up
        self.steps = Steps(self.model, OnDevice(encoded, pad_id, device), task.kind, recipe, steps)
        captured = "captured" if self.steps.captured else "not captured"
        self.how = f"attention {self.model.attention_core.name}, {captured}, grouped by length"

    def warm_up(self) -> None:
        self._take(self.plan if self.device.type == "cuda" else self.plan[:WARM_STEPS])

    def epoch(self) -> float:
        wait_for(self.device)
        began = time.perf_counter()
        self._take(self.plan)
        return time.perf_counter() - began

    def _take(self, plan: Plan) -> None:
        self.model.train()
        rows = torch.from_numpy(np.stack([rows for _, rows in plan])).to(self.device)
        for place, (length, _) in enumerate(plan):
            self.steps.take(rows[place], length)
        self.steps.mean_loss(len(plan))  # waits for the device


def for_task(config: TriuneConfig, task: Task, recipe: FinetuneRecipe) -> TriuneConfig:
    """A configuration as fine-tuning has it: the recipe's dropout, pooling and attention, a class for each label."""
    made = TriuneConfig.from_dict(
        {**config.to_dict(), **recipe.model.config_values()}, num_labels=max(1, len(task.classes))
    )
    made._attn_implementation = recipe.training.attention
    return made


def _counting(config: TriuneConfig) -> dict[str, Any]:
    """What of a configuration makes the model; not who saved it, and from where."""
    left_out = ("_name_or_path", "architectures", "dtype", "transformers_version")
    return {name: value for name, value in config.to_dict().items() if name not in left_out}


def _check_sizes(configs: Mapping[str, TriuneConfig]) -> None:
    """Only the operator may differ, or the times would say nothing about it."""
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
    label, first = next(iter(configs.items()))
    for other, config in configs.items():
        for name in (*names, "max_position_embeddings", "norm_position", "position"):
            if getattr(config, name) != getattr(first, name):
                raise TriuneError(
                    f"{label} has {name} {getattr(first, name)} and {other} {getattr(config, name)}: models whose "
                    "epochs are timed together differ in nothing but the operator"
                )
