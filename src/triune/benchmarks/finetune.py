"""An epoch of fine-tuning, ours against transformers' Trainer with its own BERT: same rows, same batch, same precision.

Weights are random: they do not matter for time. All contestants run in one process, one after the other, in turn; an
epoch is timed when warm (a first one has been run), and the median of several is given with its spread.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback

from triune.data.batches import training_plan
from triune.data.encoded import Encoded, OnDevice, encode_pairs
from triune.data.tasks import get_task, load_split
from triune.data.tokenizer import load_tokenizer
from triune.errors import TriuneError
from triune.models.heads import TriuneForSequenceClassification
from triune.models.presets import preset
from triune.training.finetune_recipe import FinetuneRecipe
from triune.training.steps import Steps

THEIRS = "transformers"
WARM_STEPS = 20  # of theirs; ours warms up over an epoch, because it captures each length that it meets


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
    """Seconds of a warm epoch for each task and contestant."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = load_tokenizer(tokenizer_name)
    results = []
    for name in tasks:
        task = get_task(name)
        if task.kind == "span":
            raise TriuneError(f"{task.title} is no task of whole texts: this benchmark takes those of GLUE")
        given = load_split(task, "train", data_dir, rows)
        encoded = encode_pairs(tokenizer, given.first, given.second, given.labels, recipe.data.max_length)
        labels = max(1, len(task.classes))
        contestants: dict[str, Any] = {
            THEIRS: _Theirs(encoded, tokenizer, size, labels, recipe),
            **{f"triune {one}": _Ours(encoded, tokenizer, size, labels, recipe, one, device) for one in operators},
        }
        times: dict[str, list[float]] = {key: [] for key in contestants}
        for turn in range(rounds + 1):
            for key, contestant in contestants.items():
                spent = contestant.epoch(turn)
                if turn:  # the first one captures, allocates, and picks kernels
                    times[key].append(spent)
        steps = -(-len(encoded) // recipe.training.batch)
        theirs = statistics.median(times[THEIRS])
        for key, spent in times.items():
            median = statistics.median(spent)
            results.append(
                {
                    "task": task.title,
                    "rows": len(encoded),
                    "source": given.source,
                    "subset": given.subset,
                    "mean_tokens": float(encoded.lengths.mean()),
                    "contestant": key,
                    "seconds": median,
                    "spread": [min(spent), max(spent)],
                    "milliseconds_a_step": 1e3 * median / steps,
                    "times_faster": theirs / median,
                    "how": contestants[key].how,
                }
            )
    return {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "size": size,
        "batch": recipe.training.batch,
        "precision": recipe.training.precision,
        "rounds": rounds,
        "results": results,
    }


class _Ours:
    def __init__(
        self,
        encoded: Encoded,
        tokenizer: Any,
        size: str,
        labels: int,
        recipe: FinetuneRecipe,
        operator: str,
        device: torch.device,
    ) -> None:
        self.encoded, self.recipe, self.device = encoded, recipe, device
        config = preset(size, operator=operator, vocab_size=len(tokenizer), num_labels=labels)
        config._attn_implementation = recipe.training.attention
        self.model = TriuneForSequenceClassification(config).to(device)
        kind = "regression" if labels == 1 else "classification"
        on_device = OnDevice(encoded, int(tokenizer.pad_token_id), device)
        self.steps = Steps(self.model, on_device, kind, recipe, 1_000_000)
        captured = "captured" if self.steps.captured else "not captured"
        self.how = f"attention {self.model.attention_core.name}, {captured}, grouped by length"

    def epoch(self, number: int) -> float:
        _wait(self.device)
        began = time.perf_counter()
        self.model.train()
        plan = training_plan(self.encoded.lengths, self.recipe.training.batch, 1, number, self.recipe.data.max_length)
        rows = torch.from_numpy(np.stack([rows for _, rows in plan])).to(self.device)
        for place, (length, _) in enumerate(plan):
            self.steps.take(rows[place], length)
        self.steps.mean_loss(len(plan))  # waits for the device
        return time.perf_counter() - began


class _Theirs:
    """BERT as transformers has it, with its best attention, through Trainer with Trainer's own defaults."""

    def __init__(self, encoded: Encoded, tokenizer: Any, size: str, labels: int, recipe: FinetuneRecipe) -> None:
        ours = preset(size)
        config = BertConfig(
            vocab_size=len(tokenizer),
            num_hidden_layers=ours.num_hidden_layers,
            hidden_size=ours.hidden_size,
            num_attention_heads=ours.num_attention_heads,
            intermediate_size=ours.intermediate_size,
            num_labels=labels,
            problem_type="regression" if labels == 1 else "single_label_classification",
        )
        config._attn_implementation = "sdpa"
        self.model = BertForSequenceClassification(config)
        self.recipe = recipe
        self.collator = DataCollatorWithPadding(tokenizer)
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

    def epoch(self, number: int) -> float:
        part = self.recipe.training
        with tempfile.TemporaryDirectory() as folder:
            clock = _Clock()
            trainer = Trainer(
                model=self.model,
                args=TrainingArguments(
                    output_dir=folder,
                    num_train_epochs=1,
                    max_steps=-1 if number else WARM_STEPS,
                    per_device_train_batch_size=part.batch,
                    learning_rate=float(self.recipe.optimizer.learning_rates[0]),
                    bf16=part.precision == "bfloat16",
                    save_strategy="no",
                    report_to="none",
                    disable_tqdm=True,
                    logging_strategy="no",
                    seed=1 + number,
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
        _wait(args.device)
        self.began = time.perf_counter()

    def on_epoch_end(self, args: TrainingArguments, *ignored: Any, **also: Any) -> None:
        _wait(args.device)
        self.seconds = time.perf_counter() - self.began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
