"""How the figures came about, from the recipes and settings in the records."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from triune.report.conditions import ONE_MODEL
from triune.report.gather import Gathered
from triune.report.tables import Table

Record = dict[str, Any]

NOT_SET = "not set"


def method_tables(found: Gathered) -> list[Table]:
    tables = []
    if found["pretraining"]:
        tables.append(_recipe("Pre-training recipe", found["pretraining"], lambda run: run["label"]))
    if found["finetuning"]:
        tables.append(_finetuning(found))
    if found["noise"]:
        tables.append(_settings("Settings of the noise study", found["noise"], lambda one: one["settings"]))
    if found["transfer"]:
        tables.append(_mappings(found["transfer"]))
    tables.append(_surroundings(found))
    return tables


def _recipe(title: str, records: Sequence[Record], label: Callable[[Record], str]) -> Table:
    about = dict.fromkeys(one["recipe"].get("about", "") for one in records)
    table = Table(title, ["part", "value", "for all"], text_columns=3, notes=[text for text in about if text])
    table.rows = [[name, *said] for name, said in _values(records, lambda one: one["recipe"], label) if name != "about"]
    return table


def _finetuning(found: Gathered) -> Table:
    """A run that a search came before has a recipe without one."""
    table = _recipe("Fine-tuning recipe", found["finetuning"], lambda one: one["model"])
    grids = {tuple(sorted(tried)) for tried in found.searched.values()}
    for row in table.rows:
        if row[:2] == ["search.learning_rates", "none"] and grids:
            tried = [", ".join(f"{rate:g}" for rate in grid) for grid in sorted(grids)]
            row[1] = f"tried before these runs: {' or '.join(tried)}"
    return table


def _settings(title: str, records: Sequence[Record], settings: Callable[[Record], Record]) -> Table:
    table = Table(title, ["setting", "value", "for all"], text_columns=3)
    table.rows = [[name, *said] for name, said in _values(records, settings, lambda one: one["model"])]
    return table


def _values(
    records: Sequence[Record], part: Callable[[Record], Record], label: Callable[[Record], str]
) -> Iterator[tuple[str, list[str]]]:
    """Every setting with its value, or with each value and who had it; to lack one is a value too.

    It is the same for all where on every task each model has the same values: tasks may differ, and seeds.
    """
    flat = [(label(one), one.get("task_title", ""), dict(_flat(part(one)))) for one in records]
    is_alone = len({model for model, _, _ in flat}) == 1
    for name in dict.fromkeys(name for _, _, settings in flat for name in settings):
        by_task: dict[str, dict[str, set[str]]] = {}
        models_with: dict[str, dict[str, None]] = {}
        tasks_with: dict[str, dict[str, None]] = {}
        for model, task, settings in flat:
            value = settings.get(name, NOT_SET)
            by_task.setdefault(task, {}).setdefault(model, set()).add(value)
            models_with.setdefault(value, {})[model] = None
            tasks_with.setdefault(value, {})[task] = None
        if any(values != next(iter(models.values())) for models in by_task.values() for values in models.values()):
            yield name, [_each(models_with), "no"]
            continue
        is_of_all_tasks = all(len(tasks) == len(by_task) for tasks in tasks_with.values())
        yield name, ["; ".join(tasks_with) if is_of_all_tasks else _each(tasks_with), ONE_MODEL if is_alone else "yes"]


def _each(values: dict[str, dict[str, None]]) -> str:
    return "; ".join(f"{value} ({', '.join(who)})" for value, who in values.items())


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):  # an empty one has no values: what others have in it is "not set" here
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        yield name, ", ".join(_plain(one) for one in value) or "none"
    else:
        yield name, _plain(value)


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _mappings(records: Sequence[Record]) -> Table:
    table = Table("Cross-task: how classes are compared", ["trained on", "tested on", "mapping"], text_columns=3)
    said = {
        (record["source_title"], target["title"], target["mapping"]): None
        for record in records
        for target in record["targets"]
    }
    table.rows = [list(row) for row in said]
    return table


def _surroundings(found: Gathered) -> Table:
    """Seeds, versions, devices and the code that computed attention."""
    table = Table("Seeds, versions, devices", ["what", "value"], text_columns=2)
    for study, title in (("pretraining", "pre-training"), ("variants", "ablation"), ("finetuning", "fine-tuning")):
        if seeds := sorted({record["seed"] for record in found[study]}):
            table.rows.append([f"{title} seeds", ", ".join(map(str, seeds))])
    versions: dict[str, list[str]] = {}
    for record in found.all():
        for name, version in (record.get("versions") or {}).items():
            if version not in versions.setdefault(name, []):
                versions[name].append(version)
    table.rows += [[f"version of {name}", ", ".join(values)] for name, values in versions.items()]
    devices = dict.fromkeys(str(record["device"]) for record in found.all() if record.get("device"))
    if devices:
        table.rows.append(["devices", ", ".join(devices)])
    kernels = [
        *(run.get("how") or run["recipe"]["training"]["attention"] for run in found["pretraining"]),
        *(f"{one['attention']}{', captured' if one.get('captured') else ''}" for one in found["finetuning"]),
        *(one.get("how", "") for record in found["time"] for one in record["contestants"]),
    ]
    if kernels := [one for one in dict.fromkeys(kernels) if one]:
        table.rows.append(["attention computed by", "; ".join(kernels)])
    return table
