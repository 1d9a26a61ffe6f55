"""Recipes: typed, validated YAML that states every value of a pre-training run."""

import dataclasses
import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

import yaml
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError

from triune.errors import TriuneError, one_line

Number = float | int


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
    hidden_dropout: Number = 0.1
    attention_dropout: Number = 0.1


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
        if self.mask_share < 0 or self.random_share < 0 or self.mask_share + self.random_share > 1:
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
        if self.learning_rate <= 0:
            raise ValueError(f"optimizer.learning_rate must be positive, not {self.learning_rate}")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"optimizer.warmup is a share of the steps between 0 and 1, not {self.warmup}")
        if len(self.betas) != 2 or not all(isinstance(beta, float) and 0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"optimizer.betas must be two numbers from 0 up to 1, not {self.betas}")


@strict
@dataclass
class TrainingPart:
    sequences: int = 256  # in one step, over all devices
    per_device: int = 32  # at most so many at once on one device; the rest is accumulated
    epochs: Number | None = None  # passes over the blocks, or
    steps: int | None = None  # optimiser steps: one of the two
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    attention: str = "sdpa"
    gradient_checkpointing: bool = False
    seed: int = 1
    log_every: int = 10
    evaluate_every: int = 100
    evaluate_blocks: int = 512  # of the validation split, at most
    checkpoint_every: int = 500
    checkpoints_kept: int = 2

    def validate_length(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give one of training.epochs and training.steps")
        for name in ("sequences", "per_device", "log_every", "evaluate_every", "checkpoint_every", "checkpoints_kept"):
            if getattr(self, name) < 1:
                raise ValueError(f"training.{name} must be at least 1, not {getattr(self, name)}")
        if (self.epochs or self.steps or 0) <= 0:
            raise ValueError("training.epochs or training.steps must be positive")


@dataclass
class Recipe:
    model: ModelPart
    data: DataPart
    masking: MaskingPart
    optimizer: OptimizerPart
    training: TrainingPart
    about: str = ""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)


PARTS: dict[str, type] = {
    "model": ModelPart,
    "data": DataPart,
    "masking": MaskingPart,
    "optimizer": OptimizerPart,
    "training": TrainingPart,
}


def find_recipe(name: str) -> Path:
    """A path, or the name of a recipe that comes with the project."""
    if (path := Path(name)).suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise TriuneError(f"recipe '{name}' does not exist")
        return path
    folders = [Path(__file__).parents[1] / "recipes", Path(__file__).parents[3] / "recipes"]
    for folder in folders:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    known = sorted({found.stem for folder in folders for found in folder.glob("*.yaml")})
    raise TriuneError(f"unknown recipe '{name}': there are {', '.join(known)}, or give the path of a .yaml file")


def load_recipe(name: str, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe and apply `key=value` overrides, e.g. `optimizer.learning_rate=1e-3`."""
    path = find_recipe(name)
    try:
        written = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise TriuneError(f"cannot read recipe '{path}': {one_line(error)}") from error
    if not isinstance(written, dict):
        raise TriuneError(f"recipe '{path}' must hold the parts {', '.join(PARTS)}")
    for override in overrides or []:
        _apply(written, override)
    return recipe_from_dict(written, str(path))


def swap_operator(operator: str) -> list[str]:
    """Overrides that put another operator into a recipe; the settings there belong to the one that it replaces."""
    return [f"model.operator={operator}", "model.operator_settings={}"]


def recipe_from_dict(written: dict[str, Any], where: str) -> Recipe:
    for part in written:
        if part not in (*PARTS, "about"):
            raise TriuneError(f"recipe '{where}': unknown part '{part}'{_nearest(part, PARTS)}")
    built = {name: _build_part(name, written.get(name) or {}, where) for name in PARTS}
    return Recipe(**built, about=str(written.get("about", "")))


def _build_part(name: str, values: Any, where: str) -> Any:
    part = PARTS[name]
    hints = get_type_hints(part)
    if not isinstance(values, dict):
        raise TriuneError(f"recipe '{where}': '{name}' must hold keys and values")
    for key in values:
        if key not in hints:
            raise TriuneError(f"recipe '{where}': unknown key '{name}.{key}'{_nearest(key, hints)}")
    try:
        return part(**{key: _number(value, hints[key]) for key, value in values.items()})
    except StrictDataclassError as error:
        raise TriuneError(f"recipe '{where}', {name}: {one_line(error.__cause__ or error)}") from error


def _number(value: Any, hint: Any) -> Any:
    """YAML reads `1e-3` as text; people write it as a number."""
    if isinstance(value, str) and "float" in str(hint):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _apply(written: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    part, dot, name = key.partition(".")
    if not equals or not dot:
        raise TriuneError(f"'{override}' is not PART.KEY=VALUE, e.g. optimizer.learning_rate=1e-3")
    if part not in PARTS:
        raise TriuneError(f"'{override}': unknown part '{part}'{_nearest(part, PARTS)}")
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise TriuneError(f"'{override}': the value is not valid YAML") from error
    target = written.setdefault(part, {})
    if part == "training" and name in ("steps", "epochs"):  # one replaces the other
        target.pop("epochs" if name == "steps" else "steps", None)
    first, inner, rest = name.partition(".")
    if inner:  # operator_settings.role_start=signed
        target.setdefault(first, {})[rest] = parsed
    else:
        target[name] = parsed


def _nearest(key: str, known: Any) -> str:
    near = difflib.get_close_matches(str(key), list(known), n=1)
    return f" (did you mean '{near[0]}'?)" if near else f": there are {', '.join(known)}"
