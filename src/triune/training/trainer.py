"""transformers' Trainer with our data order, masking on the device, optimiser groups and sealed checkpoints."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import EvalPrediction, Trainer, TrainingArguments

from triune.errors import TriuneError, one_line
from triune.models.heads import IGNORED
from triune.operators import Operator
from triune.training import checkpoints
from triune.training.masking import Masking
from triune.training.recipe import Recipe
from triune.training.stream import already_a_batch


class PretrainingTrainer(Trainer):
    def __init__(
        self, *, recipe: Recipe, masking: Masking, eval_masking: Masking, args: TrainingArguments, **kwargs: Any
    ) -> None:
        super().__init__(args=args, compute_metrics=_mean_over_labels, **kwargs)
        self.recipe = recipe
        self.masking = masking
        self.eval_masking = eval_masking
        self.broken_at: int | None = None
        # `compute_loss` divides by the labels of the whole step: Trainer must not divide once more.
        self.model_accepts_loss_kwargs = True

    # The data: already in order, and already in batches.

    def get_train_dataloader(self) -> DataLoader:
        return self._loader(self.train_dataset, self.args.per_device_train_batch_size)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        return self._loader(self.eval_dataset, self.args.per_device_eval_batch_size)

    def _loader(self, dataset: Any, batch_size: int) -> DataLoader:
        loader = DataLoader(
            dataset,
            batch_size=batch_size,
            shuffle=False,
            collate_fn=already_a_batch,  # type: ignore[arg-type]
            pin_memory=self.args.device.type == "cuda",
        )
        return self.accelerator.prepare(loader)

    # The step.

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list, Any]:
        """The batches of one optimiser step, masked, and the number of labels in them on all devices together.

        Dividing by that number makes a step the same however it is divided among devices and accumulated batches,
        also where padding leaves some of them fewer labels.
        """
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        masked = [self._masked(batch, self.masking) for batch in batches]
        labels = sum((batch["labels"] != IGNORED).sum() for batch in masked)
        return masked, self.accelerator.reduce(labels, reduction="sum") if masked else None

    @torch.no_grad()
    def _masked(self, batch: dict[str, torch.Tensor], masking: Masking) -> dict[str, torch.Tensor]:
        batch = self._prepare_inputs(batch)
        masked = masking(batch["input_ids"], batch["examples"])
        mask = self._attention_mask(batch)
        return masked if mask is None else {**masked, "attention_mask": mask}

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | None = None,
    ) -> Any:
        outputs = model(**inputs)
        loss = outputs.loss
        if num_items_in_batch is not None:
            # Devices average their gradients, so each counts as often as there are devices. The mean over no labels is
            # no number, and nothing times that is none either: a block of unknown words alone has none.
            labels = (inputs["labels"] != IGNORED).sum()
            share = labels * self.accelerator.num_processes / num_items_in_batch.clamp(min=1)
            loss = torch.where(labels > 0, loss, 0.0) * share
        return (loss, outputs) if return_outputs else loss

    def _attention_mask(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor | None:
        """None where every token may see every other: the fastest attention has no mask."""
        data, segments_BT = self.recipe.data, inputs["segments"]
        if data.span_documents and data.cross_documents:
            return None
        same = segments_BT[:, None, :, None] == segments_BT[:, None, None, :]
        return same & (segments_BT > 0)[:, None, None, :]

    def prediction_step(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> tuple[None, Any, Any]:
        """For each row the loss of its batch, and its share of the batch's labels.

        Trainer would take the mean over rows, in which a label counts for more where padding leaves few of them.
        """
        masked = self._masked(inputs, self.eval_masking)
        rows = len(masked["labels"])
        own = rows - self._repeated(rows)
        masked["labels"][own:] = IGNORED
        with torch.no_grad(), self.compute_loss_context_manager():
            loss = self.compute_loss(model, masked).detach()
        labels = (masked["labels"] != IGNORED).sum() / max(own, 1)
        return None, loss.repeat(rows), labels.repeat(rows)

    def _repeated(self, rows: int) -> int:
        """Of the last batch, rows from the beginning again: all devices get as many, and these are dropped later."""
        state = self.accelerator.gradient_state
        if not state.end_of_dataloader or state.remainder <= 0:
            return 0
        own = state.remainder - self.accelerator.process_index * rows
        return rows - min(max(own, 0), rows)

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # the run's own report counts them, once

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Tied weights are saved once, under one name: that the other is missing is as it should be."""
        tied = self.model.all_tied_weights_keys  # the name that is not saved: the one that is
        missing = [key for key in load_result.missing_keys if tied.get(key, key) in load_result.missing_keys]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

    # The optimiser.

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Matrices only: no biases, no norms, and none of an operator's own vectors."""
        return [name for name, parameter in model.named_parameters() if parameter.ndim > 1]

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        fresh = self.optimizer is None
        optimizer = super().create_optimizer(*args, **kwargs)
        if fresh and (times := float(self.recipe.training.role_rate)) != 1:
            give_vectors_a_rate(optimizer, role_vectors(self.model), self.args.learning_rate * times)
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.recipe.optimizer.schedule == "one-cycle" and num_training_steps > 2:  # up and down take three
            self.lr_scheduler = torch.optim.lr_scheduler.OneCycleLR(
                optimizer or self.optimizer,
                max_lr=[group["lr"] for group in (optimizer or self.optimizer).param_groups],
                total_steps=num_training_steps,
                # It counts steps from 0 and divides by those of its first part: of one step that would be none.
                pct_start=max(float(self.recipe.optimizer.warmup), 2 / num_training_steps),
                cycle_momentum=False,
            )
            return self.lr_scheduler
        return super().create_scheduler(num_training_steps, optimizer)

    # Checkpoints: transformers writes into a folder beside, we seal it and move it.

    def _get_output_dir(self, trial: Any) -> str:
        return str(Path(self.args.output_dir) / ".writing")

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        if not all(parameter.isfinite().all() for parameter in model.parameters()):
            self.broken_at = self.state.global_step  # the loss was still a number, the step after it was not
            self.control.should_training_stop = True
            return
        run = Path(self.args.output_dir)
        name = f"{checkpoints.PREFIX}{self.state.global_step}"
        beside = run / ".writing"
        try:
            if self.args.should_save:
                shutil.rmtree(beside, ignore_errors=True)
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                checkpoints.seal(beside / name, run / name)
                shutil.rmtree(beside, ignore_errors=True)
                checkpoints.keep_newest(run, self.recipe.training.checkpoints_kept)
        except (OSError, RuntimeError) as error:
            if not _is_about_writing(error):
                raise
            shutil.rmtree(beside, ignore_errors=True)
            kept = checkpoints.checkpoints(run)
            last = f"the last good checkpoint is {kept[-1].name}" if kept else "there is no checkpoint yet"
            raise TriuneError(
                f"cannot write {name} in '{run}': {one_line(error)}; {last}: make room and start again"
            ) from error
        self.accelerator.wait_for_everyone()


