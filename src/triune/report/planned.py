"""What a study is to hold in the end: until all of it is there, nothing is said to be shown.

Whoever tests after every round and stops when a difference is shown finds one too often.
"""

from collections.abc import Collection, Sequence
from typing import Any

Record = dict[str, Any]

STUDY = "planned"
FILE = "planned.json"
RATES = "learning_rates"  # the grid of the search, where there is one
_MOST_SEEDS = 1000


def wrong_plan(record: Record) -> str | None:
    """What is wrong with the form of a plan."""
    for name in ("operators", "tasks"):
        listed = record[name]
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            return f"'{name}' must be a list of names"
    for name in ("pretraining_seeds", "finetuning_seeds"):
        number = record[name]
        if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= _MOST_SEEDS:
            return f"'{name}' must be a whole number from 1 to {_MOST_SEEDS:,}"
    rates = record.get(RATES, [])
    if not isinstance(rates, list) or not all(isinstance(one, float) for one in rates):
        return f"'{RATES}' must be a list of numbers"
    return None


def still_missing(
    plan: Record,
    rates: Sequence[Record],
    runs: Sequence[Record],
    finetuned: Sequence[Record],
    diverged: Collection[tuple[Any, ...]],
) -> tuple[int, ...] | None:
    """Of what was begun (pre-training, and the fine-tuning of a task), how many runs are there and how many planned.

    (pre-trainings, planned, fine-tunings, planned), or None where all are there. `diverged` holds (label, seed) of
    pre-trainings and (task, label, seed) of fine-tunings: they are done too, and so is what would have started from
    them; an operator all of whose rates diverged is not trained at all.
    """
    lost = _without_a_rate(rates)
    labels, rounds = [one for one in plan["operators"] if one not in lost], range(1, plan["pretraining_seeds"] + 1)
    made = {(one["label"], one["seed"]) for one in runs} | set(diverged)
    wanted = {(label, seed) for label in labels for seed in rounds} if runs else set()
    tuned = {(one["task"], one["model"], one["seed"]) for one in finetuned} | set(diverged)
    begun = [task for task in plan["tasks"] if any(one["task"] == task for one in finetuned)]
    tunings = {
        (task, label, seed)
        for task in begun
        for label in labels
        for seed in range(1, plan["finetuning_seeds"] + 1)
        if (label, (seed - 1) % len(rounds) + 1) not in diverged
    }
    if wanted <= made and tunings <= tuned:
        return None
    return len(wanted & made), len(wanted), len(tunings & tuned), len(tunings)


def in_words(missing: Sequence[tuple[int, ...]]) -> str | None:
    """Of one plan or several, added up."""
    if not missing:
        return None
    runs, planned_runs, tunings, planned_tunings = (sum(column) for column in zip(*missing, strict=True))
    parts = [("pre-trainings", runs, planned_runs), ("fine-tunings", tunings, planned_tunings)]
    return " and ".join(f"{there} of {planned} planned {what}" for what, there, planned in parts if there < planned)


def _without_a_rate(rates: Sequence[Record]) -> set[str]:
    by_label: dict[str, list[bool]] = {}
    for one in rates:
        by_label.setdefault(one["label"], []).append("diverged" in one)
    return {label for label, lost in by_label.items() if all(lost)}
