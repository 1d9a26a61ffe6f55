"""Tables of downstream scores, and of what can be said about their differences."""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from triune.errors import TriuneError
from triune.evaluation.comparing import SHARED_AGAINST_STANDARD
from triune.evaluation.significance import ALPHA, ONE_SEED, Comparison
from triune.report.tables import Table
from triune.report.task_name import POCKET_NOTE, is_pocket, marks

Record = dict[str, Any]

BETTER, WORSE = " ▲", " ▼"


def score_tables(records: list[Record], comparisons: Sequence[Comparison] = ()) -> list[Table]:
    """A row per model and a column per task; then, where there are any, the comparisons."""
    tables = [_scores(records, comparisons)] if records else []
    if comparisons:
        tables.append(comparison_table(records, comparisons))
    return tables


def files_of(records: Sequence[Record]) -> tuple[str, ...]:
    """Where the records of a figure are, for `Table.sources`."""
    return tuple(dict.fromkeys(record["file"] for record in records if record.get("file")))


def pretrainings(records: Sequence[Record]) -> int:
    """Of the model that has most."""
    by_model: dict[str, set[Any]] = {}
    for one in records:
        by_model.setdefault(one["model"], set()).add(one.get("model_sha256"))
    return max(map(len, by_model.values()), default=0)


def with_common_seeds(records: list[Record]) -> list[Record]:
    """Of several pre-trainings on each task only the seeds that all models have, so that their means can be compared.

    Seeds take turns at the pre-trained models: one that a model lacks is a pre-training that it lacks.
    """
    if pretrainings(records) < 2:
        return records
    seeds: dict[str, dict[str, set[int]]] = {}
    for one in records:
        seeds.setdefault(one["task"], {}).setdefault(one["model"], set()).add(one["seed"])
    common = {task: set.intersection(*by_model.values()) for task, by_model in seeds.items()}
    return [one for one in records if one["seed"] in common[one["task"]] or not common[one["task"]]]


def _scores(records: list[Record], comparisons: Sequence[Comparison]) -> Table:
    models = list(dict.fromkeys(record["model"] for record in records))
    columns = list(dict.fromkeys((record["task"], record["metric"]) for record in records))
    values = _by_cell(records)
    table = Table(
        "Scores on the development sets",
        ["model"],
        [[model] for model in models],
        notes=[
            "In percent: mean ± standard deviation over seeds (number of seeds). The best epoch was chosen on the "
            "development set, on which the score is measured too: scores are somewhat too high."
        ],
    )
    marked = False
    for task, metric in columns:
        of_column = [record for record in records if (record["task"], record["metric"]) == (task, metric)]
        table.columns.append(_column_title(of_column))
        for number, (model, row) in enumerate(zip(models, table.rows, strict=True)):
            if files := files_of([record for record in of_column if record["model"] == model]):
                table.sources[number, len(row)] = files
            mark = mark_of(model, of_column[0], comparisons)
            marked = marked or bool(mark)
            row.append(mean_and_spread(values.get((model, task, metric), [])) + mark)
    table.notes += data_notes(records)
    if marked:
        table.notes.append(
            f"▲ shown to be better than {comparisons[0].a}, ▼ shown to be worse (comparisons below). No mark: no "
            "difference is shown, which does not mean that there is none."
        )
    if all(len(scores) == 1 for scores in values.values()):
        table.notes.append(f"{ONE_SEED.capitalize()}.")
    return table


def data_notes(records: Sequence[Record]) -> list[str]:
    """What the marks behind tasks mean, and why none of these figures stands beside published ones."""
    by_column: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_column.setdefault((record["task"], record["metric"]), []).append(record)
    subsets = [subset_text(ours) for ours in by_column.values() if any(record["subset"] for record in ours)]
    notes = []
    if subsets:
        notes.append(
            "subset: not the whole official split, not to be set beside published figures. " + "; ".join(subsets) + "."
        )
    if any(map(is_pocket, records)):
        notes.append(POCKET_NOTE)
    return notes


