"""Scales: typed YAML that says what the studies are run on, from a laptop to a cluster. `recipes/scale-*.yaml`."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from huggingface_hub.dataclasses import strict

from triune.errors import TriuneError, did_you_mean, shown
from triune.training.recipe_files import Number, Parts, read_parts, recipes_with

SCALES = ("pocket", "sprint", "base", "paper")
VARIANT_LIST: Parts = {"reference": str, "variants": dict}  # what a list of variants holds


@strict
@dataclass
class DataPart:
    """Text to pre-train on. `seconds` here and below: of one cell, on the machine that the scale is meant for."""

    source: Literal["pocket", "files"] = "files"  # pocket is generated; files are read from --data-dir
    corpus: list = field(default_factory=list)  # as for `triune prepare`, relative to --data-dir
    valid: list = field(default_factory=list)
    tokenizer: str | None = None  # a folder in --data-dir, or a name on the hub; or
    vocabulary: int | None = None  # one of this size is trained on the corpus
    seconds: Number = 0.0

    def validate_values(self) -> None:
        _texts("data", corpus=self.corpus, valid=self.valid)
        _at_least("data", 0, seconds=self.seconds)

    def validate_tokenizer(self) -> None:
        if (self.tokenizer is None) == (self.vocabulary is None):
            raise ValueError("give one of data.tokenizer and data.vocabulary")


def _at_least(part: str, smallest: int, **values: int | float) -> None:
    for name, value in values.items():
        if not smallest <= value < math.inf:
            raise ValueError(f"{part}.{name} must be at least {smallest}, not {value}")


def _texts(part: str, **lists: list) -> None:
    for name, values in lists.items():
        if strange := [one for one in values if not isinstance(one, str)]:
            raise ValueError(f"{part}.{name} must be a list of texts, and holds {shown(strange[0])}")


@strict
@dataclass
class PretrainingPart:
    recipe: str = "pocket"
    operators: list = field(default_factory=list)
    settings: dict = field(default_factory=dict)  # operator → its settings; by default the recipe's, or the operator's
    set: list = field(default_factory=list)  # overrides of the recipe, for the ablations too
    seeds: int = 1  # with more than one, fine-tuning seeds take turns at them
    search: dict = field(default_factory=dict)  # learning_rates, steps, seconds: of a short run at each rate; or none
    seconds: Number = 0.0

    @property
    def rates(self) -> list[float]:
        """That are tried for every model; none: the recipe's is taken."""
        return [float(rate) for rate in self.search.get("learning_rates", [])]

    def validate_operators(self) -> None:
        _texts("pretraining", operators=self.operators, set=self.set)
        if not self.operators or len(set(self.operators)) != len(self.operators):
            raise ValueError("pretraining.operators must name one or more operators, each once")
        if strange := [one for one in self.settings if one not in self.operators]:
            raise ValueError(
                f"pretraining.settings has '{shown(strange[0])}', which is not among pretraining.operators"
            )
        for operator, values in self.settings.items():
            if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
                raise ValueError(
                    f"pretraining.settings.{operator} must hold names and values, as in {{role_start: signed}}, not "
                    f"{shown(values)}"
                )
        _at_least("pretraining", 0, seconds=self.seconds)
        _at_least("pretraining", 1, seeds=self.seeds)

    def validate_search(self) -> None:
        if not self.search:
            return
        wanted = ("learning_rates", "steps", "seconds")
        if strange := [one for one in self.search if one not in wanted]:
            raise ValueError(
                f"pretraining.search holds learning_rates, steps and seconds, and not '{shown(strange[0])}'"
            )
        if missing := [one for one in wanted if one not in self.search]:
            raise ValueError(f"pretraining.search holds learning_rates, steps and seconds; it has no '{missing[0]}'")
        steps, seconds = self.search["steps"], self.search["seconds"]
        if type(steps) is not int or type(seconds) not in (int, float):
            raise ValueError("pretraining.search.steps must be a whole number and .seconds a number")
        _at_least("pretraining.search", 1, steps=steps)
        _at_least("pretraining.search", 0, seconds=seconds)
        try:
            rates = self.rates if isinstance(self.search["learning_rates"], list) else []
        except (TypeError, ValueError):
            rates = []
        is_good = all(0 < rate < math.inf for rate in rates)
        if not rates or not is_good or len({f"{rate:g}" for rate in rates}) != len(rates):
            raise ValueError("pretraining.search.learning_rates must be a list of positive numbers, each once")


