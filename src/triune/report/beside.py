"""The paper's Tables 1, 2, 3 and 7 with ours beside what it prints."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any

from triune.benchmarks import paper
from triune.data.tasks import get_task, task_names
from triune.evaluation.metrics import MEANS, mean_of
from triune.evaluation.significance import ALPHA, Comparison
from triune.report.means import means_of
from triune.report.scores import corrected, files_of, mark_of, pretrainings, with_common_seeds
from triune.report.tables import Table
from triune.report.task_name import task_name

Record = dict[str, Any]

MISMATCHED = "mnli-mm"
SPAN_METRICS = (("exact", "exact match"), ("f1", "F1"))
# Table 3 as printed: weights of one layer, biases left out.
TABLE_3 = {"standard": "3d²", "symmetric": "2d²", "pairwise": "2d² + d²/m", "shared": "d² + 3d"}


@dataclass
class Line:
    """A row: ours by model, with the files behind each cell, and the paper's by operator."""

    title: str
    metric: str
    ours: dict[str, tuple[str, tuple[str, ...]]]
    printed: dict[str, str] = field(default_factory=dict)


def glue_table(records: Sequence[Record], comparisons: Sequence[Comparison]) -> Table:
    """Table 1, transposed: a row a task, so that ours and theirs are neighbours."""
    whole = [one for one in records if one["kind"] != "span"]
    records = with_common_seeds(whole)
    by_task = _by_task(records)
    names = [name for name in paper.TABLE_1_TASKS if name.removesuffix("-mm") in by_task]
    names += [name for name in by_task if name not in names]
    lines, shown = [], []
    for name in names:
        ours = by_task[name.removesuffix("-mm")]
        printed = {}
        if name in paper.TABLE_1_TASKS:
            place = paper.TABLE_1_TASKS.index(name)
            printed = {operator: f"{cells[place]:.2f}" for operator, cells in paper.TABLE_1.items()}
        if name == MISMATCHED:
            ours = [one for one in ours if "dev_mismatched" in one.get("more_scores", {})]
            if ours:
                shown.append(name)
                title = f"{ours[0]['task_title']} mismatched"
                lines.append(Line(title, ours[0]["metric_title"], _cells(ours, _mismatched, []), printed))
            continue
        cells = _cells(ours, _primary, comparisons)
        shown.append(name)
        lines.append(Line(task_name(ours), ours[0]["metric_title"], cells, printed))
    is_glue = any(one["task"] in task_names() for one in records)
    title = "Table 1: scores on GLUE's development sets" if is_glue else "Scores on the development set"
    table = _table(title, records, lines)
    _add_mean(table, records, shown)
    table.notes += _score_notes(records, comparisons, len(whole) - len(records))
    return table


def squad_table(records: Sequence[Record], comparisons: Sequence[Comparison]) -> Table:
    """Table 2: exact match and F1; the paper's figures after TriviaQA are columns of their own."""
    whole = [one for one in records if one["kind"] == "span"]
    records = with_common_seeds(whole)
    lines = []
    for name, ours in _by_task(records).items():
        for metric, title in SPAN_METRICS:
            printed = {}
            if name in paper.TABLE_2_TASKS:
                task, place = paper.TABLE_2_TASKS.index(name), [one for one, _ in SPAN_METRICS].index(metric)
                printed = {key: f"{cells[task][place]:.2f}" for key, cells in paper.TABLE_2.items()}
                trivia = paper.TABLE_2_TRIVIA.items()
                printed |= {f"{key} after TriviaQA": f"{cells[task][place]:.2f}" for key, cells in trivia}
            tested = comparisons if metric == ours[0]["metric"] else []
            lines.append(Line(task_name(ours), title, _cells(ours, _scored(metric), tested), printed))
    table = _table("Table 2: SQuAD", records, lines)
    table.notes += _score_notes(records, comparisons, len(whole) - len(records))
    table.notes.append("The paper also trained on TriviaQA first; a model of ours that did has a label of its own.")
    return table


_DERIVED = "train_derived"  # as `triune.data.tasks` reads it


