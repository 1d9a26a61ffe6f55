"""What the records of pre-training say of the two models: where they ended, and how soon the better one was there."""

from statistics import mean
from typing import Any

from triune.report.gather import Gathered
from triune.report.pretraining import unlike
from triune.report.statement import UNTESTED, Statement, model_pair, statement

Record = dict[str, Any]


def loss_statement(found: Gathered) -> Statement:
    """Validation loss after pre-training; seeds that both have are paired."""
    pair = model_pair(found)
    runs = found["pretraining"]
    of_pair = [{run["seed"]: run for run in runs if run["label"] == label} for label in pair or ()]
    if pair is None or not all(of_pair):
        return statement(
            "Pre-training loss",
            [],
            "figure-2",
            "triune pretrain RECIPE --data BLOCKS --out RUN",
            models=[run["label"] for run in runs],
        )
    seeds = sorted(of_pair[0].keys() & of_pair[1].keys())
    # Seeds that one of them lacks would be in one mean and not in the other.
    a, b = (mean(its[seed]["validation_loss"] for seed in seeds or its) for its in of_pair)
    difference = f"{'+' if b >= a else '−'}{abs(b - a):.3f}"
    said = f"Validation loss {b:.3f} nats with {pair[1]}, {a:.3f} with {pair[0]} ({difference})"
    rounds = [(of_pair[0][seed], of_pair[1][seed]) for seed in seeds]
    how = unlike([run for both in rounds for run in both] or [run for its in of_pair for run in its.values()])
    sooner = f" The two are {how}." if how else _sooner(pair, rounds)
    if len(seeds) > 1:
        tested = "not tested yet" if found.waits_for else "tested above"
        return Statement(
            "Pre-training loss", f"{said}, means of {len(seeds)} seeds; {tested}.{sooner}", "figure-2", "fact"
        )
    what = "One pre-training run of each"
    if max(map(len, of_pair)) > 1:
        what = f"Of seed {seeds[0]}, the only one of both" if seeds else "Means of different seeds"
    return Statement("Pre-training loss", f"{said}. {what}: no significance can be told.{sooner}", "figure-2", UNTESTED)


def _sooner(pair: tuple[str, str], rounds: list[tuple[Record, Record]]) -> str:
    """How much of its tokens the better one needed for the loss that the other one ended with.

    Said where one is better in every round: a faster step has that much to win back.
    """
    ahead = {int(b["validation_loss"] < a["validation_loss"]) for a, b in rounds}
    if len(ahead) != 1:
        return ""
    (better,) = ahead
    shares = []
    for one in rounds:
        end = one[1 - better]["validation_loss"]
        losses = ((row["tokens"], row.get("validation_loss")) for row in one[better]["metrics"])
        reached = (tokens for tokens, loss in losses if loss is not None and loss <= end)
        shares.append(round(100 * next(reached, one[better]["tokens"]) / one[better]["tokens"]))
    low, high = min(shares), max(shares)
    if low == 100:
        return ""
    share = f"{low} %" if low == high else f"{low} to {high} %"
    return f" After {share} of its tokens {pair[better]} had reached the loss at which {pair[1 - better]} ended."
