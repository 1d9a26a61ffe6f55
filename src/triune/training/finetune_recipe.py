"""Fine-tuning recipes: typed, validated YAML that states every value of a fine-tuning run."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from huggingface_hub.dataclasses import strict

from triune.training.recipe_files import Number, check_dropouts, check_optimizer, parts_from_dict, read_parts


def _check_rates(name: str, rates: list) -> None:
    numbers = all(isinstance(rate, (int, float)) and not isinstance(rate, bool) for rate in rates)
    if not numbers or not all(0 < rate < math.inf for rate in rates):
        raise ValueError(f"{name} must be positive numbers, not {rates}")


@strict
@dataclass
class ModelPart:
    """None leaves what the checkpoint says."""

    hidden_dropout: Number | None = None
    attention_dropout: Number | None = None
    classifier_dropout: Number | None = None
    classifier_pooling: Literal["cls", "mean"] | None = None

    def config_values(self) -> dict[str, Any]:
        """What it says of a model's configuration, by the names there."""
        named = {
            "hidden_dropout_prob": self.hidden_dropout,
            "attention_probs_dropout_prob": self.attention_dropout,
            "classifier_dropout": self.classifier_dropout,
            "classifier_pooling": self.classifier_pooling,
        }
        return {name: value for name, value in named.items() if value is not None}

    def validate_dropouts(self) -> None:
        check_dropouts(self, ("hidden_dropout", "attention_dropout", "classifier_dropout"))


@strict
@dataclass
class DataPart:
    max_length: int = 128  # tokens; the model's own limit holds where it is lower
    stride: int = 128  # question answering: tokens from the start of one window of a long passage to that of the next
    rows: int | None = None  # of the training split, at most

    def validate_lengths(self) -> None:
        if self.max_length < 8:
            raise ValueError(f"data.max_length must be at least 8, not {self.max_length}")
        if self.stride < 1 or (self.rows is not None and self.rows < 1):
            raise ValueError("data.stride and data.rows must be at least 1")


@strict
@dataclass
class OptimizerPart:
    learning_rates: list = field(default_factory=lambda: [2e-5])  # one stage after the other; they share the epochs
    schedule: Literal["linear", "cosine", "constant"] = "linear"  # inside a stage
    warmup: Number = 0.06  # share of the first stage's steps
    weight_decay: Number = 0.01  # not on biases, norms and role vectors
    betas: list = field(default_factory=lambda: [0.9, 0.999])
    epsilon: Number = 1e-8
    clip: Number = 1.0  # of the gradient's norm; 0 is off

    def validate_values(self) -> None:
        if not self.learning_rates:
            raise ValueError("optimizer.learning_rates needs at least one rate")
        _check_rates("optimizer.learning_rates", self.learning_rates)
        check_optimizer(self)


@strict
@dataclass
class TrainingPart:
    batch: int = 16
    epochs: int = 3
    most_rows: int | None = None  # seen in all epochs together, one at least: large tasks get fewer epochs
    precision: Literal["float32", "bfloat16"] = "float32"
    attention: str = "triune"
    # A CUDA graph of the whole step for each length of batch: nothing waits for Python. Only on CUDA devices.
    captured: bool = True

    def validate_counts(self) -> None:
        if self.batch < 1 or self.epochs < 1:
            raise ValueError("training.batch and training.epochs must be at least 1")
        if self.most_rows is not None and self.most_rows < 1:
            raise ValueError(f"training.most_rows must be null or at least 1, not {self.most_rows}")

    def epochs_of(self, rows: int) -> int:
        """For a task with so many rows."""
        return self.epochs if self.most_rows is None else max(1, min(self.epochs, self.most_rows // max(1, rows)))


@strict
@dataclass
class AnswersPart:
    """Question answering: how spans are read from the scores."""

    n_best: int = 20
    max_answer_tokens: int = 30

    def validate_counts(self) -> None:
        if self.n_best < 1 or self.max_answer_tokens < 1:
            raise ValueError("answers.n_best and answers.max_answer_tokens must be at least 1")


@strict
@dataclass
class SearchPart:
    """The same short search for every model, before the seeds: the best rate on the development set is taken."""

    learning_rates: list = field(default_factory=list)

    def validate_rates(self) -> None:
        _check_rates("search.learning_rates", self.learning_rates)
        if len({f"{rate:g}" for rate in self.learning_rates}) != len(set(self.learning_rates)):  # folders are called so
            raise ValueError(f"search.learning_rates must differ in their first six digits: {self.learning_rates}")


@dataclass
class FinetuneRecipe:
    model: ModelPart
    data: DataPart
    optimizer: OptimizerPart
    training: TrainingPart
    answers: AnswersPart
    search: SearchPart
    about: str = ""

    def to_dict(self) -> dict[str, Any]:
        described = dataclasses.asdict(self)
        if self.training.most_rows is None:
            # It came when there were records already: where nothing is different, they stay those of the same recipe.
            del described["training"]["most_rows"]
        return described

    def at_rate(self, rate: float) -> "FinetuneRecipe":
        """The same recipe with one learning rate, and nothing left to search."""
        optimizer = dataclasses.replace(self.optimizer, learning_rates=[rate])
        return dataclasses.replace(self, optimizer=optimizer, search=SearchPart())


PARTS: dict[str, type] = {
    "model": ModelPart,
    "data": DataPart,
    "optimizer": OptimizerPart,
    "training": TrainingPart,
    "answers": AnswersPart,
    "search": SearchPart,
}


def load_finetune_recipe(name: str, overrides: list[str] | None = None) -> FinetuneRecipe:
    return FinetuneRecipe(**read_parts(name, overrides, PARTS))


def finetune_recipe_from_dict(written: dict[str, Any], where: str) -> FinetuneRecipe:
    return FinetuneRecipe(**parts_from_dict(written, PARTS, where))
