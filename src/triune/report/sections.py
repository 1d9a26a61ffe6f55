"""The parts of the report in the paper's order, each with tables, charts and conditions, or with what is missing."""

from dataclasses import dataclass, field
from typing import Any

from triune.benchmarks import paper
from triune.report import record_charts as figures
from triune.report.ablations import ablation_tables
from triune.report.answer_primary import primary_tables
from triune.report.beside import add_printed_formulas, glue_table, rows_table, squad_table, trained_on_parts
from triune.report.charts import Chart
from triune.report.conditions import (
    finetuning_conditions,
    noise_conditions,
    pretraining_conditions,
    time_conditions,
    transfer_conditions,
)
from triune.report.gather import Gathered
from triune.report.inspection import head_table, inspect_tables
from triune.report.noise import noise_tables
from triune.report.parameters import parameter_tables
from triune.report.pretraining import runs_table, variant_table
from triune.report.rates import rates_of_runs, rates_table
from triune.report.scores import comparison_table
from triune.report.tables import Table
from triune.report.times import time_tables
from triune.report.transfer import transfer_tables
from triune.report.tuned_rates import tuned_rates_tables

Record = dict[str, Any]

LONGEST = 24  # rows of a table that is shown at once


@dataclass
class Section:
    id: str
    title: str
    about: str
    make_with: str  # the command that makes its records
    tables: list[Table] = field(default_factory=list)
    folded: list[Table] = field(default_factory=list)  # long tables behind the others: shown when asked for
    charts: list[Chart] = field(default_factory=list)
    conditions: Table | None = None
    notes: list[str] = field(default_factory=list)  # on all of its tables
    remarks: list[str] = field(default_factory=list)  # on what the paper prints

    @property
    def empty(self) -> bool:
        return not self.tables and not self.charts

    @property
    def models(self) -> list[int]:
        """Numbers of the models in its charts."""
        return sorted({model for chart in self.charts for model in chart.models})


def sections(found: Gathered) -> list[Section]:
    made = [
        build(found)
        for build in (
            _figure_2,
            _table_1,
            _table_2,
            _table_3,
            _table_4,
            _table_5,
            _figure_3,
            _table_6,
            _table_7,
            _ablations,
            _inside,
        )
    ]
    for section in made:
        _share_notes(section)
        _fold_long(section)
    return made


def _figure_2(found: Gathered) -> Section:
    section = Section(
        "figure-2",
        "Figure 2: pre-training",
        "Loss of masked-language modelling, on the text that was trained on and on held-out text. The paper shows its "
        f"shared model alone: from about {paper.FIGURE_2['start']:g} to about {paper.FIGURE_2['end']:g} in "
        f"{paper.FIGURE_2['steps']:,} steps. Losses on different texts and vocabularies cannot be compared.",
        "triune pretrain RECIPE --data BLOCKS --out RUN",
    )
    searched = [rates_table(found["rates"], found.planned_rates)] if found["rates"] else []
    section.tables = searched
    if runs := found["pretraining"]:
        section.charts = [figures.loss_chart(runs, found)]
        section.tables = [runs_table(runs), *searched]
        section.folded = [figures.loss_table(runs)]
        section.conditions = pretraining_conditions(runs, found.pocket)
    return section


def _table_1(found: Gathered) -> Section:
    section = Section(
        "table-1",
        "Table 1: GLUE",
        "Fine-tuned models on the development sets, ours beside the paper's. The paper's figures are of base-size "
        "models on the whole data: only the differences between models can be set side by side, not the scores.",
        "triune finetune MODEL... --task glue --seeds 3 --out OUT",
        remarks=list(paper.TABLE_1_NOTES),
    )
    records = [one for one in found["finetuning"] if one["kind"] != "span"]
    if records:
        section.tables = [glue_table(records, found.comparisons), *primary_tables(found)]
        section.folded = _comparisons(found, records, "Tests behind the marks of Table 1")
        section.folded += tuned_rates_tables(found["finetuning"], found.searched)
        section.conditions = finetuning_conditions(records, found.pocket, "paper-glue")
    return section


def _table_2(found: Gathered) -> Section:
    section = Section(
        "table-2",
        "Table 2: SQuAD",
        "Answers to questions, as spans of a passage: exact match and F1.",
        "triune finetune MODEL... --task squad-v1.1,squad-v2.0 --seeds 3 --out OUT",
        remarks=[paper.TABLE_2_NOTE],
    )
    records = [one for one in found["finetuning"] if one["kind"] == "span"]
    if records:
        section.tables = [squad_table(records, found.comparisons)]
        section.folded = _comparisons(found, records, "Tests behind the marks of Table 2")
        section.conditions = finetuning_conditions(records, found.pocket, "paper-squad")
    return section


def _comparisons(found: Gathered, records: list[Record], title: str) -> list[Table]:
    titles = {one["task_title"] for one in records}
    here = [one for one in found.comparisons if one.task in titles]
    if not here or found.waits_for:
        return []
    table = comparison_table(records, here)
    table.title = f"{title}: {len(here)} of {len(found.comparisons)} comparisons"
    return [table]


