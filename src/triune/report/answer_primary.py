"""The comparison that is always made, so that none of the many others can be picked in its place afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import numpy as np

from triune.data.tasks import get_task, task_names
from triune.evaluation.grouping import groups_of, means_of_groups
from triune.evaluation.over_seeds import Difference, pooled_tests
from triune.evaluation.significance import ALPHA, holm
from triune.report.gather import Gathered
from triune.report.scores import files_of, p_value
from triune.report.statement import UNTESTED, Statement, model_pair
from triune.report.tables import Table
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


def primary_statement(found: Gathered) -> Statement | None:
    known = primary(found)
    if known is None:
        return None
    text = (
        f"Always made, whatever the records show: {known.pair[1]} against {known.pair[0]} on validation loss and on "
        "the mean score"
    )
    if known.tested or found.waits_for:
        text += ", t tests over pre-trainings, corrected for the two (Holm; intervals are not); all other comparisons "
        text += "are secondary"
    text += "."
    if found.waits_for:
        text += f" So far, not tested yet ({found.waits_for}):"
    for one in known.measures:
        tested = "" if found.waits_for else f"{one.interval}, over {one.over}: {one.verdict}"
        text += f" {one.what} {one.effect}{tested}.{one.remark and f' {one.remark}'}"
    if len(known.measures) == 1:
        text += " The other one is not in these records for both of them."
    ahead = {one.ahead for one in known.measures if one.ahead is not None}
    leans = "both" if len(ahead) > 1 else next(iter(ahead), "none")
    untested = found.waits_for or not known.tested
    return Statement("Primary comparison", text, "table-1", UNTESTED if untested else leans)


def primary_headline(known: Primary) -> str:
    """What both measures show, in a sentence."""
    said = []
    for one in known.measures:
        name = one.what[0].lower() + one.what[1:]
        figures = f"{known.pair[1]} {one.effect}, p {p_value(one.p)}"
        if not one.tested:
            said.append(f"a difference in {name} is not tested ({known.pair[1]} {one.effect})")
        elif one.ahead is None:
            said.append(f"no difference in {name} is shown ({figures})")
        else:
            who = "separate" if one.ahead == "standard" else "shared"
            more = "higher" if one.more_is_better else "lower"
            said.append(f"{who} weights are shown to reach a {more} {name} ({figures})")
    return f"In these runs {' and '.join(said)}."


def untested_headline(known: Primary) -> str:
    """What one model of each kind reached: no more than that, and said before what the tasks' own tests do not show."""
    said = " and ".join(f"{one.what[0].lower()}{one.what[1:]} {one.effect}" for one in known.measures)
    return f"with {known.pair[1]}, {said} (not tested)."


def primary_tables(found: Gathered) -> list[Table]:
    """Both measures of every model that has them over the same pre-trainings; tested is the pair alone."""
    known = primary(found)
    if known is None:
        return []
    table = Table("The two measures of the primary comparison", ["model"], notes=[])
    labels = [label for label in found.models if any(label in one.values for one in known.measures)]
    table.rows = [[label] for label in labels]
    for one in known.measures:
        for number, (label, row) in enumerate(zip(labels, table.rows, strict=True)):
            own = [record for record in one.records if label == (record.get("label") or record["model"])]
            table.sources[number, len(table.columns)] = files_of(own)
            row += _cells(one, label, known.pair[0])
        table.columns += [f"{one.what}, {one.unit}", f"− {known.pair[0]}"]
        if found.waits_for is None and one.tested:
            table.notes.append(
                f"{one.what}: {known.pair[1]} − {known.pair[0]} {one.effect}{one.interval}, p {p_value(one.p)} after "
                f"Holm's method for both measures; by pre-training {one.by_pretraining(known.pair)}."
            )
        elif found.waits_for is None:
            table.notes.append(f"{one.what}: over {one.over}, not tested.")
        if one.remark:
            table.notes.append(one.remark)
    values = "Mean ± standard deviation over pre-trainings; each" if known.tested else "Each pre-training"
    about = " A test of the mean score is about these development sets: how it would be on others is not in it."
    table.notes.insert(
        0,
        f"{values} counts once, with the mean of its fine-tunings. WNLI is in no mean.{about if known.tested else ''}",
    )
    return [table]


def _cells(measure: Measure, label: str, reference: str) -> list[str]:
    if label not in measure.values:
        return ["–", "–"]
    values, base = measure.values[label], mean(measure.values[reference])
    difference = "" if label == reference else measure.figure(mean(values) - base)
    spread = f" ± {measure.figure(stdev(values), '')}" if len(values) > 1 else ""
    return [f"{measure.figure(mean(values), '')}{spread}", difference]


def _loss(found: Gathered, pair: tuple[str, str]) -> Measure | None:
    losses: dict[str, dict[int, float]] = {}
    for run in found["pretraining"]:
        losses.setdefault(run["label"], {})[run["seed"]] = run["validation_loss"]
    if not set(pair) <= losses.keys():
        return None
    seeds = sorted(losses[pair[0]].keys() & losses[pair[1]].keys())
    values = {label: [its[seed] for seed in seeds] for label, its in losses.items() if its.keys() >= set(seeds)}
    used = [run for run in found["pretraining"] if run["label"] in values and run["seed"] in seeds]
    return _measure("Validation loss", "nats", 3, False, _pretrainings(len(seeds)), values, used, pair)


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

    def groups(label: str) -> list[int]:
        sides = (whole[pair[0]], whole[label])
        return groups_of(*([side[seed][tasks[0]].get("model_sha256") for seed in seeds] for side in sides))

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
        measure.remark = _hangs_on(titles, by_task[pair[1]] - by_task[pair[0]], measure)
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
