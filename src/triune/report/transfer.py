"""Tables of the cross-task study: a matrix for each model, the differences between models, sets out of domain."""

from collections.abc import Callable, Sequence
from typing import Any

from triune import operators
from triune.benchmarks.paper import TABLE_6, TABLE_6_NOTE, TABLE_6_TASKS
from triune.data.examples import ids_sha256
from triune.errors import TriuneError
from triune.evaluation.comparing import REFERENCE, Started, family_of, started_beside
from triune.evaluation.grouping import all_known, groups_of
from triune.evaluation.significance import ALPHA, ONE_SEED, Comparison, Paired, compare_all
from triune.report.scores import corrected, files_of, mean_and_spread, signed
from triune.report.tables import Table

Record = dict[str, Any]
Column = tuple[str, str]  # target, split

_PAPER = ("standard", "shared")  # the order inside a cell of TABLE_6
_MARK = " †"
_SCORED = (
    "Accuracy in percent: mean ± standard deviation over seeds (number of seeds). On the diagonal a task's own classes "
    "are scored; elsewhere two: the class that says that the second text follows from the first, or says the same "
    "(entailment, duplicate, equivalent), against the rest. A model that gives every row one answer has that class's "
    "share."
)


def transfer_tables(records: Sequence[Record], comparisons: Sequence[Comparison] | None = None) -> list[Table]:
    """What is compared is tested here unless `comparisons` has it already."""
    if not records:
        return []
    study = _Study(records)
    tested = transfer_comparisons(records) if comparisons is None else comparisons
    compared = {(one.task, one.b): one for one in tested}
    tables = [_matrix(study, model) for model in study.models]
    tables += [_differences(study, model, compared) for model in study.others]
    if study.outside:
        tables.append(_out_of_domain(study, compared))
    said: set[str] = set()
    for table in tables:  # a note stands under the first table that it is about
        table.notes = [note for note in table.notes if note not in said]
        said.update(table.notes)
    return tables


def transfer_comparisons(records: Sequence[Record], started: Started | None = None) -> list[Comparison]:
    """Every model against the reference in every cell, over the seeds that both have; Holm-corrected together."""
    started = started_beside(records) if started is None else started
    study = _Study(records)
    pairs = []
    for source in study.sources:
        for column in (*study.columns, *study.outside):
            for model in study.others:
                ours, theirs = (study.by_seed(one, source, column) for one in (model, study.reference))
                seeds = sorted(ours.keys() & theirs.keys())
                if seeds:
                    models = (study.reference, model)
                    behind = [[started.get((source, one, seed)) for seed in seeds] for one in models]
                    values = _values(
                        study.cell_name(source, column), [[one[s] for s in seeds] for one in (theirs, ours)]
                    )
                    pairs.append(
                        Paired(
                            study.cell_name(source, column),
                            "mean",
                            *models,
                            values[0],
                            values[1],
                            groups=groups_of(*behind),
                            numbers=seeds,
                            family=family_of(*(study.operator_of(one) for one in models)),
                            known_origin=all_known(*behind),
                        )
                    )
    return compare_all(pairs) if pairs else []


class _Study:
    """The records by model, source and development set."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.models = operators.in_order(dict.fromkeys(record["model"] for record in records))
        self.reference = REFERENCE if REFERENCE in self.models else self.models[0]
        self.others = [name for name in self.models if name != self.reference]
        self.sources = _paper_order({record["source"]: record["source_title"] for record in records})
        inside: dict[str, str] = {}
        self.outside: dict[Column, str] = {}
        for record in records:
            for target in record["targets"]:
                if target["out_of_domain"]:
                    self.outside[target["target"], target["split"]] = target["title"]
                else:
                    inside[target["target"]] = target["title"]
        self.columns: dict[Column, str] = {(name, "dev"): title for name, title in _paper_order(inside).items()}

    def found(self, model: str | None, source: str | None, column: Column) -> list[tuple[Record, Record]]:
        """(record, target) of every seed; None takes all models, or all sources."""
        return [
            (record, target)
            for record in self.records
            if model in (None, record["model"]) and source in (None, record["source"])
            for target in record["targets"]
            if (target["target"], target["split"]) == column
        ]

    def by_seed(self, model: str, source: str, column: Column) -> dict[int, Record]:
        return {record["seed"]: target for record, target in self.found(model, source, column)}

    def cell_name(self, source: str, column: Column) -> str:
        return f"{self.sources[source]} → {self.columns.get(column) or self.outside[column]}"

    def paper_column(self, model: str) -> int | None:
        """Where the paper's figures for this model are in its table."""
        operator = self.operator_of(model)
        return _PAPER.index(operator) if operator in _PAPER else None

    def operator_of(self, model: str) -> str:
        return str(next(record["operator"] for record in self.records if record["model"] == model))


def _matrix(study: _Study, model: str) -> Table:
    table = _empty(study, f"Cross-task accuracy: {model}", [_SCORED])
    for source, title in study.sources.items():
        row = [title]
        for place, column in enumerate(study.columns, start=1):
            found = study.found(model, source, column)
            row.append(_mean(found))
            _add_sources(table, len(table.rows), place, found)
        table.rows.append(row)
    majority = ["always the larger class"]
    for column in study.columns:
        own, two = (
            {
                f"{target['majority']:.2f}"
                for _, target in study.found(model, None, column)
                if target["own_task"] is which
            }
            for which in (True, False)
        )
        parts = [" or ".join(sorted(two))] if two else []
        if own - two:
            parts.append(f"{' or '.join(sorted(own))} on the diagonal" if two else " or ".join(sorted(own)))
        majority.append("; ".join(parts) or "–")
    table.rows.append(majority)
    table.pinned += 1
    at = study.paper_column(model)
    if at is not None:
        _add_paper(table, study, lambda cell: f"{cell[at]:.2f}")
    if len({record["seed"] for record in study.records if record["model"] == model}) == 1:
        table.notes.append(f"{ONE_SEED.capitalize()}.")
    return table