def comparison_table(records: list[Record], comparisons: Sequence[Comparison]) -> Table:
    several = any(one.pretrainings > 1 for one in comparisons)
    what = "pre-trainings" if several else "seeds"
    counts = "pre-trainings (fine-tunings)" if several else "seeds"
    table = Table(
        "Differences",
        [
            "task",
            "models (A, B)",
            "verdict",
            "B − A (95 %)",
            "p, examples",
            f"p, {what}",
            "p, Holm",
            counts,
            "examples",
        ],
        text_columns=3,
        notes=[
            f"B − A in percentage points; of two intervals, over {what} and over examples, the wider one. The larger "
            f"of the two p values decides: over examples (permutation) and over {what} (t test; how much is chance is "
            f"taken from all models of a task together). Holm: {corrected(comparisons)}; a difference is shown below "
            f"{ALPHA}. Where none is shown, the models need not be equal."
        ],
    )
    if several:
        table.notes.append(
            "Fine-tunings of one pre-trained model are no independent runs: each pre-training counts once, with the "
            "mean of its fine-tunings. Where there is one pre-training, p is over its fine-tunings."
        )
    for comparison in comparisons:
        interval = "" if comparison.interval is None else f" [{', '.join(map(signed, comparison.interval))}]"
        tested = [one for one in records if concerns(comparison, one)]
        if files := files_of([one for one in tested if one["model"] in (comparison.a, comparison.b)]):
            table.sources |= {(len(table.rows), column): files for column in range(3, len(table.columns))}
        table.rows.append(
            [
                _column_title(tested) if tested else comparison.task,
                f"{comparison.a}, {comparison.b}",
                comparison.verdict,
                f"{signed(comparison.effect)}{interval}",
                p_value(comparison.p_examples),
                p_value(comparison.p_seeds),
                p_value(comparison.p_holm),
                f"{comparison.pretrainings} ({comparison.seeds})" if several else str(comparison.seeds),
                f"{comparison.examples:,}",
            ]
        )
    return table


def _by_cell(records: list[Record]) -> dict[tuple[str, str, str], list[float]]:
    values: dict[tuple[str, str, str], dict[int, float]] = {}
    for record in records:
        cell = values.setdefault((record["model"], record["task"], record["metric"]), {})
        if record["seed"] in cell:
            raise TriuneError(
                f"{record['model']} has two scores on {record['task']} with seed {record['seed']}: keep one, or give "
                "the models different names"
            )
        cell[record["seed"]] = record["primary"]
    return {cell: list(by_seed.values()) for cell, by_seed in values.items()}


def mean_and_spread(scores: list[float]) -> str:
    if not scores:
        return "–"
    spread = f" ± {stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{mean(scores):.2f}{spread} ({len(scores)})"


def _column_title(records: Sequence[Record]) -> str:
    return f"{records[0]['task_title']}, {records[0]['metric_title']}{marks(records)}"


def subset_text(records: list[Record]) -> str:
    """What the subset of one task is; if runs differ in it, all that they had."""
    had = dict.fromkeys(
        f"{record['train_rows']:,} training rows from {record['train_source']}, {record['dev_rows']:,} development rows"
        for record in records
    )
    return f"{records[0]['task_title']}: " + " or ".join(had)


def concerns(comparison: Comparison, record: Record) -> bool:
    """A comparison names its task by name or title; `mean` is the primary metric, taken as a mean over examples."""
    same_task = comparison.task in (record["task"], record["task_title"])
    return same_task and comparison.metric in (record["metric"], "mean")


def corrected(comparisons: Sequence[Comparison]) -> str:
    """For how many the p values are corrected, those of other tables among them."""
    families = {one.family: one.corrected_for for one in comparisons if one.corrected_for}
    if len(families) < 2:
        return f"corrected for {_comparisons(*families.values())}" if families else "none was tested"
    question = families.pop(SHARED_AGAINST_STANDARD, 0)
    others = sum(families.values())
    return f"corrected for the {_comparisons(question)} of {SHARED_AGAINST_STANDARD}, and for the {others} others apart"


def _comparisons(count: int) -> str:
    return f"{count} comparison{'' if count == 1 else 's'}"


def mark_of(model: str, record: Record, comparisons: Sequence[Comparison]) -> str:
    """Whether a model is shown to be better or worse than the reference on the task of a record."""
    for one in comparisons:
        if one.b == model and one.better and concerns(one, record):
            return BETTER if one.better == model else WORSE
    return ""


def signed(value: float) -> str:
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")


def p_value(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"
