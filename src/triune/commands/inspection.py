"""The verb that looks inside models."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from triune.commands.models import JsonOption

MAPS = "maps.json"
SUFFIXES = (".svg", ".png")
WRITTEN = (MAPS, *(f"{figure}{suffix}" for figure in ("heads", "spectrum", "maps") for suffix in SUFFIXES))


def add_to(app: typer.Typer) -> None:
    app.command("inspect")(inspect)


def inspect(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Run folders, model folders, names of models that come with Triune or of the hub, pre-trained or "
            "fine-tuned, each as PATH or LABEL=PATH.",
            metavar="MODEL...",
        ),
    ],
    text: Annotated[
        list[str] | None,
        typer.Option(help="Text to look at; may be given several times. Attention maps are drawn of the first."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Texts to look at, one on each line; - for standard input.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for records and figures. (default: print tables only)")
    ] = None,
    heads: Annotated[bool, typer.Option("--heads", help="Also print a line for each head.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Look inside models: the signs of c = dq∘dk, how far role vectors moved, where heads look.

    With --out also figures; with --text, attention maps of one model, or of two side by side.
    """
    texts, source = _texts(text or [], file)
    from transformers.utils import logging

    logging.set_verbosity_error()  # a head that is left out is not worth a warning
    logging.disable_progress_bar()
    from triune.data.folders import refuse_others_files
    from triune.evaluation.attention_maps import attention_maps, open_model
    from triune.evaluation.inspection import inspect_opened
    from triune.training.matrix import label_models

    labelled = label_models(models)
    if out is not None:
        refuse_others_files(out, WRITTEN, "inspect/*.json")
    records, maps = [], []
    for label, location in labelled.items():
        opened = open_model(location)
        record = inspect_opened(label, opened, texts, source)
        records.append(record)
        if cut := record["truncated"]:
            _say(f"{label}: {cut} of {len(texts)} texts longer than the model's {opened.longest} tokens, and cut")
        if text and out is not None and len(labelled) <= 2:
            maps.append(attention_maps(opened, label, text[0]))
    written = [] if out is None else _write(out, records, maps, text)
    if as_json:
        print(json.dumps(records, indent=1, ensure_ascii=False))
    else:
        from triune.commands.show import show
        from triune.report.inspection import head_table, inspect_tables

        show([*inspect_tables(records), *([head_table(records)] if heads else [])])
    if text and out is not None and not maps:
        _say(f"attention maps are drawn for one model or two, not for {len(records)}: left out")
    if written:
        _say(f"written to {out}: {', '.join(written)}")


def _texts(given: list[str], file: Path | None) -> tuple[list[str], str]:
    """The texts, and in words where they are from."""
    from triune.errors import TriuneError

    if not given and file is None:
        raise TriuneError('attention needs text to look at: give --text "…", or --file with a text on each line')
    if not all(one.strip() for one in given):
        raise TriuneError("--text is empty: give words to look at")
    lines = []
    if file is not None:
        from triune.evaluation.predict import input_rows

        lines = [row["text"] for _, row in input_rows(str(file), sys.stdin, "lines", ["text"]) if row["text"].strip()]
        if not lines:
            raise TriuneError(f"'{file}' holds no text: give a file with a text on each line")
    sources = ["given with the command"] if given else []
    if file is not None:
        sources.append("lines of " + ("standard input" if str(file) == "-" else file.name))
    return [*given, *lines], " and ".join(sources)


def _write(out: Path, records: list[Any], maps: list[Any], text: list[str] | None) -> list[str]:
    """Records and figures; gives the names of the files."""
    from triune.cells import write_record
    from triune.evaluation.inspection import record_path
    from triune.files import write_text
    from triune.report.inspection_figures import draw_heads, draw_spectrum
    from triune.report.map_figures import draw_maps

    written = []
    for record in records:
        path = record_path(out / "inspect", record["model"])
        write_record(path, record)
        written.append(str(path.relative_to(out)))
    if text and maps:
        write_text(out / MAPS, json.dumps({"text": text[0], "models": maps}, ensure_ascii=False) + "\n")
        written.append(MAPS)
    for suffix in SUFFIXES:
        draw_heads(records, out / f"heads{suffix}")
        written.append(f"heads{suffix}")
        if draw_spectrum(records, out / f"spectrum{suffix}"):
            written.append(f"spectrum{suffix}")
        if maps:
            draw_maps(maps, out / f"maps{suffix}")
            written.append(f"maps{suffix}")
    return written


def _say(line: str) -> None:
    print(line, file=sys.stderr)
