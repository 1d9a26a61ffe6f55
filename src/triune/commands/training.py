"""Verbs that train, and draw what training did."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    app.command("pretrain")(pretrain)
    app.command("curves")(curves)


def pretrain(
    recipe: Annotated[str, typer.Argument(help="pocket, mini, sprint, paper-base, or the path of a recipe in YAML.")],
    data: Annotated[Path, typer.Option(help="Folder made by `triune prepare`.")],
    out: Annotated[Path, typer.Option(help="Run folder; a run that was stopped goes on where it was.")],
    operator: Annotated[
        str | None, typer.Option(help="Attention operator. One that is not the recipe's has its default settings.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Override a value of the recipe, e.g. optimizer.learning_rate=1e-3 or "
            "model.operator_settings.role_start=signed; may be given several times.",
            metavar="PART.KEY=VALUE",
        ),
    ] = None,
    report_to: Annotated[
        str, typer.Option(help="none, tensorboard, wandb, … as transformers' Trainer has them.")
    ] = "none",
) -> None:
    """Pre-train a masked language model. Under torchrun or accelerate launch, devices share each step."""
    from triune.training.recipe import load_recipe, read_recipe, swap_operator

    swapped = swap_operator(read_recipe(recipe), operator) if operator else []
    chosen = load_recipe(recipe, [*swapped, *(set_ or [])])
    from triune.report.curves import draw_curves
    from triune.training.devices import gpus_left_out
    from triune.training.pretrain import pretrain as run
    from triune.training.pretrain import summary_line

    if idle := gpus_left_out():
        print(
            f"this process takes one GPU of {idle + 1}; "
            f"`torchrun --nproc_per_node={idle + 1} -m triune.cli pretrain …` shares each step among all",
            file=sys.stderr,
        )
    summary = run(chosen, data, out, report_to)
    if "validation_loss" in summary and int(os.environ.get("RANK", "0")) == 0:
        draw_curves([out], out / "loss.svg")
        print(summary_line(summary))


def curves(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path, typer.Option(help="Figure to write: .svg, .png or .pdf.")] = Path("loss.svg"),
) -> None:
    """Draw training and validation loss of several runs in one figure (the paper's Figure 2)."""
    from triune.report.curves import draw_curves

    draw_curves(runs, out)
    print(f"written: {out}")
