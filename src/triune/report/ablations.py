"""The table of ablations and controls."""

from collections.abc import Mapping
from posixpath import normpath
from typing import Any

from triune.evaluation.significance import ALPHA
from triune.report.tables import Table
from triune.report.unigram import unigram_note, unigram_of

_RATE = "optimizer.learning_rate="  # in what a variant sets: its rate is not searched
HARDLY = 0.2  # nats below what word frequencies give


def ablation_tables(record: dict[str, Any], rates: Mapping[str, float] | None = None) -> list[Table]:
    """Variants in the order of their loss, each against the reference, or against what it is to be compared with.

    `rates` are given where they were searched: the learning rate of each run, by its file.
    """
    seeds, names = record["seeds"], {one["name"]: one for one in record["variants"]}
    several = any(one.get("against") for one in record["variants"])
    folder = record.get("file", "").rpartition("/")[0]
    table = Table(
        "Ablations and controls" + (f": {record['list']}" if "list" in record else ""),
        ["variant", "what it is", "parameters", "validation loss", _difference_title(record, several), "p, Holm"],
        text_columns=2,
        notes=[
            f"Masked-LM loss in nats after {record['steps']:,} steps ({record['tokens']:,} tokens), "
            f"{'mean ± standard deviation over ' if len(seeds) > 1 else ''}{len(seeds)} "
            f"{'seeds' if len(seeds) > 1 else 'seed'}; same text, order and masks for all"
            f"{_on_rates(record, rates)}. {unigram_note([record])} So short a "
            "training shows how fast a variant learns, not where it ends.",
            f"p: t test over seeds against {_compared_with(record, several)} (how much is chance is taken from all "
            f"variants together), corrected for all of them; a difference is shown below {ALPHA} (†)."
            if len(seeds) > 1
            else "One seed: no significance can be told.",
        ],
    )
    if rates is not None:
        table.columns.append("learning rate")
    variants = sorted(record["variants"], key=lambda one: one["validation_loss"])
    for number, one in enumerate(variants):
        spread = "" if one["deviation"] is None else f" ± {one['deviation']:.3f}"
        compared = compared_with(record, one)
        difference = one["validation_loss"] - names[compared]["validation_loss"]
        said = f"{difference:+.3f}".replace("-", "−") + (f" ({compared})" if several else "")
        p = one["p_holm"]
        table.rows.append(
            [
                one["name"],
                one["about"],
                f"{one['parameters']:,}",
                f"{one['validation_loss']:.3f}{spread}",
                "" if compared == one["name"] else said,
                "–" if p is None else ("< 0.001" if p < 0.001 else f"{p:.3f}") + (" †" if p < ALPHA else ""),
            ]
        )
        runs = tuple(normpath(f"{folder}/{run}".lstrip("/")) for run in one["runs"])  # some are of pre-training
        if rates is not None:
            had = dict.fromkeys(f"{rates[run]:g}" for run in runs if run in rates)
            table.rows[-1].append(" or ".join(had) or "–")
            table.sources[number, len(table.columns) - 1] = runs
        if record.get("file"):
            table.sources |= {(number, 2): runs, (number, 3): runs}
            table.sources |= {(number, column): (record["file"],) for column in (4, 5)}
    if missing := record.get("missing"):
        table.notes.append(f"Still to run, and not in the table: {', '.join(missing)}.")
    if stuck := learnt_hardly(record):
        table.notes.append(
            f"Less than {HARDLY} nats below what word frequencies give, these have learnt hardly more, "
            f"and their order says nothing: {', '.join(stuck)}."
        )
    return [table]


def learnt_hardly(record: dict[str, Any]) -> list[str]:
    """Variants that know hardly more than how often words occur."""
    ordered = sorted(record["variants"], key=lambda one: one["validation_loss"])
    return [one["name"] for one in ordered if one["validation_loss"] > unigram_of(record) - HARDLY]


def compared_with(record: dict[str, Any], variant: dict[str, Any]) -> str:
    """The variant that another is tested against; the reference is compared with none but itself."""
    return str(variant.get("against") or record["reference"])


def _on_rates(record: dict[str, Any], rates: Mapping[str, float] | None) -> str:
    if rates is None:
        return ""
    own = [one["name"] for one in record["variants"] if any(_RATE in override for override in one.get("set", ()))]
    return ", learning rates chosen from the same grid" + (f" (but not of {', '.join(own)})" if own else "")


def _difference_title(record: dict[str, Any], several: bool) -> str:
    return "difference (from)" if several else f"− {record['reference']}"


def _compared_with(record: dict[str, Any], several: bool) -> str:
    return "the variant in brackets" if several else str(record["reference"])
