"""Verbs that run whole studies: all of the paper's, and the ablations."""

from pathlib import Path
from typing import Annotated

import typer

from triune.commands.finetuning import EngineOption

WorkersOption = Annotated[
    int | None, typer.Option(help="Runs at once. (default: one a GPU; without GPU one a core)", min=1)
]


def add_to(app: typer.Typer) -> None:
    app.command("ablate")(ablate)
    app.command("reproduce")(reproduce)


def ablate(
    recipe: Annotated[str, typer.Argument(help="Pre-training recipe that is varied: pocket, sprint, … or a .yaml.")],
    data: Annotated[Path, typer.Option(help="Folder made by `triune prepare`.")],
    out: Annotated[Path, typer.Option(help="Folder for runs and record; the same call again does what is missing.")],
    variants: Annotated[
        str, typer.Option(help="The list of variants: ablations, levers, confirmed, … or a .yaml of yours.")
    ] = "ablations",
    seeds: Annotated[int, typer.Option(help="Runs of each variant, with seeds 1, 2, ….", min=1)] = 1,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a value of the recipe for all variants.", metavar="PART.KEY=VALUE"),
    ] = None,
) -> None:
    """Pre-train variants of one recipe, all else equal: what each part of shared attention is worth."""
    from rich.console import Console

    from triune.cells import engine_from, run_missing
    from triune.commands.show import show
    from triune.errors import TriuneError
    from triune.progress import Watch
    from triune.report.ablations import ablation_tables
    from triune.studies.ablations import ablation_cells, load_ablations, seeds_in, write_ablations
    from triune.studies.pretraining import without_diverged
    from triune.studies.reproduce import diverged_lines
    from triune.training.pretraining_cell import loss_line

    who, listed, numbers = engine_from(engine, workers), load_ablations(variants), list(range(1, seeds + 1))
    if more := seeds_in(out / listed.file) - set(numbers):
        raise TriuneError(
            f"'{out / listed.file}' has seeds up to {max(more)}, which a record of --seeds {seeds} would be without: "
            "ask for as many, or choose another --out"
        )
    cells = ablation_cells(listed, recipe, set_ or [], numbers, data, out)
    with Watch(Console(stderr=True)) as watch, watch.stage("ablations", len(cells), loss_line) as done:
        run_missing(cells, who, done)
    kept = without_diverged(listed, numbers, lambda name, seed: out / name / f"seed-{seed}")
    for line in diverged_lines(out, [cell.record for cell in cells]):
        print(line)
    if kept is None:
        raise TriuneError(f"the reference '{listed.reference}' diverged: there is nothing to compare the others with")
    left_out = {variant.name for variant in listed.variants} - {variant.name for variant in kept.variants}
    show(ablation_tables(write_ablations(kept, numbers, out, left_out=left_out)))
    print(f"written: {out / listed.file}")


def reproduce(
    scale: Annotated[
        str,
        typer.Option(
            help="pocket: a laptop; sprint: one GPU, small models; base: one GPU, base size; paper: a cluster; or a "
            ".yaml of yours."
        ),
    ] = "pocket",
    out: Annotated[Path, typer.Option(help="Folder for data, runs, records and the page.")] = Path("results"),
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with corpus/…, glue/…, squad/…; pocket makes its own.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Studies, with commas, and what they need: parameters, rates, pretraining, finetuning, noise, "
            "transfer, ablation-rates, ablations, inspect, time. (default: all)"
        ),
    ] = None,
    operator: Annotated[
        str | None,
        typer.Option(
            help="Only models of these operators, with commas, in this call: what is made of one model can be finished "
            "where its weights are. (default: all)"
        ),
    ] = None,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time, as 90s, 25m or 2h: only what is expected to end in it is started, and the same call again goes "
            "on. (default: all of it)",
            metavar="TIME",
        ),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what there is to do and how long it takes.")] = False,
    no_report: Annotated[
        bool,
        typer.Option("--no-report", help="Only the records; `triune report` makes the page of them, anywhere."),
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a value of the scale, e.g. finetuning.seeds=5.", metavar="PART.KEY=VALUE"),
    ] = None,
) -> None:
    """Run every study of the paper and write one page with the answer; what is finished is not run again."""
    from dataclasses import replace

    from rich.console import Console

    from triune.benchmarks.contestants import operator_names
    from triune.budget import Budget, budget_seconds
    from triune.cells import engine_from
    from triune.errors import TriuneError
    from triune.studies import reproduce as studies
    from triune.studies.place import Place
    from triune.studies.scale import load_scale

    who = engine_from(engine, workers)
    if budget is not None:
        if who.kind != "local":
            raise TriuneError(f"--budget is for this machine alone and not for --engine {who.kind}")
        who = replace(who, budget=Budget(budget_seconds(budget)))
    operators = () if operator is None else tuple(operator_names(operator))
    place = Place(out, load_scale(scale, set_), data_dir, who, operators=operators)
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    if only is not None and not names:
        raise TriuneError(f"--only '{only}' names no study")
    if plan:
        studies.plan(place, names, Console(highlight=False))
        return
    for line in studies.reproduce(place, names, report=not no_report):
        print(line)
    if no_report:
        print(f"The records: {out}; the page of them: triune report {out}")
    elif (out / studies.PAGE).is_file():
        print(f"\nThe page: {out / studies.PAGE}")