def _table_3(found: Gathered) -> Section:
    section = Section(
        "table-3",
        "Table 3: parameters of attention",
        "What one attention layer learns, by formula and counted on the modules.",
        "triune params --json",
    )
    for study in found["parameters"]:
        table = parameter_tables(study)[0]
        table.title = _sized("Table 3: attention", study)
        add_printed_formulas(table, study)
        section.tables.append(table)
    return section


def _table_4(found: Gathered) -> Section:
    section = Section(
        "table-4",
        "Table 4: parameters of the whole model",
        "Counted on real modules, with each head, beside the figures that the paper prints.",
        "triune params --json",
    )
    for study in found["parameters"]:
        section.tables += parameter_tables(study)[1:]
    return section


def _sized(what: str, study: Record) -> str:
    model = study["model"]
    return f"{what}, {model['layers']} layers × {model['width']}, {model['heads']} heads"


def _table_5(found: Gathered) -> Section:
    section = Section(
        "table-5",
        "Table 5: noise",
        "What is left of the score when the input is disturbed: Gaussian noise on the embeddings as in the paper, and "
        "corruptions of the text. Hollow marks with dotted lines are the paper's. Here ± is half of a 95 % interval, "
        "and in Tables 1, 2 and 6 a standard deviation.",
        "triune noise MODEL --task TASK --out OUT",
        remarks=[paper.TABLE_5_NOTE],
    )
    if records := found["noise"]:
        section.charts = figures.noise_charts(records, found)
        section.tables = noise_tables(records, found.noise_comparisons, found.started)
        section.conditions = noise_conditions(records)
    return section


def _figure_3(found: Gathered) -> Section:
    section = Section(
        "figure-3",
        "Figure 3: training time",
        "One epoch of fine-tuning against the standard model, beside what arithmetic alone would save: a saving beyond "
        "that bound is overhead, not arithmetic.",
        "triune time --task cola,mnli,mrpc,qnli,rte,qqp --out OUT",
        remarks=[paper.FIGURE_3_NOTE],
    )
    if records := found["time"]:
        section.charts = [figures.time_chart(records, found)]
        section.tables = time_tables(records)
        section.conditions = time_conditions(records)
    return section


def _table_6(found: Gathered) -> Section:
    section = Section(
        "table-6",
        "Table 6: cross-task",
        "Trained on one task, tested on each: a matrix for each model, and its difference from the standard model.",
        "triune transfer MODEL... --out OUT",
        remarks=[paper.TABLE_6_NOTE],
    )
    if records := found["transfer"]:
        section.tables = transfer_tables(records, found.transfer_comparisons)
        section.notes += trained_on_parts(found["finetuning"], {one["source"] for one in records})
        section.conditions = transfer_conditions(records)
    return section


def _table_7(found: Gathered) -> Section:
    section = Section(
        "table-7",
        "Table 7: the data",
        "How many rows the models were trained and scored on.",
        "triune finetune MODEL... --task TASK --out OUT",
    )
    if found["finetuning"]:
        section.tables = [rows_table(found["finetuning"])]
        if found.pocket:
            section.notes.append(
                "The tasks here are those of the made-up pocket world: they have GLUE's and SQuAD's names and columns, "
                "and none of their rows."
            )
    return section


def _ablations(found: Gathered) -> Section:
    section = Section(
        "ablations",
        "Ablations and controls",
        "What each part of shared attention is worth, and what a standard model of equal size does. Not in the paper.",
        "triune ablate RECIPE --data BLOCKS --out OUT",
    )
    rates = rates_of_runs(found)
    section.tables = [table for record in found["ablations"] for table in ablation_tables(record, rates)]
    listed = {one["name"] for record in found["ablations"] for one in record["variants"]}
    if begun := [run for run in found["variants"] if run["label"] not in listed]:
        section.tables.append(variant_table(begun))
    section.charts = figures.variant_charts(found["variants"], found)
    if section.charts:
        section.about += (
            " Charts: validation loss over tokens seen; the line with marks is the variant, a dark line without marks "
            "the variant that it is compared with where that is not standard."
        )
        section.folded = [figures.loss_table(found["variants"])]
    return section


def _inside(found: Gathered) -> Section:
    section = Section(
        "inside",
        "Looking inside",
        "What the models do with their heads: where they look, how alike they are, and what the role vectors became. "
        "Not in the paper.",
        "triune inspect MODEL --file TEXTS --out OUT",
    )
    if records := found["inspect"]:
        section.charts = figures.spectrum_charts(records, found)
        section.tables = inspect_tables(records)
        section.folded = [head_table(records)]
    return section


def _fold_long(section: Section) -> None:
    """Of several tables the long ones open when asked for."""
    long = [table for table in section.tables[1:] if len(table.rows) > LONGEST]
    section.tables = [table for table in section.tables if table not in long]
    section.folded = long + section.folded


def _share_notes(section: Section) -> None:
    """A note that several tables of a section have is said once, under all of them; so is a remark on the paper."""
    noted = [note for table in section.tables for note in table.notes]
    section.remarks = [next((note for note in noted if remark in note), remark) for remark in section.remarks]
    noted = [note for note in noted if note not in section.remarks]
    section.notes += [note for note in dict.fromkeys(noted) if noted.count(note) > 1]
    for table in section.tables:
        table.notes = [note for note in table.notes if note not in (*section.notes, *section.remarks)]
