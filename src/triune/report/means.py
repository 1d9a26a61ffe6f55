"""The mean over GLUE's tasks that a published table uses, from our records, so that ours stands beside theirs."""

from typing import Any

from triune.evaluation.metrics import MEANS, mean_of, missing_for
from triune.report.scores import data_notes, files_of, mean_and_spread
from triune.report.tables import Table
from triune.report.task_name import marks


def mean_table(records: list[dict[str, Any]], name: str) -> Table:
    """The means as a table of their own, which says what data they are of as the table of scores does."""
    table = means_of(records, name)
    used = [record for record in records if record["task"] in _tasks_of(name)]
    table.columns[1] += marks(used)
    table.notes += data_notes(used)
    return table


def means_of(records: list[dict[str, Any]], name: str) -> Table:
    """For each model: the mean of each seed that has all the tasks, then mean ± sd over those seeds."""
    by_seed: dict[str, dict[int, dict[str, dict[str, float]]]] = {}
    for record in records:
        scores = by_seed.setdefault(record["model"], {}).setdefault(record["seed"], {})
        scores[record["task"]] = record["scores"]
        for split, more in record.get("more_scores", {}).items():
            if split == "dev_mismatched":
                scores["mnli-mm"] = more
    table = Table(f"Mean over tasks, as in '{name}'", ["model", "mean"])
    tasks = _tasks_of(name)
    missing: list[str] = []
    for model, seeds in by_seed.items():
        values = [value for scores in seeds.values() if (value := mean_of(name, scores)) is not None]
        if not values:
            missing = missing_for(name, next(iter(seeds.values())))
        used = [one for one in records if one["model"] == model and one["task"] in tasks]
        if values and (files := files_of(used)):
            table.sources[len(table.rows), 1] = files
        table.rows.append([model, mean_and_spread(values)])
    table.notes.append(f"{MEANS[name].description}.")
    if missing:
        table.notes.append(f"It cannot be told without: {', '.join(missing)}.")
    return table


def _tasks_of(name: str) -> set[str]:
    return {task.removesuffix("-mm") for task, _ in MEANS[name].cells}
