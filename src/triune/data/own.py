"""A user's own task: what kind it is, and which classes it has, is found from its labels."""

from collections import Counter
from pathlib import Path
from typing import Any

from triune.data.examples import Examples, as_number, class_list, finite_label, make_examples, missing, one_text
from triune.data.tables import Rows, read_rows, table_kind
from triune.data.task_list import Task
from triune.errors import TriuneError, did_you_mean, shown

KINDS = ("classification", "regression")
MOST_CLASSES = 20  # more different whole numbers than these are amounts, not classes


def own_task(
    train: Path, dev: Path, text: str, text2: str | None, label: str, kind: str | None = None
) -> tuple[Task, Examples, Examples]:
    """The task that two tables hold, and its train and dev examples.

    It is regression where every label of train is a number and some are not whole, or more than 20 differ; otherwise
    labels are classes, in alphabetical order, or in the order of numbers. `kind` says otherwise.
    """
    train, dev = Path(train), Path(dev)
    texts = [text] if text2 is None else [text, text2]
    for column in {*texts, label}:
        if [*texts, label].count(column) > 1:
            raise TriuneError(f"column '{shown(column)}' is asked for twice; texts and label must be different columns")
    if kind is not None and kind not in KINDS:
        raise TriuneError(f"unknown kind of task '{shown(kind)}'{did_you_mean(kind, KINDS)}")
    tables = [read_rows(path, [*texts, label], text=texts) for path in (train, dev)]
    for rows in tables:
        _check_labels(rows, label)
    kind = kind or _kind(tables[0], label)
    suffixes = "".join(table_kind(train))
    title = train.name[: -len(suffixes)]
    if kind == "regression":
        labels: list[list[Any]] = [_numbers(rows, label) for rows in tables]
        if len(set(labels[0])) == 1:
            raise TriuneError(f"'{tables[0].where}': every label in column '{shown(label)}' is the same number")
        metrics = ("pearson", "spearman", "pearson_spearman")
        task = Task("own", title, kind, tuple(texts), label, metrics, "pearson_spearman")
    else:
        classes = _classes(tables[0], label)
        labels = [_ids(rows, label, classes) for rows in tables]
        metrics = ("accuracy", "macro_f1", *(("f1", "matthews") if len(classes) == 2 else ()))
        task = Task("own", title, kind, tuple(texts), label, metrics, "accuracy", classes)
    examples = [_examples(rows, texts, ids) for rows, ids in zip(tables, labels, strict=True)]
    return task, examples[0], examples[1]


def _examples(rows: Rows, texts: list[str], labels: list[Any]) -> Examples:
    columns = [[one_text(rows, index, column) for index in range(len(rows))] for column in texts]
    return make_examples(columns[0], columns[1] if len(columns) > 1 else None, labels, rows.numbers, rows.where)


def _check_labels(rows: Rows, column: str) -> None:
    for index, value in enumerate(rows.columns[column]):
        if missing(value):
            raise TriuneError(f"{rows.place(index)}: no label in column '{shown(column)}'; fill or remove the row")
        if as_number(value) is None and not isinstance(value, str | bool):
            what = f"the label in column '{shown(column)}' is a {type(value).__name__}"
            raise TriuneError(f"{rows.place(index)}: {what}; it must be a word or a number")


def _kind(rows: Rows, column: str) -> str:
    values = rows.columns[column]
    numbers = [as_number(value) for value in values]
    sorts = ["word" if number is None else "number" for number in numbers]
    counts = Counter(sorts)
    if len(counts) == 2:
        usual = counts.most_common(1)[0][0]
        odd = next(index for index, sort in enumerate(sorts) if sort != usual)
        raise TriuneError(
            f"{rows.place(odd)}: the label '{shown(values[odd])}' is a {sorts[odd]}, while most in column "
            f"'{shown(column)}' are {usual}s; correct it, or say that the task is a classification"
        )
    if counts["word"]:
        return "classification"
    whole = all(isinstance(number, int) for number in numbers)
    return "classification" if whole and len(set(numbers)) <= MOST_CLASSES else "regression"


def _numbers(rows: Rows, column: str) -> list[float]:
    values = enumerate(rows.columns[column])
    return [finite_label(as_number(value), value, column, rows.place(index)) for index, value in values]


def _class_name(value: Any) -> str:
    """1, 1.0, "1" and "1.0" are one class: tools write whole numbers in all these ways."""
    number = as_number(value)
    return str(value).strip() if number is None else str(number)


def _classes(rows: Rows, column: str) -> tuple[str, ...]:
    values = {}
    for index, value in enumerate(rows.columns[column]):
        number = as_number(value)
        if number is not None:
            finite_label(number, value, column, rows.place(index))
        values[_class_name(value)] = number
    if len(values) == 1:
        only = shown(next(iter(values)))
        raise TriuneError(f"'{rows.where}': every label in column '{shown(column)}' is '{only}'; there must be two")
    # Numbers come first, in their order; words after them.
    return tuple(sorted(values, key=lambda name: (values[name] is None, values[name] or 0, name)))


def _ids(rows: Rows, column: str, classes: tuple[str, ...]) -> list[int]:
    by_name = {name: index for index, name in enumerate(classes)}
    ids = []
    for index, value in enumerate(rows.columns[column]):
        name = _class_name(value)
        if name not in by_name:
            what = f"the label '{shown(name)}' is not in the train file, which has {class_list(classes)}"
            raise TriuneError(f"{rows.place(index)}: {what}")
        ids.append(by_name[name])
    return ids
