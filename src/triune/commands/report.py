"""Verbs that turn records into a page, and that copy them."""

from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    app.command("report")(report)
    app.command("records")(records)


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders with results: of `triune reproduce`, `triune finetune`, `triune pretrain`, or of any study.",
            metavar="RUNS...",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; for cards and records a folder. (default: in the first of RUNS: report.html, "
            "report.md, cards, or records.json and records.csv)"
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="html: one page that needs nothing else; md: the same tables for a repository; cards: a model card a "
            "model; records: all records as JSON and CSV. (default: as the name in --out ends, otherwise html)",
        ),
    ] = None,
) -> None:
    """Write the report: a short answer, every table and figure of the paper beside ours, methods, all records."""
    from triune.errors import TriuneError
    from triune.report.page import KINDS, write_report

    ends = {"html": (".html", ".htm"), "md": (".md", ".markdown")}
    if kind is None:
        kind = "md" if out is not None and out.suffix.lower() in ends["md"] else "html"
    if kind not in KINDS:
        raise TriuneError(f"--format is {', '.join(KINDS)}, not '{kind}'")
    endings = ends.get(kind, ())
    if out is not None and endings and out.suffix.lower() not in ("", *endings):
        raise TriuneError(
            f"--out '{out}' would hold {kind}: give a name that ends in {endings[0]}, or another --format"
        )
    print(f"written: {write_report(runs, out or runs[0] / KINDS[kind], kind)}")


def records(
    results: Annotated[Path, typer.Argument(help="Folder with results, of `triune reproduce` or of any study.")],
    folder: Annotated[Path, typer.Argument(help="Folder for the copies; those that are there already are compared.")],
) -> None:
    """Copy the records of a results folder, without weights and paths: to publish them, or to go on elsewhere."""
    from triune.studies.publish import publish

    print(f"{len(publish(results, folder))} new records in {folder}")