def _differences(study: _Study, model: str, compared: dict[tuple[str, str], Comparison]) -> Table:
    here = list(compared.values())
    runs = "pre-trainings" if any(one.pretrainings > 1 for one in here) else "seeds"
    table = _empty(
        study,
        f"Cross-task accuracy: {model} − {study.reference}",
        [
            f"In percentage points, mean over the {runs} that both have. † shown: the larger p value of two tests, "
            f"over examples (permutation) and over {runs} (t test), is below {ALPHA} after Holm's method, "
            f"{corrected(here)}. Where none is shown, the models need not be equal."
        ],
    )
    for source, title in study.sources.items():
        row = [title]
        for place, column in enumerate(study.columns, start=1):
            comparison = compared.get((study.cell_name(source, column), model))
            row.append(_effect(comparison))
            if comparison is not None:
                found = study.found(study.reference, source, column) + study.found(model, source, column)
                _add_sources(table, len(table.rows), place, found)
        table.rows.append(row)
    if any(one.seeds == 1 for (_, name), one in compared.items() if name == model):
        table.notes.append(f"{ONE_SEED.capitalize()}.")
    at, other = study.paper_column(model), study.paper_column(study.reference)
    if at is not None and other is not None and at != other:
        _add_paper(table, study, lambda cell: signed(cell[at] - cell[other]))
    return table


def _out_of_domain(study: _Study, compared: dict[tuple[str, str], Comparison]) -> Table:
    table = Table(
        "Out of domain",
        [
            "trained on",
            "tested on",
            "model",
            "accuracy",
            "own development set",
            f"against {study.reference}",
            "larger class",
        ],
        notes=[
            "Other development sets of the task, or a file of the user's own. Accuracy in percent; beside it the "
            "accuracy on the task's own development set, and of always answering the larger class."
        ],
        text_columns=3,
    )
    mappings: dict[str, None] = {}
    for source, title in study.sources.items():
        for column, tested in study.outside.items():
            for model in study.models:
                found = study.found(model, source, column)
                if not found:
                    continue
                home = study.found(model, source, (source, "dev"))
                comparison = compared.get((study.cell_name(source, column), model))
                number = len(table.rows)
                for place, behind in ((3, found), (4, home), (5, found if comparison else [])):
                    _add_sources(table, number, place, behind)
                target = found[0][1]
                mappings[target["mapping"]] = None
                against = _effect(comparison) if model != study.reference else ""
                cells = [title, tested, model, _mean(found), _mean(home), against, f"{target['majority']:.2f}"]
                table.rows.append(cells)
    table.notes += list(mappings)
    return table


def _empty(study: _Study, title: str, notes: list[str]) -> Table:
    table = Table(title, ["trained on"], notes=list(notes))
    subsets = []
    for column, name in study.columns.items():
        targets = [target for _, target in study.found(None, None, column)]
        partial = next((target for target in targets if target["subset"]), None)
        table.columns.append(name + (" (subset)" if partial else ""))
        if partial:
            subsets.append(f"{name}: {partial['rows']:,} rows from {partial['dev_source']}")
    if subsets:
        table.notes.append(
            "subset: not the whole official split, not to be set beside published figures. " + "; ".join(subsets) + "."
        )
    return table


def _add_paper(table: Table, study: _Study, shown: Callable[[Any], str]) -> None:
    """A row of the paper's for each of ours that it has too."""
    for source, title in study.sources.items():
        if source in TABLE_6:
            cells = dict(zip(TABLE_6_TASKS, TABLE_6[source], strict=True))
            figures = [shown(cells[name]) if name in cells else "–" for name, _ in study.columns]
            table.rows.append([f"{title}, paper", *figures])
            table.pinned += 1
    table.notes.append(TABLE_6_NOTE)


def _add_sources(table: Table, row: int, column: int, found: list[tuple[Record, Record]]) -> None:
    if files := files_of([record for record, _ in found]):
        table.sources[row, column] = files


def _values(name: str, sides: list[list[Record]]) -> list[list[list[float]]]:
    """What each example scores, for the seeds of both sides."""
    if len({ids_sha256(target["ids"]) for side in sides for target in side}) > 1:
        raise TriuneError(f"{name}: models were scored on different development sets and cannot be paired")
    return [[[100.0 * one for one in target["right"]] for target in side] for side in sides]


def _paper_order(titles: dict[str, str]) -> dict[str, str]:
    order = [name for name in TABLE_6_TASKS if name in titles]
    return {name: titles[name] for name in (*order, *(name for name in titles if name not in order))}


def _mean(found: list[tuple[Record, Record]]) -> str:
    return mean_and_spread([target["score"] for _, target in found])


def _effect(comparison: Comparison | None) -> str:
    if comparison is None:
        return "–"
    return signed(comparison.effect) + (_MARK if comparison.better else "")
