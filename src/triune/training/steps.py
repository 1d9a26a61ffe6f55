"""A fine-tuning step: batch, forward, backward, clipping, optimiser; on CUDA captured whole in a graph.

Short texts in small batches leave a GPU waiting for Python: a step launches some two thousand kernels of microseconds.
Captured, it is one launch. The batch is gathered inside the graph and the rate is read from a table there, so that
between two steps only the row numbers change.
"""

from typing import Any

import torch
from torch import nn

from triune.data.encoded import OnDevice
from triune.kernels.packing import padding_kept
from triune.models.heads import IGNORED
from triune.models.parameter_groups import parameter_groups
from triune.training.finetune_recipe import FinetuneRecipe


def rates(recipe: FinetuneRecipe, steps: int) -> torch.Tensor:
    """The learning rate of every step: stages of equal length, warm-up in the first."""
    part = recipe.optimizer
    bounds = [round(steps * i / len(part.learning_rates)) for i in range(len(part.learning_rates) + 1)]
    table = torch.zeros(steps, dtype=torch.float64)
    for stage, peak in enumerate(part.learning_rates):
        begin, end = bounds[stage], bounds[stage + 1]
        warm = round(float(part.warmup) * (end - begin)) if stage == 0 else 0
        done = torch.arange(end - begin, dtype=torch.float64)
        rest = ((done - warm) / max(1, end - begin - warm)).clamp(0, 1)
        falling = {
            "linear": 1 - rest,
            "cosine": (1 + torch.cos(torch.pi * rest)) / 2,
            "constant": torch.ones_like(rest),
        }
        rising = (done + 1) / (warm + 1)
        table[begin:end] = peak * torch.where(done < warm, rising, falling[part.schedule])
    return table.float()


def loss_of(kind: str, outputs: Any, labels: torch.Tensor, held_B: torch.Tensor) -> torch.Tensor:
    """The mean over the examples that are there."""
    if kind == "regression":
        squares = (outputs.logits.float().squeeze(-1) - labels) ** 2
        return (squares * held_B).sum() / held_B.sum()
    if kind == "span":
        labels = torch.where(held_B[:, None], labels, IGNORED)
        ends = ((outputs.start_logits, labels[:, 0]), (outputs.end_logits, labels[:, 1]))
        losses = [nn.functional.cross_entropy(logits.float(), place, ignore_index=IGNORED) for logits, place in ends]
        return (losses[0] + losses[1]) / 2
    return nn.functional.cross_entropy(
        outputs.logits.float(), torch.where(held_B, labels, IGNORED), ignore_index=IGNORED
    )


class Steps:
    """Takes optimiser steps on batches of rows; how (`captured` or not) does not change what is computed."""

    def __init__(self, model: nn.Module, examples: OnDevice, kind: str, recipe: FinetuneRecipe, steps: int) -> None:
        self.model, self.examples, self.kind, self.recipe = model, examples, kind, recipe
        self.device = examples.ids.device
        self.captured = recipe.training.captured and self.device.type == "cuda"
        self.half = recipe.training.precision == "bfloat16"
        self.table = rates(recipe, steps).to(self.device)
        self.number = torch.zeros(1, dtype=torch.long, device=self.device)
        self.loss_sum = torch.zeros((), device=self.device)
        self.optimizer = self._optimizer()
        self.rows = torch.zeros(recipe.training.batch, dtype=torch.long, device=self.device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.pool: Any = None

    def _optimizer(self) -> torch.optim.Optimizer:
        part = self.recipe.optimizer
        groups = parameter_groups(self.model, float(part.weight_decay))
        first = torch.zeros((), device=self.device)  # a tensor: the table's values are copied into it
        optimizer = torch.optim.AdamW(
            groups,
            lr=first if self.captured else 0.0,
            betas=(part.betas[0], part.betas[1]),
            eps=float(part.epsilon),
            fused=True,
            capturable=self.captured,
        )
        if self.captured:
            self._make_states(optimizer)
        return optimizer

    def _make_states(self, optimizer: torch.optim.Optimizer) -> None:
        """AdamW makes its averages in the first step; made inside a graph, every replay would set them to zero."""
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        optimizer.step()  # rate zero, gradient zero: it changes nothing
        for state in optimizer.state.values():
            state["step"].zero_()
        optimizer.zero_grad(set_to_none=True)

    def take(self, rows_B: torch.Tensor, length: int) -> None:
        """One step on the examples `rows_B`, padded to `length`."""
        if not self.captured:
            for group in self.optimizer.param_groups:
                group["lr"] = self.table[self.number].item()
            self._step(rows_B, length)
            return
        self.rows.copy_(rows_B)
        if length not in self.graphs:
            self.graphs[length] = self._capture(length)
        self.graphs[length].replay()

    def mean_loss(self, steps: int) -> float:
        """The mean loss of the last `steps` steps, counted anew afterwards; waits for the device."""
        mean = self.loss_sum.item() / max(1, steps)
        self.loss_sum.zero_()
        return mean

    def _loss(self, rows_B: torch.Tensor, length: int) -> torch.Tensor:
        inputs, labels, held_B = self.examples.batch(rows_B, length)
        # Weights are cast once a step; a cache of casts cannot live across a capture.
        autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=self.half, cache_enabled=not self.captured)
        # A captured step cannot ask how many tokens there are, and an uncaptured one computes the same as it.
        with autocast, padding_kept():
            outputs = self.model(**inputs)
        return loss_of(self.kind, outputs, labels, held_B)

    def _step(self, rows_B: torch.Tensor, length: int) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(rows_B, length)
        loss.backward()
        if self.recipe.optimizer.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), float(self.recipe.optimizer.clip))
        self.optimizer.step()
        self.loss_sum += loss.detach()
        self.number += 1

    def _capture(self, length: int) -> torch.cuda.CUDAGraph:
        state = torch.cuda.get_rng_state(self.device)
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):  # libraries make their workspaces outside of the graph
            self.optimizer.zero_grad(set_to_none=True)
            self._loss(self.rows, length).backward()
            self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.current_stream().wait_stream(beside)
        torch.cuda.set_rng_state(state, self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            rate = self.table.index_select(0, self.number)[0]  # indexing with a tensor would ask the host
            for group in self.optimizer.param_groups:
                group["lr"].copy_(rate)
            self._step(self.rows, length)
        self.pool = self.pool or graph.pool()
        return graph
