"""The tasks that models are fine-tuned on. They are data: see tasks.yaml beside this file."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from triune.errors import TriuneError, did_you_mean, shown

TASKS_FILE = Path(__file__).with_name("tasks.yaml")

# The metrics that a kind of task may be judged by.
METRICS = {
    "classification": ("accuracy", "f1", "macro_f1", "matthews", "accuracy_f1"),
    "regression": ("pearson", "spearman", "pearson_spearman"),
    "span": ("exact", "f1"),
}


@dataclass(frozen=True)
class Hub:
    """Where a task is on the Hugging Face hub; `splits` maps our names to those there."""

    name: str
    config: str | None
    splits: Mapping[str, str] = field(hash=False)

    def address(self, split: str) -> str:
        return f"hub:{self.name}:{self.config or ''}:{self.splits[split]}"


@dataclass(frozen=True)
class Task:
    """What a task's rows are called, how they are judged, and where they are. `classes` are in order of their ids."""

    name: str
    title: str
    kind: str
    text: tuple[str, ...]
    label: str
    metrics: tuple[str, ...]
    primary: str
    classes: tuple[str, ...] = ()
    agreement: str | None = (
        None  # of two texts: the class that says that the second follows from, or repeats, the first
    )
    folder: str = ""
    dev_splits: tuple[str, ...] = ("dev",)
    counts: Mapping[str, int] = field(default_factory=dict, hash=False)  # official rows of every split
    hub: Hub | None = None
    server_files: Mapping[str, str] = field(default_factory=dict, hash=False)  # of the GLUE test server, by split
    allow_empty: bool = False
    in_mean: bool = True  # of the primary comparison; WNLI's development set is adversarial to its training set

    def __post_init__(self) -> None:
        if self.kind not in METRICS:
            raise self._wrong(f"unknown kind '{shown(self.kind)}'{did_you_mean(self.kind, METRICS)}")
        for metric in (*self.metrics, self.primary):
            if metric not in METRICS[self.kind]:
                raise self._wrong(f"unknown metric '{shown(metric)}'{did_you_mean(metric, METRICS[self.kind])}")
        if self.primary not in self.metrics:
            raise self._wrong(f"the primary metric '{self.primary}' is not among the metrics")
        if len(self.text) not in (1, 2) or len({*self.text, self.label}) != len(self.text) + 1:
            raise self._wrong("it needs one or two text columns and a label column, all different")
        if self.kind == "classification" and (len(self.classes) < 2 or len(set(self.classes)) != len(self.classes)):
            raise self._wrong("it needs two or more classes with different names")
        if self.kind != "classification" and self.classes:
            raise self._wrong("only a classification task has classes")
        if self.agreement is not None and (self.agreement not in self.classes or len(self.text) != 2):
            raise self._wrong(f"agreement '{shown(self.agreement)}' must be a class of a task with two texts")

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.counts)

    def _wrong(self, what: str) -> TriuneError:
        return TriuneError(f"task '{shown(self.name)}': {what}")


def task_names() -> list[str]:
    return list(_tasks())


def get_task(name: str) -> Task:
    tasks = _tasks()
    if name not in tasks:
        raise TriuneError(f"unknown task '{shown(name)}'{did_you_mean(name, tasks)}")
    return tasks[name]


@cache
def _tasks() -> dict[str, Task]:
    return read_tasks(TASKS_FILE)


def read_tasks(path: Path) -> dict[str, Task]:
    """The tasks of a YAML file, by name."""
    try:
        written = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise TriuneError(f"cannot read the tasks in '{path}': {shown(error, 200)}") from error
    if not isinstance(written, dict):
        raise TriuneError(f"'{path}' must hold tasks by name")
    return {str(name): _task(str(name), values) for name, values in written.items()}


def _task(name: str, values: Any) -> Task:
    fields = {one.name: one for one in dataclasses.fields(Task) if one.name != "name"}
    checked = _typed(f"task '{shown(name)}'", values, fields)
    if "hub" in checked:
        hub = _typed(f"task '{shown(name)}', hub", checked["hub"], {one.name: one for one in dataclasses.fields(Hub)})
        checked["hub"] = Hub(**hub)
        if set(hub["splits"]) != set(checked.get("counts", {})):
            raise TriuneError(f"task '{shown(name)}': hub.splits and counts must name the same splits")
    return Task(name=name, **checked)


def _typed(where: str, values: Any, fields: Mapping[str, dataclasses.Field]) -> dict[str, Any]:
    """Known keys with values of the right type, and every key that has no default; YAML's lists become tuples."""
    if not isinstance(values, dict):
        raise TriuneError(f"{where}: it must hold keys and values")
    for key in values:
        if key not in fields:
            raise TriuneError(f"{where}: unknown key '{shown(key)}'{did_you_mean(str(key), fields)}")
    checked = {}
    for key, one in fields.items():
        if key not in values:
            if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING:
                raise TriuneError(f"{where}: the key '{key}' is missing")
            continue
        value = values[key]
        if not _fits(value, str(one.type)):
            raise TriuneError(f"{where}: '{key}' is {shown(repr(value))}, which does not fit")
        checked[key] = tuple(value) if isinstance(value, list) else value
    return checked


def _fits(value: Any, hint: str) -> bool:
    if "tuple" in hint:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if "Mapping" in hint:
        wanted = int if "int" in hint else str
        return isinstance(value, dict) and all(isinstance(k, str) and type(v) is wanted for k, v in value.items())
    if "bool" in hint:
        return isinstance(value, bool)
    if "Hub" in hint:
        return isinstance(value, dict)
    return isinstance(value, str) or (value is None and "None" in hint)
