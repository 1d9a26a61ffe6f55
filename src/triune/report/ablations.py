"""The table of ablations and controls."""

from posixpath import normpath
from typing import Any

from triune.evaluation.significance import ALPHA
from triune.report.tables import Table

HARDLY = 0.2  # nats below the unigram entropy


def ablation_tables(record: dict[str, Any]) -> list[Table]:
    """Variants in the order of their loss, against the reference."""
    seeds = record["seeds"]
    folder = record.get("file", "").rpartition("/")[0]
    table = Table(
        "Ablations and controls" + (f": {record['list']}" if "list" in record else ""),
        ["variant", "what it is", "parameters", "validation loss", f"− {record['reference']}", "p, Holm"],
        text_columns=2,
        notes=[
            f"Masked-LM loss in nats after {record['steps']:,} steps ({record['tokens']:,} tokens), "
            f"{'mean ± standard deviation over ' if len(seeds) > 1 else ''}{len(seeds)} "
            f"{'seeds' if len(seeds) > 1 else 'seed'}; same text, order and masks for all. Unigram entropy: "
            f"{record['unigram_entropy']:.3f}. So short a training shows how fast a variant learns, not where it ends.",
            f"p: paired t test over seeds against {record['reference']}, corrected for all variants; a difference is "
            f"shown below {ALPHA} (†)."
            if len(seeds) > 1
            else "One seed: no significance can be told.",
        ],
    )
    variants = sorted(record["variants"], key=lambda one: one["validation_loss"])
    reference = next(one for one in variants if one["name"] == record["reference"])
    for number, one in enumerate(variants):
        spread = "" if one["deviation"] is None else f" ± {one['deviation']:.3f}"
        difference = one["validation_loss"] - reference["validation_loss"]
        p = one["p_holm"]
        table.rows.append(
            [
                one["name"],
                one["about"],
                f"{one['parameters']:,}",
                f"{one['validation_loss']:.3f}{spread}",
                "" if one is reference else f"{difference:+.3f}".replace("-", "−"),
                "–" if p is None else ("< 0.001" if p < 0.001 else f"{p:.3f}") + (" †" if p < ALPHA else ""),
            ]
        )
        if record.get("file"):
            runs = tuple(normpath(f"{folder}/{run}".lstrip("/")) for run in one["runs"])  # some are of pre-training
            table.sources |= {(number, 2): runs, (number, 3): runs}
            table.sources |= {(number, column): (record["file"],) for column in (4, 5)}
    if stuck := [one["name"] for one in variants if one["validation_loss"] > record["unigram_entropy"] - HARDLY]:
        table.notes.append(
            f"Less than {HARDLY} nats below the unigram entropy, these have learnt hardly more than word frequencies, "
            f"and their order says nothing: {', '.join(stuck)}."
        )
    return [table]
