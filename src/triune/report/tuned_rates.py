"""The learning rate that each model was given on each task, where it was searched."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from triune.report.tables import Table
from triune.report.task_name import task_name

Record = dict[str, Any]


def tuned_rates_tables(records: Sequence[Record], searched: Mapping[tuple[str, str], Set[float]]) -> list[Table]:
    """`searched` are the rates that were tried, by task and model; none were where the table is missing."""
    given: dict[str, dict[str, list[float]]] = {}
    for one in records:
        if (one["task"], one["model"]) in searched:
            of_model = given.setdefault(one["task"], {}).setdefault(one["model"], [])
            of_model += one["recipe"]["optimizer"]["learning_rates"]
    if not given:
        return []
    labels = list(dict.fromkeys(one["model"] for one in records))
    grids = sorted({", ".join(f"{rate:g}" for rate in sorted(tried)) for tried in searched.values()})
    table = Table("Search of rates in fine-tuning", ["task", *labels], notes=[])
    at_edge = count = 0
    for task, of_models in given.items():
        row = [task_name([one for one in records if one["task"] == task])]
        for label in labels:
            tried, rates = searched.get((task, label), set()), sorted(set(of_models.get(label, [])))
            is_at_edge = len(tried) > 1 and any(rate in (min(tried), max(tried)) for rate in rates)
            row.append((" or ".join(f"{rate:g}" for rate in rates) or "–") + (", at the edge" if is_at_edge else ""))
            at_edge, count = at_edge + is_at_edge, count + bool(rates)
        table.rows.append(row)
    table.notes.append(
        f"Of {' or of '.join(grids)}, tried once each, the rate with the best score on the development set (of equal "
        f"ones the highest). {at_edge} of {count} lie at the edge of the grid: there a better one may lie beyond."
    )
    return [table]
