"""Tables of the noise study: Table 5 with the paper's figures beside ours, a summary of all kinds, paired tests."""

import json
import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from triune import operators
from triune.benchmarks.paper import TABLE_5, TABLE_5_LEVELS, TABLE_5_NOTE
from triune.data.examples import ids_sha256
from triune.errors import TriuneError
from triune.evaluation.comparing import REFERENCE, Started, family_of, started_beside
from triune.evaluation.grouping import all_known, groups_of
from triune.evaluation.significance import ONE_SEED, Comparison, Paired, compare_all
from triune.report.scores import comparison_table, files_of
from triune.report.tables import Table

Record = dict[str, Any]

GAUSSIAN = "gaussian"
KIND_TITLES = {
    GAUSSIAN: "Gaussian noise",
    "typos": "typos",
    "dropped": "dropped words",
    "swapped": "swapped words",
    "casing": "changed casing",
    "masked": "masked tokens",
}
_INTERVAL = (
    "± is half of a 95 % interval: Student's t over seeds, each seed being the mean of its draws. Seeds are the "
    "sample; more draws make the mean of a seed more exact and do not count as more seeds."
)
_INTERVAL_OF_GROUPS = (
    "± is half of a 95 % interval: Student's t over pre-trainings, each being the mean of its fine-tunings and draws. "
    "Pre-trainings are the sample; more fine-tunings or draws make the mean of one more exact and do not count as more."
)
_NO_INTERVAL = f"{ONE_SEED.capitalize()}, and there is no interval."
_UNKNOWN = "It is not known which runs are of one pre-training, and there is no interval."


def noise_tables(
    records: Sequence[Record], comparisons: Sequence[Comparison] | None = None, started: Started | None = None
) -> list[Table]:
    """What is compared is tested here unless `comparisons` has it already."""
    if not records:
        return []
    study = _Study(records, started)
    tables = [_levels(study, task) for task in study.tasks if study.has(task, GAUSSIAN)]
    tables.append(_summary(study))
    tested = noise_comparisons(records, started) if comparisons is None else comparisons
    if any(one.p is not None for one in tested):
        tables.append(_differences(study, tested))
    return tables


def noise_comparisons(records: Sequence[Record], started: Started | None = None) -> list[Comparison]:
    """Every model against the reference: who loses less under each kind of noise; Holm-corrected together.

    What is compared is (share right under the curve) − (right without noise) of every example, in percentage points. A
    kind that changed no input is left out: there is nothing to be tested.
    """
    study = _Study(records, started)
    pairs = []
    for task in study.tasks:
        for kind in study.kinds(task):
            for model in study.others:
                sides = [{one["seed"]: one for one in study.of(task, name)} for name in (study.reference, model)]
                seeds = sorted(sides[0].keys() & sides[1].keys())
                paired = [[side[seed] for seed in seeds] for side in sides]
                if seeds and study.is_tested(task, kind):
                    behind = [[study.model_behind(one) for one in side] for side in paired]
                    pairs.append(_pair(study.name(task, kind), kind, paired[0], paired[1], behind))
    return compare_all(pairs) if pairs else []


