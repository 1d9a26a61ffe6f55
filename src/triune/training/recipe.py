"""Recipes: typed, validated YAML that states every value of a pre-training run."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml
from huggingface_hub.dataclasses import strict

from triune import operators
from triune.training.recipe_files import Number, check_dropouts, check_optimizer, parts_from_dict, read_parts


@strict
@dataclass
class ModelPart:
    layers: int = 12
    width: int = 768
    heads: int = 12
    feed_forward: int = 3072
    operator: str = "shared"
    operator_settings: dict = field(default_factory=dict)
    norm_position: Literal["post", "pre"] = "post"
    position: Literal["absolute", "rotary"] = "absolute"
    mask_diagonal: bool = False  # no token attends to itself
    hidden_dropout: Number = 0.1
    attention_dropout: Number = 0.1

    def validate_values(self) -> None:
        for name in ("layers", "width", "heads", "feed_forward"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} must be at least 1, not {getattr(self, name)}")
        check_dropouts(self, ("hidden_dropout", "attention_dropout"))


@strict
@dataclass
class DataPart:
    block_length: int = 512
    span_documents: bool = True  # a block may hold the end of one document and the start of the next
    cross_documents: bool = True  # and attention may look across that boundary


@strict
@dataclass
class MaskingPart:
    ratio: Number = 0.15
    mask_share: Number = 0.8
    random_share: Number = 0.1
    whole_word: bool = False

    def validate_shares(self) -> None:
        if not 0 < self.ratio < 1:
            raise ValueError(f"masking.ratio must lie between 0 and 1, not be {self.ratio}")
        if not (self.mask_share >= 0 and self.random_share >= 0 and self.mask_share + self.random_share <= 1):
            raise ValueError("masking.mask_share and masking.random_share must be shares that add up to at most 1")


@strict
@dataclass
class OptimizerPart:
    learning_rate: Number = 1e-4
    schedule: Literal["linear", "cosine", "one-cycle"] = "linear"
    warmup: Number = 0.05  # share of all steps
    weight_decay: Number = 0.01  # not on biases, norms and role vectors
    betas: list = field(default_factory=lambda: [0.9, 0.999])
    epsilon: Number = 1e-8
    clip: Number = 1.0  # of the gradient's norm; 0 is off

    def validate_values(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"optimizer.learning_rate must be a positive number, not {self.learning_rate}")
        check_optimizer(self)


@strict
@dataclass
class TrainingPart:
    sequences: int = 256  # in one step, over all devices
    per_device: int = 32  # at most so many at once on one device; the rest is accumulated
    epochs: Number | None = None  # passes over the blocks, or
    steps: int | None = None  # optimiser steps: one of the two
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    attention: str = "triune"
    gradient_checkpointing: bool = False
    seed: int = 1
    log_every: int = 10
    evaluate_every: int = 100
    evaluate_blocks: int = 512  # of the validation split, at most
    evaluate_from: Literal["start", "whole"] = "start"  # the first ones, or spread evenly over all of it
    checkpoint_every: int = 500
    checkpoints_kept: int = 2
    role_rate: Number = (
        1.0  # learning rate of role vectors, as a multiple of that of all else; 0 leaves them as they start
    )

    def validate_length(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give one of training.epochs and training.steps")
        counts = ("sequences", "per_device", "log_every", "evaluate_every", "evaluate_blocks")
        for name in (*counts, "checkpoint_every", "checkpoints_kept"):
            if getattr(self, name) < 1:
                raise ValueError(f"training.{name} must be at least 1, not {getattr(self, name)}")
        if not 0 < (self.epochs or self.steps or 0) < math.inf:
            raise ValueError("training.epochs or training.steps must be a positive number")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"training.seed must be a whole number from 0 up to 2^32, not {self.seed}")

    def validate_role_rate(self) -> None:
        if not 0 <= self.role_rate < float("inf"):
            raise ValueError(f"training.role_rate must be a number from 0 up, not {self.role_rate}")


@dataclass
class Recipe:
    model: ModelPart
    data: DataPart
    masking: MaskingPart
    optimizer: OptimizerPart
    training: TrainingPart
    about: str = ""

    def to_dict(self) -> dict[str, Any]:
        described = dataclasses.asdict(self)
        # These came when there were records already: where nothing is different, they stay those of the same recipe.
        if self.training.role_rate == 1:
            del described["training"]["role_rate"]
        if self.training.evaluate_from == "start":
            del described["training"]["evaluate_from"]
        return described

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)


PARTS: dict[str, type] = {
    "model": ModelPart,
    "data": DataPart,
    "masking": MaskingPart,
    "optimizer": OptimizerPart,
    "training": TrainingPart,
}


def read_recipe(name: str, overrides: list[str] | None = None) -> Recipe:
    """As it is written: its operator may not be known here, where another is to take its place."""
    return Recipe(**read_parts(name, overrides, PARTS))


def load_recipe(name: str, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe and apply `key=value` overrides, e.g. `optimizer.learning_rate=1e-3`."""
    recipe = read_recipe(name, overrides)
    recipe.model.operator_settings = operators.written_out(recipe.model.operator, recipe.model.operator_settings)
    return recipe


def recipe_from_dict(written: dict[str, Any], where: str) -> Recipe:
    return Recipe(**parts_from_dict(written, PARTS, where))


def swap_operator(recipe: Recipe, operator: str) -> list[str]:
    """Overrides that put an operator into a recipe; settings there belong to its own, and go if that is another."""
    if operator == recipe.model.operator:
        return []
    return [f"model.operator={operator}", "model.operator_settings={}"]