def rows_table(records: Sequence[Record]) -> Table:
    """Table 7: rows that were used, beside the official splits that the paper lists."""
    table = Table(
        "Table 7: rows of the data sets",
        ["task", "source", "training rows", "official", "development rows", "official, dev"],
        text_columns=2,
        notes=["Official: the whole splits, which are what the paper's Table 7 lists, rounded to three digits."],
    )
    for name, ours in _by_task(records).items():
        counts = get_task(name).counts if name in task_names() else {}
        official = [f"{counts[split]:,}" if split in counts else "–" for split in ("train", "dev")]
        used = [" or ".join(dict.fromkeys(f"{one[key]:,}" for one in ours)) for key in ("train_rows", "dev_rows")]
        table.sources |= {(len(table.rows), column): files_of(ours[:1]) for column in (2, 4)}
        table.rows.append([task_name(ours), ours[0]["train_source"], used[0], official[0], used[1], official[1]])
    if any(_DERIVED in one["train_source"] for one in records):
        table.notes.append(
            f"{_DERIVED}: rows that are not official, built by the rule of the task from another data set."
        )
    return table


def trained_on_parts(records: Sequence[Record], tasks: Collection[str]) -> list[str]:
    """Said where scores stand beside the paper's and the training rows are not in sight."""
    parts = [
        f"{ours[0]['task_title']} {ours[0]['train_rows']:,} of {get_task(name).counts['train']:,}"
        for name, ours in _by_task(records).items()
        if name in tasks and ours[0]["subset"] and ours[0]["train_rows"] < get_task(name).counts.get("train", 0)
    ]
    return [f"Trained on part of the official rows: {', '.join(parts)}."] if parts else []


def add_printed_formulas(table: Table, study: Record) -> None:
    """Table 3: what the paper prints behind our own formulas, and whether they agree."""
    table.columns.insert(2, "paper")
    table.text_columns += 1
    table.sources = {(row, column + 1): files for (row, column), files in table.sources.items()}
    for row in table.rows:
        printed = TABLE_3.get(row[0])
        same = printed == study["operators"][row[0]]["formula"]["weights"]
        row.insert(2, "–" if printed is None else printed + ("" if same else " (differs)"))
    table.notes.append("The paper's Table 3 prints weights only: biases are left out.")


def _by_task(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record["task"], []).append(record)
    return found


def _primary(record: Record) -> float:
    return float(record["primary"])


def _mismatched(record: Record) -> float:
    return float(record["more_scores"]["dev_mismatched"][record["metric"]])


def _scored(metric: str) -> Callable[[Record], float]:
    return lambda record: float(record["scores"][metric])


def _cells(
    records: Sequence[Record], score: Callable[[Record], float], comparisons: Sequence[Comparison]
) -> dict[str, tuple[str, tuple[str, ...]]]:
    cells = {}
    for model in dict.fromkeys(one["model"] for one in records):
        ours = [one for one in records if one["model"] == model]
        values = [score(one) for one in ours]
        spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
        mark = mark_of(model, ours[0], comparisons)
        cells[model] = (f"{mean(values):.2f}{spread}{mark}", files_of(ours))
    return cells


def _table(title: str, records: Sequence[Record], lines: Sequence[Line]) -> Table:
    """Each model is followed by the paper's figures for its operator, the first time that it comes."""
    labels = {one["model"]: one["operator"] for one in sorted(records, key=_operator_place)}
    printed = list(dict.fromkeys(key for line in lines for key in line.printed))
    table = Table(title, ["task", "metric"], [[line.title, line.metric] for line in lines], text_columns=2)
    for label, operator in labels.items():
        for row, line in enumerate(lines):
            text, files = line.ours.get(label, ("–", ()))
            if files:
                table.sources[row, len(table.columns)] = files
            table.rows[row].append(text)
        table.columns.append(label)
        for key in [one for one in printed if one.split(" ")[0] == operator]:
            printed.remove(key)
            table.columns.append(f"{key}, paper")
            for row, line in enumerate(lines):
                table.rows[row].append(line.printed.get(key, "–"))
    return table


def _operator_place(record: Record) -> tuple[int, bool, str]:
    """Of the models of an operator the one that is called by it comes first: beside it stand the paper's figures."""
    from triune import operators

    names = operators.names()
    operator = record["operator"]
    place = names.index(operator) if operator in names else len(names)
    return place, record["model"] != operator, record["model"]