class _Study:
    """The records by task, model and kind of noise."""

    def __init__(self, records: Sequence[Record], started: Started | None = None) -> None:
        self.records = records
        self.started = started_beside(records) if started is None else started
        self.models = operators.in_order(dict.fromkeys(record["model"] for record in records))
        self.reference = REFERENCE if REFERENCE in self.models else self.models[0]
        self.others = [name for name in self.models if name != self.reference]
        titles = {record["task"]: record["task_title"] for record in records}
        first = [task for task in TABLE_5 if task in titles]
        self.tasks = {task: titles[task] for task in (*first, *(task for task in titles if task not in first))}

    def of(self, task: str, model: str | None = None, kind: str | None = None) -> list[Record]:
        return [
            record
            for record in self.records
            if record["task"] == task and model in (None, record["model"]) and (kind is None or kind in record["area"])
        ]

    def model_behind(self, record: Record) -> Any:
        """The pre-trained one; None where no fine-tuning says it."""
        return self.started.get((record["task"], record["model"], record["seed"]))

    def pretrainings(self, records: Sequence[Record]) -> int:
        return len({self.model_behind(one) for one in records})

    def mean(self, found: Sequence[tuple[Record, float]]) -> str:
        """Of one value a record, or of one a pre-training where there are several; no interval if it is not known."""
        if any(self.model_behind(record) is None for record, _ in found):
            return f"{mean(value for _, value in found):.2f}"
        by_model: dict[Any, list[float]] = {}
        for record, value in found:
            by_model.setdefault(self.model_behind(record), []).append(value)
        several = [mean(values) for values in by_model.values()]
        return _mean(several if len(several) > 1 else [value for _, value in found])

    @property
    def interval(self) -> str:
        """What ± stands for."""
        if any(self.model_behind(one) is None for one in self.records):
            return _UNKNOWN
        several = any(self.pretrainings(self.of(task, model)) > 1 for task in self.tasks for model in self.models)
        return _INTERVAL_OF_GROUPS if several else _INTERVAL

    def has(self, task: str, kind: str) -> bool:
        return bool(self.of(task, kind=kind))

    def kinds(self, task: str) -> list[str]:
        found = {kind for record in self.of(task) for kind in record["area"]}
        return [kind for kind in KIND_TITLES if kind in found]

    def is_flat(self, task: str, kind: str) -> bool:
        """Whether a corruption changed no token of any row: an uncased tokenizer undoes changed casing."""
        return all(record.get("changed", {}).get(kind) == 0 for record in self.of(task, kind=kind))

    def is_tested(self, task: str, kind: str) -> bool:
        alike = self.of(task)
        return all(one.get("examples") and kind in one["area"] for one in alike) and not self.is_flat(task, kind)

    def name(self, task: str, kind: str) -> str:
        return f"{self.tasks[task]}, {KIND_TITLES[kind]}"


def _levels(study: _Study, task: str) -> Table:
    """Table 5: a row a level, a column a model."""
    records = study.of(task, kind=GAUSSIAN)
    one = records[0]
    subset = any(record["subset"] for record in records)
    table = Table(f"Noise on the embeddings (Table 5): {one['task_title']}{' (subset)' if subset else ''}", ["noise"])
    levels = sorted({point["level"] for record in records for point in record["curves"][GAUSSIAN]})
    table.rows = [[f"{100 * level:g} %"] for level in levels]
    models = [model for model in study.models if study.of(task, model, GAUSSIAN)]
    for model in models:
        table.columns.append(model)
        ours = study.of(task, model, GAUSSIAN)
        for number, level in enumerate(levels):
            table.rows[number].append(study.mean(_at(ours, level)))
            _add_sources(table, number, ours)
    for operator, scores in TABLE_5.get(task, {}).items():
        table.columns.append(f"paper, {operator}")
        printed = dict(zip(TABLE_5_LEVELS, scores, strict=True))
        for row, level in zip(table.rows, levels, strict=True):
            same = [score for at, score in printed.items() if math.isclose(at, level, abs_tol=1e-9)]
            row.append(f"{same[0]:.2f}" if same else "–")
    settings = one["settings"]
    table.notes = [
        f"{one['metric_title'].capitalize()} in percent on {one['dev_rows']:,} development rows ({one['dev_source']}). "
        f"Noise is added to the embeddings at evaluation only, {settings['where']} their LayerNorm, with "
        f"σ = level · mean‖e‖ / √d; {_draws(settings['draws'])}, the same for all levels and all models of a width.",
        *_seed_notes(study, task, models),
    ]
    if subset:
        table.notes.append("subset: not the whole official split, not to be set beside published figures.")
    if task in TABLE_5:
        table.notes.append(f"The paper's models are of base size, scored on the official data. {TABLE_5_NOTE}")
    return table


def _summary(study: _Study) -> Table:
    table = Table(
        "Under noise: area and retention",
        ["task", "kind of noise", "model", "clean", "area", "retention"],
        text_columns=3,
        notes=[
            "clean: the score without noise. area: the mean score under the curve, from no noise to the strongest "
            "(trapezoids, divided by the range). retention: area in percent of clean. All in percent. Gaussian noise "
            "goes by its level, a corruption by its rate: areas of different kinds do not compare.",
        ],
    )
    flat = []
    for task, title in study.tasks.items():
        for kind in study.kinds(task):
            if study.is_flat(task, kind):
                flat.append(f"{KIND_TITLES[kind]} on {title}")
            for model in study.models:
                ours = study.of(task, model, kind)
                if not ours:
                    continue
                kept = [one["retention"][kind] for one in ours]
                table.rows.append([title, KIND_TITLES[kind], model])
                for values in ([one["clean"] for one in ours], [one["area"][kind] for one in ours], kept):
                    paired = list(zip(ours, values, strict=True))
                    table.rows[-1].append("–" if None in values else study.mean(paired))
                    _add_sources(table, len(table.rows) - 1, ours)
    is_alone = all(len(study.of(task, model)) < 2 for task in study.tasks for model in study.models)
    table.notes.append(_NO_INTERVAL if is_alone else study.interval)
    if flat:
        table.notes.append(
            f"Flat because no token is changed (an uncased tokenizer undoes a change of case): {', '.join(flat)}."
        )
    return table