def _mean_over_labels(found: EvalPrediction) -> dict[str, float]:
    losses, labels = (np.asarray(one, dtype=np.float64) for one in (found.predictions, found.label_ids))
    has_labels = labels > 0  # the mean over no labels is no number
    return {"loss": float(losses[has_labels] @ labels[has_labels] / labels.sum())}


def role_vectors(model: nn.Module) -> list[nn.Parameter]:
    """The vectors that are an operator's own: not the biases of its projections."""
    found = (module.parameters(recurse=False) for module in model.modules() if isinstance(module, Operator))
    return [parameter for own in found for parameter in own if parameter.ndim == 1 and parameter.requires_grad]


def give_vectors_a_rate(optimizer: torch.optim.Optimizer, vectors: list[nn.Parameter], rate: float) -> None:
    """Move them into a group of their own, the last: the rate that is logged is that of the first."""
    if not vectors:
        return
    moved = {id(vector) for vector in vectors}
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in moved]
    optimizer.add_param_group({"params": vectors, "lr": rate, "weight_decay": 0.0})


def _is_about_writing(error: Exception) -> bool:
    """torch's own writer reports a full disk as a position in the file that it did not expect."""
    words = ("no space", "os error", "i/o error", "quota", "inline_container", "unexpected pos")
    return isinstance(error, OSError) or any(word in str(error).lower() for word in words)
