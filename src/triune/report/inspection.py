"""Tables of what `triune inspect` found."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from triune.operators import names
from triune.report.tables import Table

Record = dict[str, Any]
ROLES = {"query": "dq", "key": "dk", "value": "dv"}

_COLUMNS = [
    "model",
    "layer",
    "c repels",
    *(f"{vector} moved" for vector in ROLES.values()),
    *(f"{vector} turned" for vector in ROLES.values()),
    "own token",
    "entropy",
    "heads alike",
    "symmetry",
]
_NOTES = (
    "c repels: share of the entries of c = dq∘dk below zero: along these, tokens that are alike look away from each "
    "other; along the others, towards each other.",
    "own token: mean attention weight of a token on itself. entropy: how widely tokens look, from 0 (at one token) to "
    "1 (at all of them evenly). heads alike: mean cosine between attention rows of two heads of a layer, from 0 (they "
    "look at different tokens) to 1 (at the same).",
    "symmetry: share of the squared norm of the form behind the scores that is the same from A to B as from B to A: 1 "
    "where scores are symmetric, about 0.5 for independent random projections. Rotary positions are left out of it.",
)
_EQUAL, _EQUAL_NOTE = (
    "equal token",
    "equal token: mean attention weight of a token that a text has twice or more on the others like it",
)
_MOVED_NOTE = (
    "moved: root mean square distance of a role vector's entries from where they started. turned: share of them that "
    "changed sign."
)
_START_NOTES = {
    "exact": "The start was made again from the seed of the pre-training run",
    "nominal": "The start is the one that the settings name (where signs were drawn at random, sizes only)",
    None: "The start is not known",
}


def inspect_tables(records: Sequence[Record]) -> list[Table]:
    """A line for each model and layer; layers are counted from 0, as in the records."""
    ordered = in_order(records)
    table = Table("Inside the models", list(_COLUMNS), notes=[_NOTES[0], _MOVED_NOTE, *_NOTES[1:]], text_columns=2)
    tells_equal = _tells_equal(ordered)
    if tells_equal:
        table.columns.append(_EQUAL)
        table.notes.append(f"{_EQUAL_NOTE}; of the head of a layer that looks there most.")
    for record in ordered:
        for layer in record["layers"]:
            cells = [record["model"], str(layer["layer"]), *_layer_cells(layer)]
            if tells_equal:
                cells.append(_percent(max((one for head in layer["heads"] if (one := _equal(head))), default=None)))
            _add_row(table, record, cells, text=2)
    table.notes += [*_start_notes(ordered), *_text_notes(ordered)]
    return [table]


def head_table(records: Sequence[Record]) -> Table:
    """A line for each head."""
    table = Table(
        "Inside the models, by head",
        ["model", "layer", "head", "c repels", "own token", "entropy", "nearest head", "its likeness"],
        text_columns=3,
        notes=["nearest head: the head of the same layer whose attention rows are most alike, and their mean cosine."],
    )
    tells_equal = _tells_equal(records)
    if tells_equal:
        table.columns.append(_EQUAL)
        table.notes.append(f"{_EQUAL_NOTE}.")
    for record in in_order(records):
        for layer in record["layers"]:
            for head in layer["heads"]:
                others = {
                    number: likeness
                    for number, likeness in enumerate(layer["head_similarity"][head["head"]])
                    if number != head["head"]
                }
                nearest = max(others, key=others.__getitem__, default=None)
                cells = [
                    record["model"],
                    str(layer["layer"]),
                    str(head["head"]),
                    _percent(head["negative_share"]),
                    _percent(head["own"]),
                    _number(head["entropy"]),
                    "–" if nearest is None else str(nearest),
                    _number(None if nearest is None else others[nearest]),
                    *([_percent(_equal(head))] if tells_equal else []),
                ]
                _add_row(table, record, cells, text=3)
    return table


def in_order(records: Sequence[Record]) -> list[Record]:
    """Models that are called by an operator in the order of operators, the others after them as they came."""
    known = names()
    return sorted(records, key=lambda one: known.index(one["model"]) if one["model"] in known else len(known))


def mean_likeness(layer: Record) -> float | None:
    """Over all pairs of heads of a layer."""
    rows = layer["head_similarity"]
    pairs = [rows[one][other] for one in range(len(rows)) for other in range(one)]
    return mean(pairs) if pairs else None


def _tells_equal(records: Sequence[Record]) -> bool:
    """Older records do not, nor those of texts in which no token stands twice."""
    return any(_equal(head) is not None for one in records for layer in one["layers"] for head in layer["heads"])


def _equal(head: Record) -> float | None:
    share: float | None = head.get("equal")
    return share


def _layer_cells(layer: Record) -> list[str]:
    scale, distance, changes = layer["score_scale"], layer["distance"] or {}, layer["sign_changes"] or {}
    return [
        _percent(scale and scale["negative_share"]),
        *(_number(distance.get(role), 3) for role in ROLES),
        *(_percent(changes.get(role)) for role in ROLES),
        _percent(mean(head["own"] for head in layer["heads"])),
        _number(mean(head["entropy"] for head in layer["heads"])),
        _number(mean_likeness(layer)),
        _number(layer["score_symmetry"]),
    ]


def _add_row(table: Table, record: Record, cells: list[str], text: int) -> None:
    if file := record.get("file"):
        table.sources |= {(len(table.rows), column): (file,) for column in range(text, len(cells))}
    table.rows.append(cells)


def _start_notes(records: list[Record]) -> list[str]:
    notes = []
    for kind, said in _START_NOTES.items():
        models = [one["model"] for one in records if one["start"] == kind and _has_role_vectors(one)]
        if models:
            notes.append(f"{said}: {', '.join(models)}.")
    return notes


def _has_role_vectors(record: Record) -> bool:
    return any(layer["score_scale"] or layer["distance"] for layer in record["layers"])


def _text_notes(records: list[Record]) -> list[str]:
    """What was read, once where all the models read the same."""
    read: dict[str, list[str]] = {}
    for record in records:
        cut = f", {record['truncated']} of them cut to the model's length" if record["truncated"] else ""
        many = f"{record['texts']:,} text{'' if record['texts'] == 1 else 's'}"
        said = f"{many}{cut}, {record['tokens']:,} tokens: {record['source']}"
        repeated = record.get("repeated") or {}
        if repeated.get("tokens"):
            even = _percent(repeated["even"])
            said += f"; {repeated['tokens']:,} stand there more than once, and even attention would put {even} on "
            said += "their like"
        read.setdefault(said, []).append(record["model"])
    if len(read) == 1:
        return [f"Attention over {said}." for said in read]
    return [f"Attention of {', '.join(models)} over {said}." for said, models in read.items()]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