def _differences(study: _Study, comparisons: Sequence[Comparison]) -> Table:
    table = comparison_table([], comparisons)
    table.title = "Loss under noise: differences"
    table.notes.insert(
        0,
        "Compared is what every example loses, area − clean: a model that starts lower is not punished for it twice. "
        "Better is who loses less; B − A above 0: B loses less than A.",
    )
    files = {
        (study.name(task, kind), model): study.of(task, model, kind)
        for task in study.tasks
        for kind in study.kinds(task)
        for model in study.models
    }
    for number, one in enumerate(comparisons):
        behind = files_of(files.get((one.task, one.a), []) + files.get((one.task, one.b), []))
        if behind:
            table.sources |= {(number, column): behind for column in range(3, len(table.columns))}
    untested = [title for task, title in study.tasks.items() if not all(one.get("examples") for one in study.of(task))]
    if untested:
        table.notes.append(
            f"Not tested: {', '.join(untested)}, whose score is not a mean over examples and cannot be taken apart."
        )
    return table


def _pair(name: str, kind: str, reference: list[Record], model: list[Record], behind: list[list[Any]]) -> Paired:
    """`behind` are the pre-trained models of both sides, None where it is not known."""
    both = (*reference, *model)
    if len({json.dumps([one["settings"], ids_sha256(one["examples"]["ids"])], sort_keys=True) for one in both}) > 1:
        raise TriuneError(
            f"{name}: models were measured with different settings or development sets and cannot be paired; measure "
            "them again with the same"
        )
    sides = [
        [
            [100.0 * (area - clean) for area, clean in zip(kept["area"][kind], kept["clean"], strict=True)]
            for kept in (one["examples"] for one in side)
        ]
        for side in (reference, model)
    ]
    return Paired(
        name,
        "mean",
        reference[0]["model"],
        model[0]["model"],
        sides[0],
        sides[1],
        groups=groups_of(*behind),
        numbers=[one["seed"] for one in model],
        family=family_of(reference[0]["operator"], model[0]["operator"]),
        known_origin=all_known(*behind),
    )


def _at(records: Sequence[Record], level: float) -> list[tuple[Record, float]]:
    """For each seed that has the level the mean over its draws."""
    points = [(one, point) for one in records for point in one["curves"][GAUSSIAN] if point["level"] == level]
    return [(one, mean(point["scores"])) for one, point in points]


def _mean(values: Sequence[float]) -> str:
    """With half of a 95 % interval where there are two values or more."""
    if not values:
        return "–"
    if len(values) < 2:
        return f"{values[0]:.2f}"
    from scipy import stats

    half = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return f"{mean(values):.2f} ± {half:.2f}"


def _seed_notes(study: _Study, task: str, models: Sequence[str]) -> list[str]:
    seeds = {model: sorted(one["seed"] for one in study.of(task, model, GAUSSIAN)) for model in models}
    counts = dict.fromkeys(len(its) for its in seeds.values())
    if max(counts) == 1:
        return [_NO_INTERVAL]
    which = f"{next(iter(counts))}" if len(counts) == 1 else ", ".join(f"{m} {len(its)}" for m, its in seeds.items())
    groups = {model: study.pretrainings(study.of(task, model, GAUSSIAN)) for model in models}
    if max(groups.values()) > 1:
        which += f", of pre-trainings: {', '.join(f'{model} {count}' for model, count in groups.items())}"
    return [f"Seeds: {which}. {study.interval}"]


def _draws(count: int) -> str:
    return "one draw a level" if count == 1 else f"{count} draws a level"


def _add_sources(table: Table, row: int, records: Sequence[Record]) -> None:
    """Files behind the figure that was added last to a row."""
    if files := files_of(records):
        table.sources[row, len(table.rows[row]) - 1] = files
