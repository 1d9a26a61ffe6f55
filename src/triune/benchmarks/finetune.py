"""An epoch of fine-tuning, ours against transformers' Trainer with its own BERT: same rows, same batch, same precision.

Weights are random: they do not matter for time. All contestants run in one process, in turn. Epochs are timed warm,
and the median of several is given with its spread. Ours is the epoch of the training-time study (`epoch_time`).

Arithmetic is that of the real tokens, for all: Trainer pads in its own way, and what it spends on that is its own.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    BertForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback

from triune.benchmarks.ceilings import Ceilings, measure_ceilings
from triune.benchmarks.contestants import bert_config
from triune.benchmarks.epoch_time import Epochs, for_task, training_rows
from triune.benchmarks.flops import step_bytes, training_flops_a_token
from triune.benchmarks.record import DTYPES, Result, add_ratios, bench_device, record_of, result_of
from triune.benchmarks.timing import Entry, Run, release, take_turns, wait_for, warm_up
from triune.data.batches import training_plan
from triune.data.encoded import encode_pairs
from triune.data.tasks import Examples, Task
from triune.data.tokenizer import load_tokenizer
from triune.evaluation.comparing import REFERENCE
from triune.models.configuration import TriuneConfig
from triune.models.presets import preset
from triune.training.finetune_recipe import FinetuneRecipe
from triune.training.task_data import TaskData

THEIRS = "transformers"
WARM_STEPS = 20  # of theirs


def bench_finetune(
    tasks: list[str],
    data_dir: Path | None,
    tokenizer_name: str,
    size: str,
    operators: list[str],
    recipe: FinetuneRecipe,
    rows: int | None,
    rounds: int,
) -> dict[str, Any]:
    """Seconds of a warm epoch, FLOP/s and peak memory for each task and contestant."""
    device = bench_device()
    tokenizer = load_tokenizer(tokenizer_name)
    configs = {name: preset(size, operator=name, vocab_size=len(tokenizer)) for name in (REFERENCE, *operators)}
    folder = None if data_dir is None else str(data_dir)
    given = [training_rows(TaskData(name, folder, rows=rows)) for name in tasks]  # mistakes before measurements
    ceilings = measure_ceilings(device, DTYPES[recipe.training.precision])
    results: list[Result] = []
    for task, examples in given:
        scene = _Scene(task, examples, tokenizer, recipe, rounds, device)
        results += _measure(scene, configs, operators, ceilings)
        release(device)
    settings = {"size": size, "batch": recipe.training.batch, "precision": recipe.training.precision, "rounds": rounds}
    return record_of("finetune", device, ceilings, settings=settings, results=results)


class _Scene:
    """What is the same for all contestants."""

    def __init__(
        self,
        task: Task,
        examples: Examples,
        tokenizer: Any,
        recipe: FinetuneRecipe,
        rounds: int,
        device: torch.device,
    ) -> None:
        longest = recipe.data.max_length
        self.task, self.examples, self.tokenizer = task, examples, tokenizer
        self.recipe, self.rounds, self.device = recipe, rounds, device
        self.encoded = encode_pairs(tokenizer, examples.first, examples.second, examples.labels, longest)
        self.plan = training_plan(self.encoded.lengths, recipe.training.batch, 1, 0, longest)

    def ours(self, config: TriuneConfig) -> Epochs:
        pad = int(self.tokenizer.pad_token_id)
        return Epochs(config, self.task, self.encoded, self.plan, pad, self.recipe, self.rounds, self.device)


def _measure(scene: _Scene, configs: dict[str, TriuneConfig], operators: list[str], ceilings: Ceilings) -> list[Result]:
    task, encoded, steps = scene.task, scene.encoded, len(scene.plan)
    entries = [_entry(THEIRS, REFERENCE, lambda: _Theirs(scene, configs[REFERENCE]))]
    for operator in operators:
        entries.append(_entry(f"triune {operator}", operator, partial(scene.ours, configs[operator])))
    warm_up(entries, scene.device, task.title)
    take_turns(entries, scene.rounds, scene.device)
    place = {
        "shape": task.title,
        "task": task.title,
        "rows": len(encoded),
        "source": scene.examples.source,
        "subset": scene.examples.subset,
        "mean_tokens": float(encoded.lengths.mean()),
    }
    results = []
    for entry in entries:
        flops = real_flops(configs[entry.about["operator"]], encoded.lengths)
        moved = steps * step_bytes(entry.about.get("parameters", 0))
        result = result_of(entry, flops, moved, ceilings, **place)
        if entry.failed is None:
            result["seconds"] = statistics.median(entry.seconds)
            result["milliseconds_a_step"] = result["milliseconds"] / steps
        results.append(result)
    add_ratios(results, [THEIRS])
    return results


def real_flops(config: TriuneConfig, lengths: np.ndarray) -> float:
    """Of an epoch without padding, each row at its own length; embeddings and the task's head are left out."""
    found = zip(*np.unique(lengths, return_counts=True), strict=True)
    return sum(int(count) * int(length) * training_flops_a_token(config, int(length), 0.0) for length, count in found)


