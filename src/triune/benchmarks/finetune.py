"""An epoch of fine-tuning, ours against transformers' Trainer with its own BERT: same rows, same batch, same precision.

Weights are random: they do not matter for time. All contestants run in one process, in turn. Epochs are timed warm,
and the median of several is given with its spread. Ours is the epoch of the training-time study (`epoch_time`).
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback

from triune.benchmarks.epoch_time import Contestant, Epochs, in_turn, training_rows
from triune.benchmarks.record import bench_device, record_of
from triune.benchmarks.timing import wait_for
from triune.data.batches import training_plan
from triune.data.encoded import Encoded, encode_pairs
from triune.data.tokenizer import load_tokenizer
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
    """Seconds of a warm epoch for each task and contestant."""
    device = bench_device()
    tokenizer = load_tokenizer(tokenizer_name)
    results = []
    for name in tasks:
        task, given = training_rows(TaskData(name, None if data_dir is None else str(data_dir), rows=rows))
        longest = recipe.data.max_length
        encoded = encode_pairs(tokenizer, given.first, given.second, given.labels, longest)
        plan = training_plan(encoded.lengths, recipe.training.batch, 1, 0, longest)
        pad = int(tokenizer.pad_token_id)
        contestants: dict[str, Contestant] = {
            THEIRS: _Theirs(encoded, tokenizer, size, max(1, len(task.classes)), recipe)
        }
        for operator in operators:
            config = preset(size, operator=operator, vocab_size=len(tokenizer))
            contestants[f"triune {operator}"] = Epochs(config, task, encoded, plan, pad, recipe, rounds, device)
        times = in_turn(contestants, rounds)
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
                    "milliseconds_a_step": 1e3 * median / len(plan),
                    "times_faster": theirs / median,
                    "how": contestants[key].how,
                }
            )
    settings = {"size": size, "batch": recipe.training.batch, "precision": recipe.training.precision, "rounds": rounds}
    return record_of("finetune", device, None, settings=settings, results=results)


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
