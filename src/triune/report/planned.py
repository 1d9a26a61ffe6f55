"""What a study is to hold in the end: until all of it is there, nothing is said to be shown.

Whoever tests after every round and stops when a difference is shown finds one too often.
"""

from collections.abc import Collection, Sequence
from typing import Any

Record = dict[str, Any]

STUDY = "planned"
FILE = "planned.json"


def still_missing(
    planned: Record | None, runs: Sequence[Record], finetuned: Sequence[Record], diverged: Collection[tuple[Any, ...]]
) -> str | None:
    """In words, how much is there of what was begun; None where it is all there, or nothing was planned.

    `diverged` holds (label, seed) of pre-trainings and (task, label, seed) of fine-tunings: they are done too, and so
    is what would have started from them.
    """
    if planned is None:
        return None
    labels, rounds = planned["operators"], range(1, planned["pretraining_seeds"] + 1)
    made = {(one["label"], one["seed"]) for one in runs} | set(diverged)
    wanted = {(label, seed) for label in labels for seed in rounds} if runs else set()
    tuned = {(one["task"], one["model"], one["seed"]) for one in finetuned} | set(diverged)
    begun = [task for task in planned["tasks"] if any(one["task"] == task for one in finetuned)]
    tunings = {
        (task, label, seed)
        for task in begun
        for label in labels
        for seed in range(1, planned["finetuning_seeds"] + 1)
        if (label, (seed - 1) % len(rounds) + 1) not in diverged
    }
    parts = [
        f"{len(want & have)} of {len(want)} planned {what}"
        for what, want, have in (("pre-trainings", wanted, made), ("fine-tunings", tunings, tuned))
        if want - have
    ]
    return " and ".join(parts) or None
