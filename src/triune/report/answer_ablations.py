"""What the short answer says of the ablations and controls."""

from collections.abc import Sequence
from typing import Any

from triune.evaluation.significance import ALPHA
from triune.report.ablations import compared_with, learnt_hardly
from triune.report.gather import Gathered
from triune.report.statement import Statement, statement

Record = dict[str, Any]


def ablations_statement(found: Gathered) -> Statement:
    said = []
    for record in found["ablations"]:
        ordered = sorted(record["variants"], key=lambda one: one["validation_loss"])
        others = [one for one in ordered if one["name"] != record["reference"]]
        best, worst = ordered[0]["name"], ordered[-1]["name"]
        of = f" of '{record['list']}'" if "list" in record else ""
        if any(one["p_holm"] is None for one in others):
            text = (
                f"Of {len(ordered)} variants{of} {best} has the lowest validation loss, {worst} the highest; with one "
                "seed no significance can be told."
            )
        elif differ := _that_differ(record, others):
            named = "; ".join(f"{how}: {', '.join(names)}" for how, names in differ.items())
            text = (
                f"Of {len(ordered)} variants{of} {best} has the lowest validation loss, {worst} the highest; shown to "
                f"be {named}."
            )
        else:
            compared = dict.fromkeys(compared_with(record, one) for one in others)
            what = "what it is compared with" if len(compared) > 1 else record["reference"]
            text = f"None of {len(others)} variants{of} is shown to differ from {what}."
        if count := len(record.get("missing") or ()):
            text += f" {count} {'is' if count == 1 else 'are'} still to run."
        if stuck := len(learnt_hardly(record)):
            text += f" {stuck} of them learnt hardly more than how often words occur: the order of these says nothing."
        said.append(text)
    return statement("Ablations", said, "ablations", "triune ablate RECIPE --data BLOCKS --out OUT", "fact")


def _that_differ(record: Record, variants: Sequence[Record]) -> dict[str, list[str]]:
    """Variants by what they are shown to be: below or above which other one."""
    losses = {one["name"]: one["validation_loss"] for one in record["variants"]}
    differ: dict[str, list[str]] = {}
    for one in variants:
        if one["p_holm"] < ALPHA:
            other = compared_with(record, one)
            where = "below" if one["validation_loss"] < losses[other] else "above"
            differ.setdefault(f"{where} {other}", []).append(one["name"])
    return differ
