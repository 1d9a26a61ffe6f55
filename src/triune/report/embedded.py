"""Records as the page carries them, and all measured figures as a table in CSV."""

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from triune.report.gather import Gathered

Record = dict[str, Any]

LONGEST = 40  # lists of more values are left in their files
COLUMNS = ["study", "file", "model", "operator", "task", "seed", "what", "at", "value"]


def slim_records(found: Gathered) -> list[Record]:
    """Copies of all records: long lists left out with a word where they are, and no path above the results."""
    return [{key: _slim(value, record["file"]) for key, value in record.items()} for record in _without_roots(found)]


def as_script(value: Any) -> str:
    """JSON that can stand inside <script>: nothing in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def figures_csv(found: Gathered) -> str:
    """One line for each figure that was measured."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in found.all():
        about = [
            record["study"],
            record["file"],
            record.get("label") or (record["model"] if isinstance(record.get("model"), str) else ""),
            record.get("operator", ""),
            record.get("task") or record.get("source") or "",
            record.get("seed", ""),
        ]
        for what, at, value, *other in _figures(record):
            line = [*about[:2], *other, *about[4:]] if other else about
            writer.writerow([_cell(one) for one in [*line, what, at, value]])
    return out.getvalue()


def write_records(found: Gathered, folder: Path) -> Path:
    """`records.json` with every record, whole but for paths above the results, and `records.csv`."""
    from triune.files import write_text

    write_text(folder / "records.json", json.dumps({"records": _without_roots(found)}, ensure_ascii=False) + "\n")
    write_text(folder / "records.csv", figures_csv(found))
    return folder


def _without_roots(found: Gathered) -> list[Record]:
    roots = sorted({str(one) for root in found.roots for one in (root, root.resolve())}, key=len, reverse=True)
    return [{key: _shorten(value, roots) for key, value in record.items() if key != "folder"} for record in found.all()]


def _shorten(value: Any, roots: Sequence[str]) -> Any:
    if isinstance(value, dict):
        return {key: _shorten(inner, roots) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shorten(inner, roots) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number, and a browser would refuse the whole
    if isinstance(value, str):
        for root in roots:
            if value.startswith(f"{root}/"):
                return value[len(root) + 1 :]
    return value


def _slim(value: Any, file: str) -> Any:
    if isinstance(value, dict):
        return {key: _slim(inner, file) for key, inner in value.items()}
    if isinstance(value, list):
        if len(value) > LONGEST:
            return f"… {len(value):,} values, in {file}"
        return [_slim(inner, file) for inner in value]
    return value


def _figures(record: Record) -> Iterator[tuple[Any, ...]]:
    """(what, at, value), with (model, operator) behind it where one record holds several models."""
    study = record["study"]
    if study in ("pretraining", "variants"):
        for name in ("parameters", "tokens", "train_loss", "validation_loss", "unigram_entropy", "seconds"):
            yield name, "", record[name]
    elif study == "rates":
        yield "validation_loss", f"rate {record['learning_rate']:g}", record.get("validation_loss", "diverged")
    elif study == "finetuning":
        yield from ((name, "dev", value) for name, value in record["scores"].items())
        for split, scores in record.get("more_scores", {}).items():
            yield from ((name, split, value) for name, value in scores.items())
    elif study == "noise":
        for kind, curve in record["curves"].items():
            for point in curve:
                yield from ((kind, point["level"], score) for score in point["scores"])
        yield from ((f"area under {kind}", "", value) for kind, value in record["area"].items())
    elif study == "transfer":
        yield from (("accuracy", f"{one['target']} {one['split']}", one["score"]) for one in record["targets"])
    elif study == "time":
        for one in record["contestants"]:
            yield from (
                ("seconds", number, value, one["model"], one["operator"]) for number, value in enumerate(one["seconds"])
            )
            yield "flop_ratio", "", one["flop_ratio"], one["model"], one["operator"]
    elif study == "inspect":
        for layer in record["layers"]:
            yield "score_symmetry", f"layer {layer['layer']}", layer["score_symmetry"]
            for head in layer["heads"]:
                place = f"layer {layer['layer']} head {head['head']}"
                yield from ((name, place, head[name]) for name in ("own", "entropy", "negative_share"))
    elif study == "parameters":
        for name, row in record["operators"].items():
            yield from (("parameters", head, count["parameters"], name, name) for head, count in row["model"].items())
    elif study == "ablations":
        for one in record["variants"]:
            yield "validation_loss", "mean over seeds", one["validation_loss"], one["name"], one["operator"]


def _cell(value: Any) -> Any:
    """A spreadsheet would take text that begins so for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
