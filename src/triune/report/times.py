"""The table of the training-time study: what an epoch takes, and what arithmetic alone would save."""

from collections.abc import Sequence
from typing import Any

from triune import operators
from triune.benchmarks.paper import FIGURE_3, FIGURE_3_NOTE
from triune.report.tables import Table

Record = dict[str, Any]

_BOUND = (
    "Time saved: by how much the median epoch is shorter than with {reference}. Arithmetic saved: the same for the "
    "FLOPs of the epoch (matrix products and role scalings, forward and backward, batches as they are padded). That "
    "is the bound that arithmetic sets: a saving beyond it is overhead (launches, memory, Python) or noise."
)


def time_tables(records: Sequence[Record]) -> list[Table]:
    """One table for all tasks, in the order of the paper's figure; a task's operators in their usual order."""
    if not records:
        return []
    table = Table(
        f"Training time: one epoch at batch {_joined(records, 'batch')}",
        [
            "task",
            "model",
            "seconds, median",
            "fastest – slowest",
            "time saved",
            "arithmetic saved",
            "time saved, paper",
        ],
        notes=[_BOUND.format(reference=_joined(records, "reference")), _conditions(records)],
        text_columns=2,
    )
    paper = list(FIGURE_3)
    place = {name: number for number, name in enumerate(paper)}
    for record in sorted(records, key=lambda one: (place.get(one["task"], len(paper)), one["task"])):
        title = record["task_title"] + (" (subset)" if record["subset"] else "")
        for one in sorted(record["contestants"], key=_model_place):
            number = len(table.rows)
            is_reference = one["model"] == record["reference"]
            of_paper = record["task"] in FIGURE_3 and one["operator"] == "shared"
            table.rows.append(
                [
                    title,
                    one["model"],
                    f"{one['median']:.2f}",
                    f"{min(one['seconds']):.2f} – {max(one['seconds']):.2f}",
                    "" if is_reference else _saved(one["ratio"]),
                    "" if is_reference else _saved(one["flop_ratio"]),
                    f"{FIGURE_3[record['task']]:.0f} %" if of_paper else "",
                ]
            )
            if record.get("file"):
                table.sources |= {
                    (number, column): (record["file"],) for column in range(2, 6) if table.rows[-1][column]
                }
    if any(record["task"] in FIGURE_3 for record in records):
        table.notes.append(FIGURE_3_NOTE)
    subsets = [f"{one['task_title']}: {one['rows']:,} rows from {one['source']}" for one in records if one["subset"]]
    if subsets:
        table.notes.append(f"subset: not the whole official training split. {'; '.join(subsets)}.")
    return [table]


def _conditions(records: Sequence[Record]) -> str:
    sizes = dict.fromkeys(
        f"{size['layers']} layers × {size['width']}, {size['heads']} heads, feed-forward {size['feed_forward']}"
        for size in (record["model"] for record in records)
    )
    lengths = ", ".join(
        f"{record['task_title']} {record['rows']:,} rows of {record['mean_tokens']:.1f} tokens" for record in records
    )
    rounds = _joined(records, "rounds")
    device = _joined(records, "device").replace("cpu", "one thread of a CPU")
    return (
        f"Random weights, {' or '.join(sizes)}; {_joined(records, 'precision')}, {device}; "
        f"{rounds} warm {'epoch' if rounds == '1' else 'epochs'} of each, in turn, in one process. {lengths}."
    )


def _joined(records: Sequence[Record], key: str) -> str:
    return " or ".join(dict.fromkeys(str(record[key]) for record in records))


def _model_place(contestant: Record) -> int:
    known = operators.names()
    return known.index(contestant["model"]) if contestant["model"] in known else len(known)


def _saved(ratio: float) -> str:
    percent = f"{100 * (1 - ratio):.1f}"
    return f"{'0.0' if float(percent) == 0 else percent.replace('-', '−')} %"
