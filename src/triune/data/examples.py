"""Texts and labels of one split, checked row by row, ready to be tokenized."""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from triune.data.tables import Rows
from triune.data.task_list import Task
from triune.errors import TriuneError, shown

IDS = "idx"  # GLUE's column of ids
LARGEST = 3.4e38  # labels become float32

# As people write numbers in tables. Not `007` (a code, not a number), `1_000` or `inf`, which Python would take.
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Examples:
    """A split. `source` names what was read, `sha256` is over the texts and labels, whatever file they came from;
    `subset` is true where this is not the whole official split, so that numbers on it are not comparable."""

    first: list[str]
    second: list[str] | None
    labels: list[int] | list[float] | None
    ids: list[int] | list[str]
    source: str
    subset: bool
    sha256: str

    def __len__(self) -> int:
        return len(self.first)


def ids_sha256(ids: Sequence[Any] | str) -> str:
    """One checksum for all ids of a split, by which records say what was scored; a checksum stays what it is."""
    return ids if isinstance(ids, str) else hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def make_examples(
    first: list[str],
    second: list[str] | None,
    labels: list[int] | list[float] | None,
    ids: list[int] | list[str],
    source: str,
    subset: bool = False,
) -> Examples:
    digest = hashlib.sha256()
    for index, text in enumerate(first):
        row = [text, second and second[index], labels and labels[index]]
        digest.update(json.dumps(row).encode() + b"\n")
    return Examples(first, second, labels, ids, source, subset, digest.hexdigest())


def split_examples(
    task: Task, parts: Sequence[Rows], source: str, subset: bool, limit: int | None, test: bool
) -> Examples:
    """The rows of one or several tables, in order. A test split may come without labels, or with -1 for all."""
    rows = [(part, index) for part in parts for index in range(len(part))][:limit]
    texts = [[one_text(part, index, column, task.allow_empty) for part, index in rows] for column in task.text]
    labels: list[Any] | None = None
    if not (test and all(_hidden(part.columns[task.label][index]) for part, index in rows)):
        labels = [_label(task, part, index) for part, index in rows]
    ids = [part.columns[IDS][index] for part, index in rows]
    if not _usable_ids(ids):  # tables that were joined may count twice from 0
        ids = list(range(len(rows)))
    return make_examples(texts[0], texts[1] if len(texts) > 1 else None, labels, ids, source, subset)


def found(task: Task, examples: Examples) -> str:
    """One line that says what was found: kind of labels, classes, rows."""
    rows = f"{len(examples):,} {'row' if len(examples) == 1 else 'rows'}"
    rows += "" if examples.labels is not None else " without labels"
    if task.kind == "classification":
        return f"{len(task.classes):,} classes ({class_list(task.classes)}), {rows}"
    if task.kind == "regression" and examples.labels:
        return f"numbers from {min(examples.labels):g} to {max(examples.labels):g}, {rows}"
    return f"{'numbers' if task.kind == 'regression' else 'answers in the text'}, {rows}"


def class_list(classes: Sequence[str]) -> str:
    return ", ".join(shown(name) for name in classes[:8]) + (", ..." if len(classes) > 8 else "")


def one_text(rows: Rows, index: int, column: str, allow_empty: bool = False) -> str:
    text: str = rows.columns[column][index]
    if not allow_empty and not text.strip():
        raise TriuneError(f"{rows.place(index)}: the text in column '{shown(column)}' is empty; fill or remove the row")
    return text


def missing(value: Any) -> bool:
    """Nothing, blank, or "not a number", as a value or as pandas writes it."""
    if isinstance(value, str):
        return value.strip().lower() in ("", "nan")
    return value is None or (isinstance(value, float | Decimal) and math.isnan(value))


def as_number(value: Any) -> int | float | None:
    """The number that a value is or spells, whole ones as int; None for anything else, also for True and False."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = value.strip()
        if not _NUMBER.fullmatch(value):
            return None
        try:
            value = int(value)
        except ValueError:
            value = float(value)
    value = float(value) if isinstance(value, Decimal) else value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value if isinstance(value, int) else None


def finite_label(number: int | float | None, value: Any, column: str, at: str) -> float:
    if number is None or not abs(number) <= LARGEST:
        is_number = number is not None and abs(number) < math.inf  # not math.isfinite: a whole one may be any
        what = "is too large for float32" if is_number else "is not a finite number"
        raise TriuneError(f"{at}: the label '{shown(value)}' in column '{shown(column)}' {what}")
    return float(number)


def _label(task: Task, rows: Rows, index: int) -> int | float:
    value = rows.columns[task.label][index]
    if missing(value):
        raise TriuneError(f"{rows.place(index)}: no label in column '{shown(task.label)}'; fill or remove the row")
    number = as_number(value)
    if task.kind == "regression":
        return finite_label(number, value, task.label, rows.place(index))
    if isinstance(value, str) and value.strip() in task.classes:
        return task.classes.index(value.strip())
    if isinstance(number, int) and 0 <= number < len(task.classes):
        return number
    known = f"the classes {class_list(task.classes)}, nor of their ids 0 to {len(task.classes) - 1}"
    raise TriuneError(f"{rows.place(index)}: the label '{shown(value)}' is none of {known}")


def _hidden(value: Any) -> bool:
    return missing(value) or as_number(value) == -1


def _usable_ids(ids: list[Any]) -> bool:
    same = all(type(one) is int for one in ids) or all(isinstance(one, str) for one in ids)
    return same and len(set(ids)) == len(ids)
