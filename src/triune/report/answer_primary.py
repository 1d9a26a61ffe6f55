"""The comparison that is named beforehand, so that none of the many others can be picked in its place afterwards."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

import numpy as np

from triune.evaluation.grouping import groups_of, means_of_groups
from triune.evaluation.significance import ALPHA, Difference, differences_test, holm
from triune.report.gather import Gathered
from triune.report.statement import Statement, model_pair, p_value

Record = dict[str, Any]


def primary_statement(found: Gathered) -> Statement | None:
    """Shared against standard, on validation loss and on the mean score, each over pre-trainings.

    None where there are not several of both: of single models nothing follows for the kinds that they are of.
    """
    pair = model_pair(found)
    if pair is None:
        return None
    measured = [one for one in (_loss(found, pair), _score(found, pair)) if one is not None]
    if not measured:
        return None
    corrected = holm([one.difference.p for one in measured if one.difference.p is not None])
    said, ahead = [], set()
    for one, p in zip(measured, corrected, strict=True):
        is_shown = p < ALPHA
        if is_shown:
            ahead.add("shared" if one.of_shared * one.difference.effect > 0 else "standard")
        verdict = "a difference is shown" if is_shown else "no difference is shown"
        said.append(f"{one.what} {one.figures}, over {one.over}: {verdict} (p {p_value(p)}).")
    text = (
        f"Named beforehand: {pair[1]} against {pair[0]} on validation loss and on the mean score, paired t tests over "
        f"pre-trainings, corrected for the two (Holm); all other comparisons are secondary. {' '.join(said)}"
    )
    if len(measured) == 1:
        text += " The other of the two has no pairs of several pre-trainings yet."
    leans = "both" if len(ahead) > 1 else next(iter(ahead), "none")
    return Statement("Primary comparison", text, "table-1", leans)


class _Measured:
    """`of_shared` is 1 where more is better, −1 where less is."""

    def __init__(self, what: str, differences: Sequence[float], unit: str, digits: int, over: str, of_shared: int):
        self.what, self.over, self.of_shared = what, over, of_shared
        self.difference: Difference = differences_test(np.array(differences))
        ends = (self.difference.effect, *(self.difference.interval or ()))
        effect, *interval = (f"{end:+.{digits}f}".replace("-", "−") for end in ends)
        self.figures = f"{effect} {unit}" + (f" [{', '.join(interval)}]" if interval else "")


def _loss(found: Gathered, pair: tuple[str, str]) -> _Measured | None:
    a, b = (
        {run["seed"]: run["validation_loss"] for run in found["pretraining"] if run["label"] == label} for label in pair
    )
    seeds = sorted(a.keys() & b.keys())
    if len(seeds) < 2:
        return None
    over = f"{len(seeds)} pre-trainings"
    return _Measured("Validation loss", [b[seed] - a[seed] for seed in seeds], "nats", 3, over, -1)


def _score(found: Gathered, pair: tuple[str, str]) -> _Measured | None:
    """The mean over the tasks of both, of the seeds that have all of these."""
    by_seed: dict[str, dict[int, dict[str, Record]]] = {label: {} for label in pair}
    for one in found["finetuning"]:
        if one["model"] in by_seed:
            by_seed[one["model"]].setdefault(one["seed"], {})[one["task"]] = one
    a, b = (by_seed[label] for label in pair)
    both = {seed: a[seed].keys() & b[seed].keys() for seed in sorted(a.keys() & b.keys())}
    tasks = set().union(*both.values())
    seeds = [seed for seed, has in both.items() if has == tasks]
    if not tasks or not seeds:
        return None
    first = min(tasks)
    groups = groups_of(*([side[seed][first].get("model_sha256") for seed in seeds] for side in (a, b)))
    if len(set(groups)) < 2:
        return None
    means = [[mean(side[seed][task]["primary"] for task in tasks) for seed in seeds] for side in (a, b)]
    differences = means_of_groups(np.array(means[1]) - np.array(means[0]), np.array(groups))
    over = f"{len(differences)} pre-trainings ({len(seeds)} fine-tunings)"
    what = f"Mean score over {len(tasks)} task{'' if len(tasks) == 1 else 's'}"
    return _Measured(what, list(differences), "points", 2, over, 1)