def _entry(name: str, operator: str, build: "Callable[[], Epochs | _Theirs]") -> Entry:
    """It is built when its turn to warm up comes, so that the memory which it adds can be seen."""

    def make() -> Run:
        contestant = build()
        parameters = sum(parameter.numel() for parameter in contestant.model.parameters())
        entry.about |= {"how": contestant.how, "parameters": parameters}
        contestant.warm_up()
        return contestant.epoch

    about = {"operator": operator, "library": name == THEIRS, "how": ""}
    entry = Entry(name, make, about=about, times_itself=True)
    return entry


class _Theirs:
    """BERT as transformers has it, with its best attention, through Trainer with Trainer's own defaults."""

    def __init__(self, scene: _Scene, ours: TriuneConfig) -> None:
        encoded, labels = scene.encoded, max(1, len(scene.task.classes))
        config = bert_config(for_task(ours, scene.task, scene.recipe))
        config.num_labels = labels
        config.problem_type = "regression" if labels == 1 else "single_label_classification"
        self.model = BertForSequenceClassification(config)
        self.recipe = scene.recipe
        self.collator = DataCollatorWithPadding(scene.tokenizer)
        self.rows = [
            {
                "input_ids": encoded.row(i).tolist(),
                "token_type_ids": (np.arange(encoded.lengths[i]) >= encoded.first_lengths[i]).astype(int).tolist(),
                "attention_mask": [1] * int(encoded.lengths[i]),
                "labels": encoded.labels[i].item(),
            }
            for i in range(len(encoded))
        ]
        self.how = "Trainer, attention sdpa, batches padded to their longest row"
        self.epochs = 0

    def warm_up(self) -> None:
        self._train(max_steps=WARM_STEPS)

    def epoch(self) -> float:
        self.epochs += 1
        return self._train(max_steps=-1)

    def _train(self, max_steps: int) -> float:
        part = self.recipe.training
        with tempfile.TemporaryDirectory() as folder:
            clock = _Clock()
            trainer = Trainer(
                model=self.model,
                args=TrainingArguments(
                    output_dir=folder,
                    num_train_epochs=1,
                    max_steps=max_steps,
                    per_device_train_batch_size=part.batch,
                    learning_rate=float(self.recipe.optimizer.learning_rates[0]),
                    bf16=part.precision == "bfloat16",
                    save_strategy="no",
                    report_to="none",
                    disable_tqdm=True,
                    logging_strategy="no",
                    seed=1 + self.epochs,
                ),
                train_dataset=self.rows,
                data_collator=self.collator,
                callbacks=[clock],
            )
            trainer.remove_callback(PrinterCallback)  # standard output is for the result
            trainer.train()
        return clock.seconds


class _Clock(TrainerCallback):
    """From the first step's begin to the last step's end: Trainer's own setting up is not counted."""

    seconds = 0.0

    def on_epoch_begin(self, args: TrainingArguments, *ignored: Any, **also: Any) -> None:
        wait_for(args.device)
        self.began = time.perf_counter()

    def on_epoch_end(self, args: TrainingArguments, *ignored: Any, **also: Any) -> None:
        wait_for(args.device)
        self.seconds = time.perf_counter() - self.began
