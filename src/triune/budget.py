"""A budget of time: a cell starts only where it is expected to end in time, and what was left out is known at the end.

How long a cell takes is first what the scale says, then the longest that a cell of its kind took: in records of
earlier runs, and, before those, in this one, by the clock. An old record that has the seconds of training alone,
without loading and scoring, makes a cell longer than the scale says, and never shorter. One that diverged, and so
ended early, says nothing.
"""

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triune.errors import TriuneError, shown
from triune.presence import has_lost_weights

if TYPE_CHECKING:
    from triune.cells import Cell

_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_NAMED = 10  # cells in one line
CELL_SECONDS = "cell_seconds"  # in a record: what its cell took, by the clock of whoever ran it last
_TAKEN = (CELL_SECONDS, "seconds")  # the latter: of a pre-training, over all its restarts
_AT_LEAST = "train_seconds"  # of a fine-tuning: a part of it


def budget_seconds(text: str) -> float:
    """`90s`, `25m` or `2h`: what --budget takes."""
    found = _WRITTEN.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if seconds <= 0:
        raise TriuneError(f"--budget '{shown(text)}' is no time: write it as 90s, 25m or 2h")
    return seconds


def duration(seconds: float) -> str:
    """`40 s`, `7 min`, `2.5 h`: as exact as an estimate is."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


class Budget:
    """From now on, so many seconds. `clock` gives the seconds of any clock that only goes forward."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.ends = clock() + seconds
        self.seconds = seconds
        self.half = seconds / 2
        self.without_weights: list[Cell] = []  # their model is not here
        self._stage, self._said = "", 0.0
        self._took: dict[tuple[str, str], list[float]] = {}  # by stage and kind, in this run
        self._took_before: dict[tuple[str, str], list[float]] = {}
        self._took_at_least: dict[tuple[str, str], list[float]] = {}
        self._started: dict[Path, float] = {}
        self._left_out: list[float] = []

    @property
    def left(self) -> float:
        return self.ends - self.clock()

    @property
    def shortest_left_out(self) -> float | None:
        """Seconds that the shortest of the cells that did not fit is expected to take."""
        return min(self._left_out, default=None)

    def count_from_now(self) -> None:
        """What was spent until now, on the text, is spent in every run: it is no part of the whole."""
        self.half = self.left / 2

    def may_begin(self, seconds: float) -> bool:
        """Whether to begin what is best done in one run: it fits, or a later run would hardly have more time for it."""
        return self.left >= min(seconds, self.half)

    def leave_out(self, seconds: float) -> None:
        """A cell that would take so long."""
        self._left_out.append(seconds)

    def enter(self, stage: str, seconds: float) -> None:
        """What comes next are cells of this stage; the scale says how long one takes."""
        self._stage, self._said = stage, seconds

    def expected(self, cell: "Cell") -> float:
        kind = (self._stage, cell.kind)
        taken = self._took.get(kind) or self._took_before.get(kind)
        return max(taken) if taken else max(self._said, *self._took_at_least.get(kind, []), 0.0)

    def start(self, cell: "Cell") -> bool:
        """Whether the cell may start; whoever may, does."""
        expected = self.expected(cell)
        if expected > self.left:
            self.leave_out(expected)
            return False
        self._started[cell.record] = self.clock()
        return True

    def end(self, cell: "Cell", record: dict[str, Any]) -> None:
        took = self.clock() - self._started.pop(cell.record)
        if "diverged" not in record:
            self._took.setdefault((self._stage, cell.kind), []).append(took)

    def hear(self, cell: "Cell", record: dict[str, Any]) -> None:
        """Of a cell that was done before."""
        kind = (self._stage, cell.kind)
        if (taken := seconds_in(record)) is not None:
            self._took_before.setdefault(kind, []).append(taken)
        elif "diverged" not in record and isinstance(part := record.get(_AT_LEAST), (int, float)):
            self._took_at_least.setdefault(kind, []).append(float(part))


def seconds_in(record: dict[str, Any]) -> float | None:
    """What a cell took, as its record says; None where it does not, as old ones, or ended early."""
    said = [float(one) for name in _TAKEN if isinstance(one := record.get(name), (int, float))]
    return max(said) if said and "diverged" not in record else None


def what_is_left(budget: Budget, records: Iterable[Path]) -> list[str]:
    """At the end, in lines: how far it is, and what cannot be done for want of weights."""
    paths = set(records)
    done = sum(path.is_file() for path in paths)
    if done == len(paths):
        return []
    lines = [f"{done} of {len(paths)} cells are done. What is finished is kept"]
    shortest = budget.shortest_left_out
    if shortest is not None:
        lines[0] += ", and the same command goes on."
        lines[0] += f" Of those that did not fit, the shortest takes about {duration(shortest)}."
    else:
        lines[0] += "; none of the others can run."
    by_model: dict[Path, dict[Path, str]] = {}
    for cell in budget.without_weights:
        # A model that has no record either is one that is still to be made; another one may have done for this.
        if cell.needs is not None and has_lost_weights(cell.needs) and not cell.record.is_file():
            by_model.setdefault(cell.needs, {})[cell.record] = cell.title
            paths.discard(cell.record)
    for model, cells in list(by_model.items())[:_NAMED]:
        titles = list(cells.values())
        lines.append(f"'{model}' has a record and no weights here, so these were left out: {_named(titles)}.")
    if more := list(by_model.values())[_NAMED:]:
        lines.append(f"Of {len(more)} more models it is the same: {sum(map(len, more))} cells were left out.")
    if shortest is None and (waiting := sorted(str(path) for path in paths if not path.is_file())):
        lines.append(
            "These were not made, because what they need is not there, or because they belong to a study that --only "
            f"leaves out: {_named(waiting)}."
        )
    return ["", *lines]


def _named(names: list[str]) -> str:
    more = f"; and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return "; ".join(names[:_NAMED]) + more