@strict
@dataclass
class FinetuningPart:
    recipe: str = "strong"
    span_recipe: str | None = None  # for question answering, if another
    set: list = field(default_factory=list)  # overrides of both recipes
    tasks: list = field(default_factory=list)
    seeds: int = 3
    seconds: Number = 0.0

    def validate_counts(self) -> None:
        _texts("finetuning", tasks=self.tasks, set=self.set)
        _at_least("finetuning", 1, seeds=self.seeds)
        _at_least("finetuning", 0, seconds=self.seconds)


@strict
@dataclass
class NoisePart:
    tasks: list = field(default_factory=list)
    where: Literal["before", "after"] = "after"
    draws: int = 3
    seconds: Number = 0.0

    def validate_counts(self) -> None:
        _texts("noise", tasks=self.tasks)
        _at_least("noise", 1, draws=self.draws)
        _at_least("noise", 0, seconds=self.seconds)


@strict
@dataclass
class TransferPart:
    tasks: list = field(default_factory=list)
    seconds: Number = 0.0

    def validate_values(self) -> None:
        _texts("transfer", tasks=self.tasks)
        _at_least("transfer", 0, seconds=self.seconds)


@strict
@dataclass
class TimePart:
    tasks: list = field(default_factory=list)
    rounds: int = 3
    seconds: Number = 0.0

    def validate_counts(self) -> None:
        _texts("time", tasks=self.tasks)
        _at_least("time", 1, rounds=self.rounds)
        _at_least("time", 0, seconds=self.seconds)


@strict
@dataclass
class AblationsPart:
    variants: str | list = "ablations"  # a list of variants, or several
    leave_out: list = field(default_factory=list)  # variants of these lists that are not run
    set: list = field(default_factory=list)  # overrides of the pre-training recipe
    seeds: int | dict = 1  # of all lists, or by the name of a list, where those that are not named have one
    seconds: Number = 0.0

    @property
    def lists(self) -> list[str]:
        return self.variants if isinstance(self.variants, list) else [self.variants]

    def seeds_of(self, name: str) -> int:
        return int(self.seeds.get(name, 1)) if isinstance(self.seeds, dict) else self.seeds

    def validate_variants(self) -> None:
        if not self.lists:
            raise ValueError("ablations.variants must name one list of variants or more")
        _texts("ablations", variants=self.lists, leave_out=self.leave_out, set=self.set)
        if not isinstance(self.seeds, dict):
            return
        # A scale may speak of lists that a call of it does without.
        names = [*(Path(name).stem for name in self.lists), *recipes_with(VARIANT_LIST)]
        for name in self.seeds:
            if name not in names:
                raise ValueError(f"ablations.seeds: no list is called '{shown(name)}'{did_you_mean(str(name), names)}")

    def validate_counts(self) -> None:
        for seeds in self.seeds.values() if isinstance(self.seeds, dict) else [self.seeds]:
            if not isinstance(seeds, int) or isinstance(seeds, bool):
                raise ValueError(f"ablations.seeds must be a whole number, or one for each list, not {self.seeds}")
            _at_least("ablations", 1, seeds=seeds)
        _at_least("ablations", 0, seconds=self.seconds)


@strict
@dataclass
class InspectPart:
    texts: int = 64  # of the validation text
    seconds: Number = 0.0

    def validate_counts(self) -> None:
        _at_least("inspect", 1, texts=self.texts)
        _at_least("inspect", 0, seconds=self.seconds)


@dataclass
class Scale:
    data: DataPart
    pretraining: PretrainingPart
    finetuning: FinetuningPart
    noise: NoisePart
    transfer: TransferPart
    time: TimePart
    ablations: AblationsPart
    inspect: InspectPart
    about: str = ""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


PARTS: dict[str, type] = {
    "data": DataPart,
    "pretraining": PretrainingPart,
    "finetuning": FinetuningPart,
    "noise": NoisePart,
    "transfer": TransferPart,
    "time": TimePart,
    "ablations": AblationsPart,
    "inspect": InspectPart,
}


def load_scale(name: str, overrides: list[str] | None = None) -> Scale:
    """One of ours by its short name, or the path of a .yaml file."""
    scale = Scale(**read_parts(f"scale-{name}" if name in SCALES else _path(name), overrides, PARTS))
    for part in (scale.noise, scale.transfer):
        missing = [task for task in part.tasks if task not in scale.finetuning.tasks]
        if missing:
            raise TriuneError(f"scale '{name}': '{missing[0]}' is in a study and not in finetuning.tasks: add it there")
    return scale


def _path(name: str) -> str:
    if not name.endswith((".yaml", ".yml")):
        raise TriuneError(f"unknown scale '{name}': --scale is {', '.join(SCALES)}, or the path of a .yaml file")
    return name
