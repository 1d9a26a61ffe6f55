"""The verb that measures how long an epoch takes with each operator."""

from pathlib import Path
from typing import Annotated, Any

import typer

from triune.commands.finetuning import SetOption


def add_to(app: typer.Typer) -> None:
    app.command("time")(time)


def time(
    out: Annotated[Path, typer.Option(help="Folder for records; the same call again does what is missing.")],
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Run folders or model folders of pre-trained models, each as PATH or LABEL=PATH: sizes, operators and "
            "tokenizer are taken from them. (default: --size, --operator and --tokenizer)",
            metavar="[MODEL...]",
        ),
    ] = None,
    task: Annotated[
        str, typer.Option(help="Tasks of whole texts, with commas; the default is those of the paper's Figure 3.")
    ] = "cola,mnli,mrpc,qnli,rte,qqp",
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with glue/NAME/train.parquet …; without it the hub is read.")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Folder or hub name of a tokenizer, with --size.")] = None,
    size: Annotated[str, typer.Option(help="Size of the models: tiny, mini, small, medium, base, large.")] = "base",
    operator: Annotated[str, typer.Option(help="Operators, with commas, with --size.")] = "standard,shared",
    recipe: Annotated[str, typer.Option(help="strong, sprint-tasks, paper-glue, pocket-tasks or a .yaml.")] = "strong",
    rounds: Annotated[int, typer.Option(help="Warm epochs of each, in turn.", min=1)] = 3,
    set_: SetOption = None,
) -> None:
    """Measure an epoch of fine-tuning for each task and operator, against what arithmetic saves.

    Nothing else should run on the machine meanwhile.
    """
    from rich.console import Console

    from triune.benchmarks.epoch_time import time_cell, time_line
    from triune.cells import Engine, run_missing
    from triune.commands.own_data import tasks_folder
    from triune.commands.show import show
    from triune.errors import TriuneError
    from triune.progress import Watch
    from triune.report.times import time_tables
    from triune.training.finetune_recipe import load_finetune_recipe
    from triune.training.task_data import TaskData

    names = list(dict.fromkeys(one.strip() for one in task.split(",") if one.strip()))
    if not names:
        raise TriuneError("--task names no task: give one or more, with commas")
    folder = tasks_folder(data_dir)
    chosen = load_finetune_recipe(recipe, set_)
    configs, words = _from_models(models) if models else _from_size(size, operator, tokenizer)
    data = [TaskData(name, folder, rows=chosen.data.rows) for name in names]
    cells = [time_cell(one, configs, words, chosen, rounds, out) for one in data]
    with Watch(Console(stderr=True)) as watch, watch.stage("time", len(cells), time_line) as done:
        records = run_missing(cells, Engine(workers=1), done)  # one after the other: a time is taken alone
    show(time_tables(records))
    print(f"written: {len(cells)} records under {out}")


def _from_models(given: list[str]) -> tuple[dict[str, Any], str]:
    from triune.data.tokenizer import describe_tokenizer
    from triune.errors import TriuneError
    from triune.models.locate import tokenizer_of
    from triune.training.matrix import label_models

    labelled = label_models(given)
    first, *others = labelled
    words = describe_tokenizer(tokenizer_of(labelled[first]))
    for label in others:
        if describe_tokenizer(tokenizer_of(labelled[label])) != words:
            raise TriuneError(f"{first} and {label} have different tokenizers: their epochs cannot be set side by side")
    return {label: model.config for label, model in labelled.items()}, labelled[first].path


def _from_size(size: str, operator: str, tokenizer: str | None) -> tuple[dict[str, Any], str]:
    from triune.data.tokenizer import load_tokenizer
    from triune.errors import TriuneError
    from triune.models.presets import preset

    if tokenizer is None:
        raise TriuneError("give pre-trained models, or a --tokenizer for models of --size with random weights")
    names = list(dict.fromkeys(one.strip() for one in operator.split(",") if one.strip()))
    if not names:
        raise TriuneError("--operator names no operator: give one or more, with commas")
    words = len(load_tokenizer(tokenizer))
    return {name: preset(size, operator=name, vocab_size=words) for name in names}, tokenizer
