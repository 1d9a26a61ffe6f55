"""The report as one page of HTML that needs nothing else, as Markdown, or as model cards."""

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from triune.errors import TriuneError
from triune.files import write_text
from triune.report import planned
from triune.report.answer import QUESTION, headline, statements
from triune.report.colours import palette
from triune.report.conditions import ONE_MODEL
from triune.report.embedded import as_script, figures_csv, slim_records, write_records
from triune.report.gather import Gathered, gather
from triune.report.methods import method_tables
from triune.report.sections import sections
from triune.report.tables import Table, markdown_text
from triune.version import __version__

TEMPLATE = Path(__file__).parent / "template"
KINDS = {"html": "report.html", "md": "report.md", "cards": "cards", "records": "."}  # and what they are called
TITLES = {
    "parameters": "Parameters",
    "rates": "Search of learning rates",
    "pretraining": "Pre-training",
    "finetuning": "Fine-tuning",
    "noise": "Noise",
    "transfer": "Cross-task",
    "time": "Training time",
    "inspect": "Looking inside",
    "ablations": "Ablations",
    "variants": "Runs of the ablations",
    planned.STUDY: "What was planned",
}


def write_report(roots: list[Path], out: Path, kind: str = "html", found: Gathered | None = None) -> Path:
    """Write the report of all records under `roots`; gives the file, or for cards and records the folder.

    `found` spares gathering and testing them again where they are at hand (`gather(roots)`).
    """
    if kind not in KINDS:
        raise TriuneError(f"unknown format '{kind}': a report is {', '.join(KINDS)}")
    found = gather(roots) if found is None else found
    if kind == "records":
        return write_records(found, out)
    if kind == "cards":
        from triune.report.cards import write_cards

        return write_cards(found, out)
    write_text(out, html_page(found) if kind == "html" else markdown_page(found))
    return out


@dataclass
class Cell:
    text: Markup
    records: list[int]


def html_page(found: Gathered) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    records = slim_records(found)
    numbers = {record["file"]: number for number, record in enumerate(records)}
    style, script = _style(found), (TEMPLATE / "page.js").read_text(encoding="utf-8")
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = prose
    environment.globals["cells"] = lambda table, row: _cells(table, row, numbers)
    return environment.get_template("page.html.j2").render(
        question=QUESTION,
        headline=headline(found),
        statements=statements(found),
        sections=sections(found),
        methods=method_tables(found),
        models=list(found.models),
        groups=_groups(found),
        notes=found.notes,
        records=Markup(as_script(records)),
        figures=Markup(as_script(figures_csv(found))),
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        pocket=found.pocket,
        one_model=ONE_MODEL,
        version=__version__,
    )


def markdown_page(found: Gathered) -> str:
    """The same tables for a repository; charts are left to the page."""
    lines = [f"# {QUESTION}", "", f"**{markdown_text(headline(found))}**", ""]
    lines += [f"- **{markdown_text(one.topic)}**: {markdown_text(one.text)}" for one in statements(found)]
    for section in sections(found):
        lines += ["", f"## {section.title}", "", markdown_text(section.about)]
        if section.empty:
            lines += ["", f"No records. Make them with `{section.make_with}`."]
            continue
        for table in [*section.tables, *([section.conditions] if section.conditions else []), *section.folded]:
            lines += ["", table.to_markdown().rstrip("\n")]
        lines += [line for note in [*section.notes, *section.remarks] for line in ("", markdown_text(note))]
    lines += ["", "## Methods"]
    lines += [line for table in method_tables(found) for line in ("", table.to_markdown().rstrip("\n"))]
    return "\n".join(lines) + "\n"


def prose(text: str) -> Markup:
    """Text with `code` in it; a number keeps its percent sign on the same line."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))).replace(" %", "\u00a0%"))


_MARKS = {"▲": ("up", "shown to be better"), "▼": ("down", "shown to be worse"), "†": ("shown", "shown")}


def _cells(table: Table, row: int, numbers: dict[str, int]) -> list[Cell]:
    made = []
    for column, text in enumerate(table.rows[row]):
        marked = escape(text)
        for mark, (name, meaning) in _MARKS.items():
            span = Markup('<span class="mark-{}" title="{}">{}</span>').format(name, meaning, mark)
            marked = Markup(str(marked).replace(mark, str(span)))
        files = table.sources.get((row, column), ()) if text not in ("", "–") else ()
        made.append(Cell(marked, [numbers[file] for file in files if file in numbers]))
    return made


def _groups(found: Gathered) -> list[dict[str, Any]]:
    """The list of records, by study; numbers are those of the embedded copies."""
    groups, number = [], 0
    for study, records in found.studies.items():
        if records:
            entries = [(number + place, record["file"]) for place, record in enumerate(records)]
            groups.append({"title": TITLES[study], "entries": entries})
        number += len(records)
    return groups


def _style(found: Gathered) -> str:
    """The style sheet, and the colours of the models that this page has."""
    colours = [
        f".s{number}{{--c:light-dark({light},{dark})}}" for number, (light, dark) in enumerate(palette(found.models))
    ]
    variant = f".s{len(colours)}{{--c:var(--text)}}"  # none of the models, and alone in its chart
    return "\n".join([(TEMPLATE / "style.css").read_text(encoding="utf-8"), *colours, variant])


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded from anywhere, and no style or script runs but the two of the page itself."""

    def checksum(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; style-src {checksum(style)}; script-src {checksum(script)}; base-uri 'none'; "
        "form-action 'none'"
    )
