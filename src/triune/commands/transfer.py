"""The verb that tests fine-tuned models on tasks they were not fine-tuned on."""

from pathlib import Path
from typing import Annotated, Any

import typer


def add_to(app: typer.Typer) -> None:
    app.command("transfer")(transfer)


def transfer(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Models that `triune finetune` kept, each as PATH or LABEL=PATH: one, a folder of its seeds "
            "(OUT/mnli/shared), or all (OUT; those of the tasks in question are taken).",
            metavar="MODEL...",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for records; the same call again does what is missing.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with glue/NAME/dev.parquet …; without it the hub is read.")
    ] = None,
    to: Annotated[str, typer.Option(help="Tasks of text pairs to test on, with commas.")] = "mnli,qnli,qqp,mrpc",
    dev: Annotated[
        Path | None, typer.Option(help="Also your own pairs of texts: .csv, .tsv, .jsonl or .parquet.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Column of the first text in it.")] = None,
    text2: Annotated[str | None, typer.Option(help="Column of the second text.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the class.")] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            help="The class in it that says that the second text follows from the first, or says the same; the others "
            "are the rest. (default: entailment, duplicate or equivalent; not needed where classes are the model's own)"
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Models at once. (default: one a GPU; without GPU one a core)", min=1)
    ] = None,
) -> None:
    """Test models of MNLI, QNLI, QQP and MRPC on each other's development sets, and compare the operators."""
    from triune.commands.own_data import tasks_folder
    from triune.errors import TriuneError

    folder = tasks_folder(data_dir)
    own = _own_file(dev, text, text2, label, positive)
    from rich.console import Console

    from triune.benchmarks.paper import TABLE_6_TASKS
    from triune.cells import Engine, run_missing
    from triune.commands.show import show
    from triune.evaluation.finetuned import find_finetuned
    from triune.evaluation.transfer import pair_task, read_transfers, transfer_cells, transfer_line
    from triune.progress import Watch
    from triune.report.transfer import transfer_tables
    from triune.training.task_data import TaskData

    names = list(dict.fromkeys(one.strip() for one in to.split(",") if one.strip()))
    if not names:
        raise TriuneError("--to names no task: give one or more, with commas")
    targets = [TaskData(pair_task(name).name, folder) for name in names]
    found = find_finetuned(models, list(dict.fromkeys([*TABLE_6_TASKS, *names])))
    cells = transfer_cells(found, targets, out, own)
    with Watch(Console(stderr=True)) as watch, watch.stage("transfer", len(cells), transfer_line) as done:
        run_missing(cells, Engine(workers=workers), done)
    show(transfer_tables(read_transfers(out)))
    print(f"written: {len(cells)} records under {out}")


def _own_file(dev: Path | None, text: str | None, text2: str | None, label: str | None, positive: str | None) -> Any:
    from triune.commands.own_data import is_own_data

    given = {"--dev": dev, "--text": text, "--text2": text2, "--label": label, "--positive": positive}
    needed = ("--dev", "--text", "--text2", "--label")
    if not is_own_data(given, files=("--dev",), needed=needed, of_tasks={}):  # tasks of --to are tested on as well
        return None
    from triune.evaluation.transfer import OwnFile

    return OwnFile(str(dev), str(text), str(text2), str(label), positive)
