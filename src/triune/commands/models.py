"""Verbs about operators and models."""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from triune.commands.show import show

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def add_to(app: typer.Typer) -> None:
    app.command("operators")(list_operators)
    app.command("params")(params)
    app.command("fold")(fold)
    app.command("publish")(publish)


def list_operators(as_json: JsonOption = False) -> None:
    """List the attention operators there are: scores, formulas, decoder cache, what folding does, settings."""
    from triune.operators.describe import describe_all

    described = describe_all()
    if as_json:
        print(json.dumps(described, indent=2, ensure_ascii=False))
        return
    from triune.report.parameters import operators_table, settings_table

    show([operators_table(described), settings_table(described)])


def params(
    config: Annotated[
        str,
        typer.Option(
            help="tiny, mini, small, medium, base or large (also as bert-base, …), or the path of a configuration "
            "in JSON or of a folder that holds config.json.",
            metavar="SIZE|PATH",
        ),
    ] = "base",
    head: Annotated[
        list[str] | None,
        typer.Option(
            help="masked-lm, classification, question-answering, token-classification, multiple-choice or none; may be "
            "given several times. (default: masked-lm and classification)",
            show_default=False,
        ),
    ] = None,
    operator: Annotated[
        list[str] | None,
        typer.Option(help="Operators to count; may be given several times. (default: all)", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Count parameters and bytes of every operator, on real modules, beside the paper's Tables 3 and 4."""
    from triune.benchmarks.paper import TABLE_4_HEADS
    from triune.benchmarks.parameters import study
    from triune.models.presets import config_from

    result = study(config_from(config), head or TABLE_4_HEADS, operator)
    if as_json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    from triune.report.parameters import parameter_tables

    show(parameter_tables(result))


def fold(
    model: Annotated[
        str,
        typer.Argument(help="Folder of a saved Triune model or of its run, or the name of one that comes with Triune."),
    ],
    out: Annotated[Path, typer.Argument(help="Folder to write the folded model to; must not exist.")],
) -> None:
    """Merge a model's role vectors for inference and save the result."""
    from triune.models.folding import fold_folder
    from triune.models.locate import model_folder

    print(fold_folder(model_folder(model), out))


def publish(
    run: Annotated[Path, typer.Argument(help="Run folder of `triune pretrain`, finished.")],
    folder: Annotated[Path, typer.Argument(help="Folder for the model; one that was published before is replaced.")],
    text: Annotated[str, typer.Option(help="One line: what text the model saw, and where it is from.")],
    licence: Annotated[
        str, typer.Option(help="Licence of the weights, as the hub names it: apache-2.0, cc-by-sa-4.0, other.")
    ],
    text_licence: Annotated[str, typer.Option(help="Licence of the text.")],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the data of the run, or with its manifest.json alone, for counts of its text."),
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(help="Folder with records of fine-tunings of this model, for a table of scores.")
    ] = None,
    language: Annotated[
        str, typer.Option(help="Of the text, by its code of two or three letters (ISO 639); several with commas.")
    ] = "en",
) -> None:
    """Write the model of a pre-training run for others: weights in bfloat16, tokenizer, model card."""
    from triune.errors import TriuneError

    said = {"--text": text, "--licence": licence, "--text-licence": text_licence, "--language": language}
    for option, value in said.items():
        if not value.strip() or not value.isprintable():
            raise TriuneError(f"{option} must be one line that says something")
    if not re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", licence):
        raise TriuneError(f"--licence '{licence}' is no name of the hub's: give one as apache-2.0, or other")
    languages = [one.strip() for one in language.split(",")]
    for one in languages:
        if not re.fullmatch(r"[a-z]{2,3}", one):
            raise TriuneError(f"--language '{one}' is no code of two or three small letters: give one as en, or en,de")
    from transformers.utils import logging

    logging.disable_progress_bar()
    from triune.report.published_card import Said
    from triune.studies.model_folder import publish_model

    size = publish_model(run, folder, Said(text, licence, text_licence, languages), data, scores)
    print(f"written: {folder}, weights of {size:,} bytes")
