"""The studies of the paper at pocket scale, one after the other; what is finished is not done again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from triune.benchmarks.paper import TABLE_4, TABLE_4_HEADS
from triune.commands.show import show
from triune.files import write_text

POCKET_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "squad-v1.1", "squad-v2.0")
SEEDS = 3
VOCABULARY = 700  # the pocket world has a few hundred words; with this size all of them are whole


def reproduce(out: Path, overrides: Sequence[str] = (), task_overrides: Sequence[str] = (), seeds: int = SEEDS) -> None:
    """Write records, figures and a report to `out`.

    The overrides are for the recipes of pre-training and of fine-tuning, as `--set` of their commands.
    """
    console = Console(stderr=True, highlight=False)
    tables = [
        *_parameters(out),
        *_pretraining(out, console, overrides),
        *_finetuning(out, console, task_overrides, seeds),
    ]
    page = out / "report.md"
    write_text(page, "# Reproduction at pocket scale\n\n" + "\n".join(table.to_markdown() for table in tables))
    print(f"written: {page}, {out / 'pretraining.svg'}, {out / 'tasks' / 'scores.json'} and the records beside them")


def _parameters(out: Path) -> list[Any]:
    from triune.benchmarks.parameters import study
    from triune.models.presets import preset
    from triune.report.parameters import parameter_tables

    result = study(preset("base"), TABLE_4_HEADS)
    write_text(out / "parameters.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    tables = parameter_tables(result)
    show(tables)
    return tables


def _pretraining(out: Path, console: Console, overrides: Sequence[str]) -> list[Any]:
    """Figure 2: the four operators of the paper, pre-trained on the pocket corpus under one recipe."""
    from triune.data.pocket import write_pocket
    from triune.data.prepare import prepare
    from triune.data.tokenizer import train_tokenizer
    from triune.report.curves import draw_curves
    from triune.report.pretraining import pretraining_table
    from triune.training.pretrain import pretrain
    from triune.training.recipe import load_recipe, swap_operator

    pocket, tokenizer, blocks = out / "pocket", out / "tokenizer", out / "blocks"
    write_pocket(pocket)
    corpus = str(pocket / "corpus" / "pocket-*.txt")
    if not (tokenizer / "tokenizer.json").is_file():
        train_tokenizer(corpus, VOCABULARY, tokenizer)
    recipe = load_recipe("pocket", list(overrides))
    prepare(
        corpus,
        tokenizer,
        blocks,
        recipe.data.block_length,
        valid_sources=str(pocket / "corpus" / "valid-pocket.txt"),
        say=console.print,
    )
    runs = []
    for operator in TABLE_4:
        run = out / "runs" / operator
        # The recipe's settings are those of its own operator.
        other = [] if operator == recipe.model.operator else swap_operator(operator)
        pretrain(load_recipe("pocket", [*other, *overrides]), blocks, run, console=console)
        runs.append(run)
    draw_curves(runs, out / "pretraining.svg")
    draw_curves(runs, out / "pretraining.png")
    tables = [pretraining_table(runs)]
    show(tables)
    return tables


def _finetuning(out: Path, console: Console, overrides: Sequence[str], seeds: int) -> list[Any]:
    """Tables 1 and 2: the four pre-trained models on the pocket tasks, several seeds, with tests between them."""
    from triune.evaluation.comparing import compare_records, read_records, write_scores
    from triune.report.scores import score_tables
    from triune.training.finetune_recipe import load_finetune_recipe
    from triune.training.matrix import Matrix, label_models, run_matrix
    from triune.training.task_data import TaskData

    folder = out / "tasks"
    recipe = load_finetune_recipe("pocket-tasks", list(overrides))
    models = label_models([f"{operator}={out / 'runs' / operator}" for operator in TABLE_4])
    tasks = {name: TaskData(name, str(out / "pocket"), None, recipe.data.rows) for name in POCKET_TASKS}
    run_matrix(Matrix(models, tasks, recipe, list(range(1, seeds + 1)), folder, keep="first"), console, console.print)
    records = read_records(folder)
    comparisons = compare_records(folder, records)
    write_scores(folder, records, comparisons)
    tables = score_tables(records, comparisons)
    show(tables)
    return tables
