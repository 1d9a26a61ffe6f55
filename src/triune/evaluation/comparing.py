"""From the records of a fine-tuning matrix to paired comparisons between its models."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from triune import operators
from triune.data.examples import ids_sha256
from triune.errors import TriuneError, one_line
from triune.evaluation.grouping import all_known, groups_of
from triune.evaluation.significance import Comparison, Paired, compare_all
from triune.files import write_text
from triune.presence import RECORD

DEV = "dev.json"  # in the folder of a run: its prediction for every development row
SCORES = "scores.json"
REFERENCE = "standard"
SHARED = "shared"
# Operators with one matrix and roles of its own for each use of it: where `shared` itself was not run, the first of
# the others that was stands for shared weights.
ONE_MATRIX = (SHARED, "rolled", "shared-low-rank")
# The comparison that all of this is about is corrected by itself, so that other operators do not cost it power.
SHARED_AGAINST_STANDARD = f"{SHARED} against {REFERENCE}"
OTHERS = "others"

Started = dict[tuple[str, str, int], Any]  # by task, model and seed of a fine-tuning: the pre-trained model


def read_records(out: Path) -> list[dict[str, Any]]:
    """The records of all seeds under a folder, with the folder that each came from."""
    if not out.is_dir():
        what = "is a file" if out.exists() else "does not exist"
        raise TriuneError(f"'{out}' {what}: give the folder that was the --out of `triune finetune`")
    found = []
    for path in sorted(out.glob(f"*/*/seed-*/{RECORD}")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TriuneError(f"cannot read '{path}': {error}") from error
        if isinstance(record, dict) and "diverged" in record:
            continue
        if not isinstance(record, dict) or not {"task", "model", "seed"} <= record.keys():
            raise TriuneError(f"'{path}' is no record of `triune finetune`")
        found.append({**record, "folder": str(path.parent.relative_to(out))})
    if not found:
        raise TriuneError(f"'{out}' holds no records of `triune finetune`")
    order = {name: number for number, name in enumerate(operators.names())}  # as in the paper's tables
    unknown = len(order)
    return sorted(found, key=lambda r: (r["task"], order.get(r["model"], unknown), r["model"], r["seed"]))


def compare_records(out: Path, records: Sequence[dict[str, Any]], reference: str | None = None) -> list[Comparison]:
    """Every other model against the reference on every task, over the seeds that both have, Holm-corrected."""
    models = list(dict.fromkeys(record["model"] for record in records))
    if reference is None:
        reference = REFERENCE if REFERENCE in models else models[0]
    if reference not in models:
        raise TriuneError(f"there is no model '{reference}' to compare with: there are {', '.join(models)}")
    by_cell: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for record in records:
        by_cell.setdefault((record["task"], record["model"]), {})[record["seed"]] = record
    pairs = []
    for task in dict.fromkeys(record["task"] for record in records):
        for model in models:
            ours, theirs = by_cell.get((task, model), {}), by_cell.get((task, reference), {})
            seeds = sorted(ours.keys() & theirs.keys())
            if model != reference and seeds:
                pairs.append(_pair(out, [theirs[seed] for seed in seeds], [ours[seed] for seed in seeds], seeds))
    return compare_all(pairs) if pairs else []


def family_of(*operators_of_pair: str) -> str:
    is_the_question = REFERENCE in operators_of_pair and any(one in ONE_MATRIX for one in operators_of_pair)
    return SHARED_AGAINST_STANDARD if is_the_question else OTHERS


def one_matrix_among(found: Collection[str]) -> str | None:
    """The operator that stands for shared weights."""
    return next((one for one in ONE_MATRIX if one in found), None)


def started_from(finetuned: Sequence[dict[str, Any]]) -> Started:
    """The checksum of the pre-trained model behind each fine-tuning: those of one are no independent runs."""
    return {(one["task"], one["model"], one["seed"]): one.get("model_sha256") for one in finetuned}


def started_beside(studied: Sequence[dict[str, Any]]) -> Started:
    """The same for records of studies of fine-tuned models, from the fine-tunings beside these, if there are any."""
    found: Started = {}
    for one in studied:
        try:
            finetuned = json.loads((Path(one["model_path"]).parent / RECORD).read_text(encoding="utf-8"))
            task = one.get("task") or one["source"]
            found[task, one["model"], one["seed"]] = finetuned["model_sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # moved away, or not from here
    return found


def write_scores(out: Path, records: Sequence[dict[str, Any]], comparisons: Sequence[Comparison]) -> Path:
    kept = [{key: value for key, value in record.items() if key not in ("recipe", "history")} for record in records]
    text = json.dumps({"records": kept, "comparisons": [one.to_dict() for one in comparisons]}, indent=1)
    write_text(out / SCORES, text + "\n")
    return out / SCORES


def _pair(out: Path, reference: list[dict[str, Any]], model: list[dict[str, Any]], seeds: list[int]) -> Paired:
    one = model[0]
    sides = [[_kept(out, record) for record in side] for side in (reference, model)]
    if len({ids_sha256(kept["ids"]) for side in sides for kept in side}) > 1:
        raise TriuneError(f"{one['task_title']}: runs were scored on different development sets and cannot be paired")
    first = sides[0][0]
    if one["kind"] == "span":
        metric, name, labels, scale = "mean", one["metric"], None, 100.0
    else:
        metric, name, labels, scale = one["metric"], "predictions", first["labels"], None
    values = [[[v * scale for v in kept[name]] if scale else kept[name] for kept in side] for side in sides]
    behind = [[record.get("model_sha256") for record in side] for side in (reference, model)]
    return Paired(
        one["task_title"],
        metric,
        reference[0]["model"],
        one["model"],
        values[0],
        values[1],
        labels,
        groups_of(*behind),
        seeds,
        family_of(reference[0]["operator"], one["operator"]),
        known_origin=all_known(*behind),
    )


def _kept(out: Path, record: dict[str, Any]) -> dict[str, Any]:
    path = out / record["folder"] / DEV
    wanted = {"ids", record["metric"]} if record["kind"] == "span" else {"ids", "labels", "predictions"}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(kept, dict) or not wanted <= kept.keys():
            raise ValueError(f"it must hold {', '.join(sorted(wanted))}")
    except (OSError, ValueError) as error:
        what = f"cannot read '{path}': {one_line(error)}"
        raise TriuneError(f"{what}; remove it and run `triune finetune` again to make it") from error
    return kept