def _mean_shown(names: Sequence[str], cells: Sequence[str]) -> str:
    """Of the figures that a column shows; of the paper's tasks only, so that ours and theirs are of the same."""
    total = weights = 0.0
    for name, cell in zip(names, cells, strict=True):
        if name in paper.TABLE_1_TASKS:
            if cell == "–":
                return cell
            weight = 0.5 if name in ("mnli", MISMATCHED) else 1.0
            total, weights = total + weight * float(cell.split(" ")[0]), weights + weight
    return f"{total / weights:.2f}"


def _add_mean(table: Table, records: Sequence[Record], names: Sequence[str]) -> None:
    """Means over tasks: of the figures above (rows of `names`), as the paper takes it, and as it prints it."""
    ours = means_of(list(records), "paper")
    by_model = {row[0]: (row[1], ours.sources.get((number, 1), ())) for number, row in enumerate(ours.rows)}
    if all(text == "–" for text, _ in by_model.values()):
        table.notes += [f"Mean over tasks, as the paper takes it: {note}" for note in ours.notes[1:]]
        return
    number = len(table.rows)
    plain, with_f1, printed = ["mean", "the cells above"], ["mean", "MRPC and QQP with F1"], ["mean", "as printed"]
    for column, name in enumerate(table.columns[2:], start=2):
        operator = name.removesuffix(", paper")
        plain.append(_mean_shown(names, [row[column] for row in table.rows]))
        if name in by_model:
            text, files = by_model[name]
            with_f1.append(text.partition(" (")[0])
            printed.append("")
            if files:
                table.sources |= {(number, column): files, (number + 1, column): files}
        else:
            cells = dict(zip(paper.TABLE_1_TASKS, paper.TABLE_1[operator], strict=True))
            scores = {task: {metric: cells[task]} for task, metric in MEANS["paper"].cells}
            with_f1.append(f"{mean_of('paper', scores):.2f}")
            printed.append(f"{paper.TABLE_1_AVERAGE[operator]:.2f}")
    table.rows += [plain, with_f1, printed]
    table.pinned = 3
    table.notes += [
        "Mean of the cells above: the paper's tasks, MNLI as the mean of m and mm.",
        f"Mean with F1: {ours.notes[0]} Neither of these means was tested.",
        *ours.notes[1:],
    ]


def _score_notes(records: Sequence[Record], comparisons: Sequence[Comparison], left_out: int) -> list[str]:
    by_cell: dict[tuple[str, str], int] = {}
    for one in records:
        by_cell[one["task"], one["model"]] = by_cell.get((one["task"], one["model"]), 0) + 1
    seeds = " or ".join(str(count) for count in sorted(set(by_cell.values())))
    over = f"{seeds} fine-tuning seed{'' if seeds == '1' else 's'}"
    if (most := pretrainings(records)) > 1:
        over += f" of up to {most} pre-trainings"
    notes = [
        f"Ours in percent: mean ± standard deviation over {over}. The "
        "best epoch was chosen on the development set, on which the score is measured too: scores are somewhat too "
        "high."
    ]
    if comparisons:
        a, untested = comparisons[0].a, [one.verdict for one in comparisons if one.p is None]
        if len(untested) == len(comparisons):
            notes.append(f"Differences from {a} are {untested[0]}.")
        else:
            notes.append(
                f"▲ shown to be better than {a}, ▼ shown to be worse (p below {ALPHA} after Holm's method, "
                f"{corrected(comparisons)}). No mark: no difference is shown, which does not mean that there is none."
            )
    if pretrainings(records) > 1 and _rates_differ(records):
        notes.append(
            "The rate of a model on a task was chosen once, on its first pre-training, and used for all: what was "
            "chance in that choice is in no test."
        )
    if left_out:
        notes.append(f"On each task only seeds that all models have: {left_out} of single models are left out.")
    if any(one["subset"] for one in records):
        notes.append("subset: not the whole official split, not to be set beside published figures.")
    return notes


def _rates_differ(records: Sequence[Record]) -> bool:
    """Between the models of a task, as where each has a search of its own."""
    rates: dict[str, set[tuple[float, ...]]] = {}
    for one in records:
        rates.setdefault(one["task"], set()).add(tuple(one["recipe"]["optimizer"]["learning_rates"]))
    return any(len(its) > 1 for its in rates.values())
