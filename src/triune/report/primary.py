"""The two measures of the comparison that is always made: validation loss, and the mean score over tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from triune.data.tasks import get_task, task_names
from triune.evaluation.grouping import all_known, groups_of, means_of_groups
from triune.evaluation.over_seeds import Difference, pooled_tests
from triune.evaluation.significance import ALPHA, holm
from triune.report.gather import Gathered
from triune.report.pretraining import unlike
from triune.report.scores import p_value
from triune.report.statement import model_pair
from triune.report.task_name import task_name

Record = dict[str, Any]


@dataclass
class Measure:
    """One of the two measures: by model a value for each pre-training, in the same order for all."""

    what: str
    unit: str
    digits: int
    more_is_better: bool
    over: str
    values: dict[str, list[float]]
    records: list[Record]  # that the values are of
    difference: Difference
    p: float = 1.0  # corrected for both
    remark: str = ""  # what the mean alone would hide

    @property
    def tested(self) -> bool:
        """A single pre-training of each gives a difference and no test of it."""
        return self.difference.p is not None

    @property
    def ahead(self) -> str | None:
        """Whether separate or shared weights are shown to do better."""
        if self.p >= ALPHA:
            return None
        return "shared" if (self.difference.effect > 0) == self.more_is_better else "standard"

    @property
    def verdict(self) -> str:
        if not self.tested:
            return "not tested"
        return f"{'a' if self.ahead else 'no'} difference is shown (p {p_value(self.p)})"

    def figure(self, value: float, sign: str = "+") -> str:
        return f"{value:{sign}.{self.digits}f}".replace("-", "−")

    def by_pretraining(self, pair: tuple[str, str]) -> str:
        """The difference in each."""
        a, b = (self.values[label] for label in pair)
        return ", ".join(self.figure(its - base) for base, its in zip(a, b, strict=True))

    @property
    def effect(self) -> str:
        return f"{self.figure(self.difference.effect)} {self.unit}"

    @property
    def interval(self) -> str:
        return f" [{', '.join(map(self.figure, self.difference.interval))}]" if self.difference.interval else ""


@dataclass
class Primary:
    pair: tuple[str, str]
    measures: list[Measure]

    @property
    def tested(self) -> bool:
        return any(one.tested for one in self.measures)


def primary(found: Gathered) -> Primary | None:
    """Shared against standard, on validation loss and on the mean score, each over pre-trainings.

    Where there is one of each, the differences are told and not tested: of single models nothing follows for the kinds
    that they are of.
    """
    pair = model_pair(found)
    if pair is None:
        return None
    measures = [one for one in (_loss(found, pair), _score(found, pair)) if one is not None]
    # Always for two: a measure that is not there yet must not make the other one easier to show.
    known = [1.0 if one.difference.p is None else one.difference.p for one in measures]
    for one, p in zip(measures, holm([*known, *[1.0] * (2 - len(known))]), strict=False):
        one.p = p
    return Primary(pair, measures) if measures else None


def _loss(found: Gathered, pair: tuple[str, str]) -> Measure | None:
    losses: dict[str, dict[int, float]] = {}
    for run in found["pretraining"]:
        losses.setdefault(run["label"], {})[run["seed"]] = run["validation_loss"]
    if not set(pair) <= losses.keys():
        return None
    seeds = sorted(losses[pair[0]].keys() & losses[pair[1]].keys())
    values = {label: [its[seed] for seed in seeds] for label, its in losses.items() if its.keys() >= set(seeds)}
    used = [run for run in found["pretraining"] if run["label"] in values and run["seed"] in seeds]
    how = unlike([run for run in used if run["label"] in pair])
    what = f"Validation loss ({how})" if how else "Validation loss"
    return _measure(what, "nats", 3, False, _pretrainings(len(seeds)), values, used, pair)


def _score(found: Gathered, pair: tuple[str, str]) -> Measure | None:
    """The mean over tasks, of the seeds for which both models have all of these."""
    by_seed: dict[str, dict[int, dict[str, Record]]] = {}
    for one in found["finetuning"]:
        by_seed.setdefault(one["model"], {}).setdefault(one["seed"], {})[one["task"]] = one
    if not set(pair) <= by_seed.keys() or not (tasks := _tasks(found, pair)):
        return None
    whole = {
        label: {seed: its for seed, its in seeds.items() if its.keys() >= set(tasks)}
        for label, seeds in by_seed.items()
    }
    seeds = sorted(whole[pair[0]].keys() & whole[pair[1]].keys())

    def behind(label: str) -> list[str | None]:
        return [whole[label][seed][tasks[0]].get("model_sha256") for seed in seeds]

    def groups(label: str) -> list[int]:
        return groups_of(behind(pair[0]), behind(label))

    if not all_known(behind(pair[0]), behind(pair[1])):
        return None  # what is of one pre-training and what is not cannot be told
    of_pair = groups(pair[1])
    by_task = {  # one row a task, one column a pre-training
        label: np.array([_by_pretraining([its[seed][task] for seed in seeds], of_pair) for task in tasks])
        for label, its in whole.items()
        if its.keys() >= set(seeds) and (label in pair or groups(label) == of_pair)
    }
    values = {label: scores.mean(axis=0).tolist() for label, scores in by_task.items()}
    over = f"{_pretrainings(len(set(of_pair)))} ({len(seeds)} fine-tuning{'' if len(seeds) == 1 else 's'})"
    what = f"Mean score over {len(tasks)} task{'' if len(tasks) == 1 else 's'}"
    used = [its[seed][task] for label, its in whole.items() if label in values for seed in seeds for task in tasks]
    measure = _measure(what, "points", 2, True, over, values, used, pair)
    if measure is not None:
        titles = [task_name([one for one in used if one["task"] == task]) for task in tasks]
        remarks = [_hangs_on(titles, by_task[pair[1]] - by_task[pair[0]], measure)]
        if not measure.tested and len(seeds) > 1:
            a, b = ([float(np.mean([whole[label][s][t]["primary"] for t in tasks])) for s in seeds] for label in pair)
            each = ", ".join(measure.figure(its - base) for base, its in zip(a, b, strict=True))
            remarks.insert(0, f"By fine-tuning {each}.")
        measure.remark = " ".join(filter(None, remarks))
    return measure


def _pretrainings(number: int) -> str:
    return f"{number} pre-trainings" if number > 1 else "one pre-training"


def _by_pretraining(records: Sequence[Record], groups: Sequence[int]) -> list[float]:
    means: list[float] = means_of_groups(np.array([one["primary"] for one in records]), np.array(groups)).tolist()
    return means


def _hangs_on(titles: Sequence[str], differences: np.ndarray, measure: Measure) -> str:
    """Said of a mean difference whose sign is that of one task: without it, the others have the other sign.

    `differences` has one row a task, one column a pre-training.
    """
    if len(titles) < 3:
        return ""
    without = (differences.sum(axis=0) - differences) / (len(titles) - 1)
    most = int(np.abs(without.mean(axis=1) - differences.mean()).argmax())
    left = without[most].mean()
    if left * differences.mean() >= 0:
        return ""
    each = f"by pre-training {', '.join(map(measure.figure, without[most]))}; " if without.shape[1] > 1 else ""
    return (
        f"The sign of that difference hangs on one task: without {titles[most]} it is {measure.figure(left)} "
        f"{measure.unit} ({each}seen afterwards, not tested)."
    )


def _tasks(found: Gathered, pair: tuple[str, str]) -> list[str]:
    """Those that were planned; otherwise those that both have. Some are reported, and in no mean."""
    has = [{one["task"] for one in found["finetuning"] if one["model"] == label} for label in pair]
    tasks = sorted(has[0] & has[1]) if found.planned_tasks is None else found.planned_tasks
    return [task for task in tasks if task not in task_names() or get_task(task).in_mean]


def _measure(
    what: str,
    unit: str,
    digits: int,
    more_is_better: bool,
    over: str,
    values: Mapping[str, Sequence[float]],
    records: list[Record],
    pair: tuple[str, str],
) -> Measure | None:
    """None for no pre-training that both have. How much is chance is taken from all models."""
    a, b = pair
    if not values[a]:
        return None
    others = [b, *(label for label in values if label not in pair)]
    differences = np.array([values[label] for label in others]) - np.array(values[a])
    return Measure(
        what,
        unit,
        digits,
        more_is_better,
        over,
        {label: list(its) for label, its in values.items()},
        records,
        pooled_tests(differences)[0],
    )
