"""The verb that measures fine-tuned models under noise."""

from pathlib import Path
from typing import Annotated, Any

import typer


def add_to(app: typer.Typer) -> None:
    app.command("noise")(noise)


def noise(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Models that `triune finetune` kept, each as PATH or LABEL=PATH: one (OUT/sst2/shared/seed-1), a "
            "folder of its seeds (OUT/sst2/shared), or all (OUT; those of the task are taken).",
            metavar="MODEL...",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for records; the same call again does what is missing.")],
    task: Annotated[
        str | None, typer.Option(help="The task they were fine-tuned on, several with commas; not SQuAD.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with glue/NAME/SPLIT.parquet …; without it the hub is read.")
    ] = None,
    dev: Annotated[
        Path | None, typer.Option(help="Instead of --task, your own data: .csv, .tsv, .jsonl or .parquet.")
    ] = None,
    train: Annotated[
        Path | None, typer.Option(help="The data trained on, where --dev does not hold all classes. (default: --dev)")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Column of the text in it.")] = None,
    text2: Annotated[str | None, typer.Option(help="Column of a second text.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the class or number.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="classification or regression. (default: found from the labels)")
    ] = None,
    where: Annotated[
        str, typer.Option(help="Gaussian noise is added before or after the LayerNorm of the embeddings.")
    ] = "after",
    draws: Annotated[int, typer.Option(help="Draws of the noise at every level and rate.", min=1)] = 3,
    levels: Annotated[
        str | None,
        typer.Option(help="Of Gaussian noise, in percent of the mean embedding norm. (default: 5,10,15,…,40)"),
    ] = None,
    rates: Annotated[
        str | None, typer.Option(help="Of corruptions, in percent of words, letters or tokens. (default: 10,20,40)")
    ] = None,
    kinds: Annotated[
        str | None,
        typer.Option(help="With commas. (default: all: gaussian, typos, dropped, swapped, casing, masked)"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Models at once. (default: one a GPU; without GPU one a core)", min=1)
    ] = None,
) -> None:
    """Measure how much of their score models keep under noise and corruptions, and compare the operators."""
    given: dict[str, Any] = {"levels": _shares("--levels", levels), "rates": _shares("--rates", rates)}
    given["kinds"] = None if kinds is None else _parts(kinds)
    wanted = _task_data(task, data_dir, (train, dev, text, text2, label, kind))
    from rich.console import Console

    from triune.cells import Engine, run_missing
    from triune.commands.show import show
    from triune.evaluation.finetuned import find_finetuned
    from triune.evaluation.noise import noise_cells, noise_line, noise_settings
    from triune.progress import Watch
    from triune.report.noise import noise_tables

    settings = noise_settings(
        where=where, draws=draws, **{name: value for name, value in given.items() if value is not None}
    )
    found = find_finetuned(models, None if dev else list(wanted))
    cells = []
    for name, data in wanted.items():
        fitting = [model for model in found if dev or model.task == name]
        cells += noise_cells(fitting, data, settings, out)
    with Watch(Console(stderr=True)) as watch, watch.stage("noise", len(cells), noise_line) as done:
        records = run_missing(cells, Engine(workers=workers), done)
    show(noise_tables(records))
    print(f"written: {len(cells)} record{'' if len(cells) == 1 else 's'} under {out}")


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _shares(option: str, text: str | None) -> list[float] | None:
    """Percentages with commas as shares; none at all is always among them."""
    if text is None:
        return None
    from triune.errors import TriuneError, shown

    try:
        percents = [float(part.removesuffix("%")) for part in _parts(text)]
    except ValueError as error:
        raise TriuneError(f"{option} '{shown(text)}': give percentages with commas, such as 10,20,40") from error
    return [0.0, *sorted(percent / 100 for percent in percents if percent != 0)]


def _task_data(
    task: str | None,
    data_dir: Path | None,
    own: tuple[Path | None, Path | None, str | None, str | None, str | None, str | None],
) -> dict[str, Any]:
    from triune.commands.own_data import is_own_data, tasks_folder
    from triune.data.task_list import get_task
    from triune.errors import TriuneError
    from triune.training.task_data import TaskData

    train, dev, text, text2, label, kind = own
    if is_own_data(
        dict(zip(("--train", "--dev", "--text", "--text2", "--label", "--kind"), own, strict=True)),
        files=("--dev",),
        needed=("--dev", "--text", "--label"),
        of_tasks={"--task": task is not None, "--data-dir": data_dir is not None},
    ):
        return {"own": TaskData("own", None, (str(train or dev), str(dev), str(text), text2, str(label), kind))}
    names = _parts(task or "")
    if not names:
        raise TriuneError("say which task: --task, or --dev, --text and --label for your own data")
    folder = tasks_folder(data_dir)
    return {get_task(name).name: TaskData(name, folder) for name in names}
