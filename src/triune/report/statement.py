"""The form of a statement of the short answer, and the wording that statements share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from triune.evaluation.comparing import REFERENCE, SHARED, one_matrix_among
from triune.evaluation.significance import Comparison
from triune.report.gather import Gathered

Record = dict[str, Any]

UNTESTED = "untested"


@dataclass
class Statement:
    topic: str
    text: str
    section: str  # the part of the page that holds the evidence
    # For whom it speaks: standard, shared, both, none; or fact, untested, missing, alone (one model).
    leans: str = "none"
    share: str = ""  # on how many of all that was compared


@dataclass
class Tally:
    """Comparisons between the two models, by what they show; those that were not tested show nothing."""

    standard: list[str]
    shared: list[str]
    none: list[str]

    @property
    def count(self) -> int:
        return len(self.standard) + len(self.shared) + len(self.none)

    @property
    def leans(self) -> str:
        if self.standard and self.shared:
            return "both"
        return "standard" if self.standard else "shared" if self.shared else "none"

    @property
    def share(self) -> str:
        shown = len(self.standard) + len(self.shared)
        return f"{shown} of {self.count}" if shown else ""


def model_pair(found: Gathered) -> tuple[str, str] | None:
    """The labels of the two models that the question is about."""
    first = {operator: label for label, operator in reversed(found.models.items())}
    shared = one_matrix_among(first)
    return (first[REFERENCE], first[shared]) if shared and REFERENCE in first else None


def tally_of(comparisons: Sequence[Comparison], pair: tuple[str, str]) -> Tally:
    tally = Tally([], [], [])
    for one in comparisons:
        if {one.a, one.b} == set(pair) and one.p is not None:
            which = tally.none if one.better is None else tally.standard if one.better == pair[0] else tally.shared
            which.append(one.task)
    return tally


def is_of_one_pretraining(comparisons: Sequence[Comparison]) -> bool:
    return all(one.pretrainings == 1 for one in comparisons)


def rest(tally: Tally) -> str:
    count = len(tally.none)
    return f"on the other {count} no difference is shown" if count else "none is left undecided"


def statement(
    topic: str, said: Sequence[str], section: str, command: str, leans: str = "none", models: Iterable[str] = ()
) -> Statement:
    """`models` are those that there are records of, though there may be nothing to say about them."""
    if said:
        return Statement(topic, " ".join(said), section, leans)
    count = len(set(models))
    if not count:
        return Statement(topic, f"No records. `{command}` makes them.", section, "missing")
    what = "Records of one model only: nothing to compare."
    if count > 1:
        what = f"There are records of {count} models, but none that can be compared of {REFERENCE} and of {SHARED}."
    return Statement(topic, what, section, "alone")


def counted(tally: Tally, pair: tuple[str, str], what: str = "task") -> str:
    number = f"{tally.count} {what}{'' if tally.count == 1 else 's'}"
    if tally.leans == "none":
        return f"On none of {number} is a difference between {pair[0]} and {pair[1]} shown."
    return (
        f"Of {number}, {pair[0]} is shown to be better on {some(tally.standard)}, {pair[1]} on "
        f"{some(tally.shared)}; {rest(tally)}."
    )


def some(names: list[str]) -> str:
    """A number, and which they are where they are few."""
    between = "; " if any("," in name for name in names) else ", "
    return f"{len(names)} ({between.join(names)})" if 0 < len(names) <= 4 else str(len(names) or "none")


def percent_range(values: Sequence[float]) -> str:
    low, high = (f"{one:.1f}".replace("-", "−") for one in (min(values), max(values)))
    return f"{low} %" if low == high else f"{low} to {high} %"
