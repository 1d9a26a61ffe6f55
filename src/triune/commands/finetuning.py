"""Verbs that fine-tune, compare and use models on tasks."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

SCORES_TABLE = "scores.md"

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override a value of the recipe, e.g. training.epochs=5 or optimizer.learning_rates=[3e-5]; may be given "
        "several times.",
        metavar="PART.KEY=VALUE",
    ),
]

EngineOption = Annotated[
    str,
    typer.Option(
        help="Who does the runs: local, this machine; slurm[:partition=NAME,time=MINUTES,…], jobs of a cluster whose "
        "machines share --out; jobs, the same as processes of this machine."
    ),
]
MeanOption = Annotated[
    str | None,
    typer.Option(
        help="Also the mean over GLUE's tasks as a published table has it: paper, paper-caption, bert, glue …"
    ),
]


def add_to(app: typer.Typer) -> None:
    app.command("tasks")(tasks)
    app.command("finetune")(finetune)
    app.command("compare")(compare)
    app.command("predict")(predict)


def tasks() -> None:
    """List the tasks there are: kind, columns, classes, metrics, where the data is."""
    from triune.commands.show import show
    from triune.report.task_list import task_table

    show([task_table()])


def finetune(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Run folders, model folders, names of models that come with Triune or of the hub, each as PATH or "
            "LABEL=PATH.",
            metavar="MODEL...",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for records and models; the same call again does what is missing.")],
    task: Annotated[
        list[str] | None, typer.Option(help="A task of `triune tasks`, several with commas, or glue for all of GLUE.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with glue/NAME/SPLIT.parquet, squad/…; without it the hub is read.")
    ] = None,
    train: Annotated[Path | None, typer.Option(help="Your own data: .csv, .tsv, .jsonl or .parquet.")] = None,
    dev: Annotated[Path | None, typer.Option(help="Your own data to score on.")] = None,
    text: Annotated[str | None, typer.Option(help="Column of the text.")] = None,
    text2: Annotated[str | None, typer.Option(help="Column of a second text.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the class or number.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="classification or regression. (default: found from the labels)")
    ] = None,
    recipe: Annotated[
        str, typer.Option(help="strong, quick, sprint-tasks, paper-glue, paper-squad, pocket-tasks or a .yaml.")
    ] = "strong",
    seeds: Annotated[int, typer.Option(help="Runs of each model on each task, with seeds 1, 2, ….", min=1)] = 1,
    keep: Annotated[str, typer.Option(help="Whose models are kept: all, first (seed 1) or none.")] = "first",
    workers: Annotated[
        int | None, typer.Option(help="Runs at once. (default: one a GPU; without GPU one a core)", min=1)
    ] = None,
    engine: EngineOption = "local",
    reference: Annotated[
        str | None, typer.Option(help="The model to compare with. (default: standard, or the first)")
    ] = None,
    mean: MeanOption = None,
    test_files: Annotated[bool, typer.Option(help="Also write files for the GLUE test server.")] = False,
    set_: SetOption = None,
) -> None:
    """Fine-tune models on tasks, with several seeds, and say which differences are real."""
    from triune.errors import TriuneError
    from triune.training.finetune_recipe import load_finetune_recipe

    chosen = load_finetune_recipe(recipe, set_)
    _check_mean(mean)
    if keep not in ("all", "first", "none"):
        raise TriuneError(f"--keep is all, first or none, not '{keep}'")
    wanted = _task_data(task, data_dir, (train, dev, text, text2, label, kind), chosen.data.rows, test_files)
    from rich.console import Console

    from triune.cells import engine_from
    from triune.data.folders import refuse_others_files
    from triune.evaluation.comparing import SCORES
    from triune.progress import Watch
    from triune.training.matrix import Matrix, finetuning_line, label_models, run_matrix

    refuse_others_files(out, (SCORES, SCORES_TABLE), "*/*/*/record.json")
    who = engine_from(engine, workers)
    labelled = label_models(models)
    if reference is not None and reference not in {*labelled, *(path.name for path in out.glob("*/*"))}:
        raise TriuneError(f"there is no model '{reference}' to compare with: there are {', '.join(labelled)}")
    matrix = Matrix(labelled, wanted, chosen, list(range(1, seeds + 1)), out, keep, engine=who, test_files=test_files)
    _say_found(matrix)
    cells = len(wanted) * len(labelled) * (seeds + len(chosen.search.learning_rates))
    with Watch(Console(stderr=True)) as watch, watch.stage("fine-tuning", cells, finetuning_line) as done:
        run_matrix(matrix, done)
    _show_scores(out, reference, mean)


def compare(
    folder: Annotated[Path, typer.Argument(help="Folder that `triune finetune` wrote.")],
    reference: Annotated[
        str | None, typer.Option(help="The model to compare with. (default: standard, or the first)")
    ] = None,
    mean: MeanOption = None,
) -> None:
    """Show the scores in a folder of `triune finetune`, with paired tests between its models."""
    _check_mean(mean)
    _show_scores(folder, reference, mean)


def predict(
    model: Annotated[str, typer.Argument(help="A fine-tuned model: its folder or name, or a name on the hub.")],
    source: Annotated[
        str,
        typer.Argument(
            help="A table (.csv, .tsv, .jsonl, .parquet), a .txt with a text on each line, or - for standard input.",
            metavar="INPUT",
        ),
    ] = "-",
    out: Annotated[Path | None, typer.Option(help="File to write to. (default: standard output)")] = None,
    text: Annotated[str | None, typer.Option(help="Column of the text. (default: as in fine-tuning)")] = None,
    text2: Annotated[str | None, typer.Option(help="Column of the second text. (default: as in fine-tuning)")] = None,
    kind: Annotated[
        str | None, typer.Option(help="lines, csv, tsv, jsonl or parquet. (default: by suffix; lines from input -)")
    ] = None,
    batch: Annotated[int, typer.Option(help="Rows that are predicted together.", min=1)] = 64,
) -> None:
    """Predict with a fine-tuned model: a JSON line for each row, in their order, as they come.

    "row" is the line of the file or of standard input on which the row starts (after the header of a .csv or .tsv: 2);
    in .parquet, rows are counted from 1.
    """
    import json

    from transformers.utils import logging

    from triune.errors import TriuneError
    from triune.evaluation.predict import SHOWN, Predictor, holds_lines, input_rows, without_text
    from triune.files import text_in_place

    if out is not None and out.exists() and source != "-" and Path(source).exists() and out.samefile(source):
        raise TriuneError(f"--out '{out}' is the file that is read: give another one to write to")
    if out is not None and out.suffix.lower() in (".csv", ".tsv", ".parquet"):
        raise TriuneError(f"--out '{out}' would hold lines of JSON: give a name that ends in .jsonl")
    logging.disable_progress_bar()
    predictor = Predictor(model)
    if out is not None and os.path.realpath(out) in map(os.path.realpath, Path(predictor.path).glob("*")):
        raise TriuneError(f"--out '{out}' is a file of the model: give another one to write to")
    columns = predictor.columns
    columns[0] = text or columns[0]
    if text is not None and holds_lines(source, kind):
        raise TriuneError("--text names a column, and lines of text have none: leave it out, or say --kind csv")
    if text2 is not None:
        if len(predictor.about.get("text", ["", ""])) < 2:  # a model from elsewhere does not say
            raise TriuneError(f"'{model}' was fine-tuned on one text a row: leave out --text2")
        columns[1:] = [text2]
    rows, empty = without_text(input_rows(source, sys.stdin, kind, columns), columns)
    with text_in_place(out) as write:
        for answer in predictor.answers(rows, columns, batch):
            write(json.dumps(answer, ensure_ascii=False) + "\n")
    if empty:
        listed = ", ".join(map(str, empty[:SHOWN])) + (", …" if len(empty) > SHOWN else "")
        said = f"warning: a text is empty in {len(empty):,} of the rows ({listed}), whose predictions say nothing"
        print(said, file=sys.stderr)


def _check_mean(name: str | None) -> None:
    from triune.errors import TriuneError
    from triune.evaluation.metrics import MEANS

    if name is not None and name not in MEANS:
        raise TriuneError(f"no mean is called '{name}': choose one of {', '.join(MEANS)}")


def _task_data(
    names: list[str] | None,
    data_dir: Path | None,
    own: tuple[Path | None, Path | None, str | None, str | None, str | None, str | None],
    rows: int | None,
    with_test: bool,
) -> dict[str, Any]:
    from triune.commands.own_data import is_own_data, tasks_folder
    from triune.data.tasks import get_task, task_names
    from triune.errors import TriuneError
    from triune.training.task_data import TaskData

    train, dev, text, text2, label, kind = own
    if is_own_data(
        dict(zip(("--train", "--dev", "--text", "--text2", "--label", "--kind"), own, strict=True)),
        files=("--train", "--dev"),
        needed=("--train", "--dev", "--text", "--label"),
        of_tasks={"--task": bool(names), "--data-dir": data_dir is not None, "--test-files": with_test},
    ):
        if train and dev and train.exists() and dev.exists() and train.samefile(dev):
            raise TriuneError(f"'{dev}' is both --train and --dev: score on rows that the model was not trained on")
        files = (str(train), str(dev), str(text), text2, str(label), kind)
        return {"own": TaskData("own", None, files, rows, False)}
    if not names:
        raise TriuneError("say what to train on: --task, or --train, --dev, --text and --label for your own data")
    listed = [one.strip() for name in names for one in name.split(",") if one.strip()]
    glue = [name for name in task_names() if get_task(name).folder.startswith("glue/")]
    listed = list(dict.fromkeys(one for name in listed for one in (glue if name == "glue" else [name])))
    folder = tasks_folder(data_dir)
    return {get_task(name).name: TaskData(name, folder, None, rows, with_test) for name in listed}


def _say_found(matrix: Any) -> None:
    """What is about to happen, before it does."""
    from triune.training.task_data import found_lines

    for label, model in matrix.models.items():
        print(f"{label}: {model.path} ({model.config.operator})", file=sys.stderr)
    for data in matrix.tasks.values():
        for line in found_lines(data):
            print(line, file=sys.stderr)


def _show_scores(out: Path, reference: str | None, mean: str | None) -> None:
    from triune.commands.show import show
    from triune.evaluation.comparing import compare_records, read_records, write_scores
    from triune.files import write_text
    from triune.report.scores import score_tables

    records = read_records(out)
    comparisons = compare_records(out, records, reference)
    tables = score_tables(records, comparisons)
    if mean is not None:
        from triune.report.means import mean_table

        tables.insert(1, mean_table(records, mean))
    show(tables)  # first: they are seen where they cannot be written
    path = write_scores(out, records, comparisons)
    write_text(out / SCORES_TABLE, "\n".join(table.to_markdown() for table in tables))
    print(f"written: {path} and {out / SCORES_TABLE}")
