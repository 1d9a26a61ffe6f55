"""The short answer: what the records support, in plain words, and nothing more."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from triune.evaluation.comparing import REFERENCE
from triune.evaluation.significance import ALPHA, Comparison, Paired, seed_test
from triune.report.gather import Gathered, gather

Record = dict[str, Any]

QUESTION = "Does self-attention need separate weights?"
SHARED = "shared"


@dataclass
class Statement:
    topic: str
    text: str
    section: str  # the part of the page that holds the evidence
    leans: str = "none"  # for whom it speaks: standard, shared, both, none; or fact, or missing


@dataclass
class Tally:
    """Comparisons between the two models, by what they show."""

    standard: list[str]
    shared: list[str]
    none: list[str]

    @property
    def count(self) -> int:
        return len(self.standard) + len(self.shared) + len(self.none)

    @property
    def leans(self) -> str:
        if self.standard and self.shared:
            return "both"
        return "standard" if self.standard else "shared" if self.shared else "none"


def short_answer(roots: Sequence[Path], found: Gathered | None = None) -> list[str]:
    """Lines for the end of a run; `found` as for `write_report`."""
    found = gather(roots) if found is None else found
    return [QUESTION, headline(found), *(f"{one.topic}: {one.text}" for one in statements(found))]


def headline(found: Gathered) -> str:
    pair = _pair(found)
    tally = _tally(found.comparisons, pair) if pair else None
    if pair is None or tally is None or not tally.count:
        return "Not answered by these records: they hold no scores of both a standard and a shared model."
    tasks = f"{tally.count} task{'' if tally.count == 1 else 's'}"
    ahead = {name: f"{len(getattr(tally, name))} of {tasks}" for name in ("standard", "shared")}
    if tally.leans == "standard":
        return (
            f"In these runs separate weights are shown to do better on {ahead['standard']} and shared weights on none; "
            f"{_rest(tally)}."
        )
    if tally.leans == "shared":
        return (
            f"In these runs shared weights are shown to do better on {ahead['shared']} and separate weights on none; "
            f"{_rest(tally)}."
        )
    if tally.leans == "both":
        return (
            f"In these runs it depends on the task: separate weights are shown to do better on {ahead['standard']}, "
            f"shared weights on {len(tally.shared)}; {_rest(tally)}."
        )
    return (
        f"Undecided in these runs: on none of {tasks} is a difference between separate and shared weights shown. That "
        "does not make them equal."
    )


def statements(found: Gathered) -> list[Statement]:
    return [
        _what_was_run(found),
        _parameters(found),
        _loss(found),
        _tasks(found),
        _noise(found),
        _transfer(found),
        _time(found),
        _ablations(found),
    ]


def _pair(found: Gathered) -> tuple[str, str] | None:
    """The labels of the two models that the question is about."""
    first = {operator: label for label, operator in reversed(found.models.items())}
    return (first[REFERENCE], first[SHARED]) if {REFERENCE, SHARED} <= first.keys() else None


def _tally(comparisons: Sequence[Comparison], pair: tuple[str, str]) -> Tally:
    tally = Tally([], [], [])
    for one in comparisons:
        if {one.a, one.b} == set(pair):
            which = tally.none if one.better is None else tally.standard if one.better == pair[0] else tally.shared
            which.append(one.task)
    return tally


def _rest(tally: Tally) -> str:
    count = len(tally.none)
    return f"on the other {count} no difference is shown" if count else "none is left undecided"


def _what_was_run(found: Gathered) -> Statement:
    runs = found["pretraining"]
    sizes = dict.fromkeys(
        f"{one['recipe']['model']['layers']} layers × {one['recipe']['model']['width']}, {one['tokens']:,} tokens of "
        "pre-training"
        for one in runs
    )
    said = "; ".join(sizes) if sizes else "No pre-training runs are among the records"
    if found.pocket:
        said += ". The data are a small made-up world (the pocket benchmark): nothing follows for real text"
    elif any(one["subset"] for one in found["finetuning"]):
        said += ". Some tasks are subsets of the official data"
    return Statement("What was run", f"{said}.", "methods", "fact" if runs else "missing")


def _parameters(found: Gathered) -> Statement:
    said = []
    for study in found["parameters"]:
        rows, head = study["operators"], "masked-lm"
        if {REFERENCE, SHARED} <= rows.keys() and head in rows[SHARED]["model"]:
            ours, theirs = (rows[name]["model"][head]["parameters"] for name in (SHARED, REFERENCE))
            said.append(
                f"Shared attention saves {rows[SHARED]['saved']['model'][head]:.2f} % of a model of "
                f"{study['model']['layers']} layers × {study['model']['width']}, like with like ({ours:,} instead of "
                f"{theirs:,}, both with a masked-LM head), and "
                f"{rows[SHARED]['saved']['attention_without_biases']:.2f} % of the weights that make queries, keys and "
                "values."
            )
    pair = _pair(found)
    counts = {run["label"]: run["parameters"] for run in found["pretraining"]}
    if pair and set(pair) <= counts.keys():
        a, b = (counts[label] for label in pair)
        said.append(f"The models of these runs: {b:,} instead of {a:,} ({100 * (1 - b / a):.2f} % less).")
    return _statement("Parameters", said, "table-4", "triune params --json", "shared")


def _loss(found: Gathered) -> Statement:
    """Validation loss after pre-training; seeds that both have are paired."""
    pair = _pair(found)
    runs = found["pretraining"]
    losses = [{run["seed"]: run["validation_loss"] for run in runs if run["label"] == label} for label in pair or ()]
    if pair is None or not all(losses):
        return _statement("Pre-training loss", [], "figure-2", "triune pretrain RECIPE --data BLOCKS --out RUN")
    a, b = (mean(one.values()) for one in losses)
    difference = f"{'+' if b > a else '−'}{abs(b - a):.3f}"
    said = f"Validation loss {b:.3f} nats with {pair[1]}, {a:.3f} with {pair[0]} ({difference})."
    seeds = sorted(losses[0].keys() & losses[1].keys())
    if len(seeds) < 2:
        return Statement(
            "Pre-training loss", f"{said} One pre-training run of each: no significance can be told.", "figure-2"
        )
    sides = [[[one[seed]] for seed in seeds] for one in losses]
    p = seed_test(Paired("validation loss", "mean", pair[0], pair[1], sides[0], sides[1])).p
    shown = p is not None and p < ALPHA
    verdict = "the difference is shown" if shown else "no difference is shown"
    leans = "none" if not shown else "standard" if a < b else "shared"
    return Statement(
        "Pre-training loss",
        f"{said} Over {len(seeds)} seeds {verdict} (paired t test, p {_p(p)}).",
        "figure-2",
        leans,
    )


def _tasks(found: Gathered) -> Statement:
    pair = _pair(found)
    tally = _tally(found.comparisons, pair) if pair else Tally([], [], [])
    if pair is None or not tally.count:
        return _statement("Tasks", [], "table-1", "triune finetune MODEL... --task glue --seeds 3 --out OUT")
    seeds = min(one.seeds for one in found.comparisons if {one.a, one.b} == set(pair))
    text = (
        f"{_counted(tally, pair)} Tested over examples and over {seeds} fine-tuning seed{'' if seeds == 1 else 's'}, "
        f"corrected for all {len(found.comparisons)} comparisons (Holm)."
    )
    if seeds < 2:
        text += " With one seed nothing is said about the noise of training."
    if all(_checkpoints(found, label) == 1 for label in pair):
        text += " Each was pre-trained once: this is about these two pre-trained models, not yet about the two kinds."
    return Statement("Tasks", text, "table-1", tally.leans)


def _checkpoints(found: Gathered, label: str) -> int:
    return len({one.get("model_sha256") for one in found["finetuning"] if one["model"] == label})


def _noise(found: Gathered) -> Statement:
    pair = _pair(found)
    tally = _tally(found.noise_comparisons, pair) if pair else Tally([], [], [])
    if pair is None or not tally.count:
        return _statement("Noise", [], "table-5", "triune noise MODEL --task TASK --out OUT")
    a, b = pair
    text = f"What is lost under noise was compared for {tally.count} pairs of a task and a kind of noise: "
    if tally.leans == "none":
        text += f"for none is a difference between {a} and {b} shown."
    else:
        text += f"{b} is shown to lose less in {_some(tally.shared)}, {a} in {_some(tally.standard)}; {_rest(tally)}."
    return Statement("Noise", text, "table-5", tally.leans)


def _transfer(found: Gathered) -> Statement:
    pair = _pair(found)
    at_home = {
        f"{record['source_title']} → {target['title']}"
        for record in found["transfer"]
        for target in record["targets"]
        if target["own_task"] or target["out_of_domain"]
    }
    others = [one for one in found.transfer_comparisons if one.task not in at_home]
    tally = _tally(others, pair) if pair else Tally([], [], [])
    if pair is None or not tally.count:
        return _statement("Other tasks", [], "table-6", "triune transfer MODEL... --out OUT")
    text = f"Trained on one task, tested on another. {_counted(tally, pair, 'cells')}"
    return Statement("Other tasks", text, "table-6", tally.leans)


def _time(found: Gathered) -> Statement:
    saved, bound, beyond = [], [], 0
    for record in found["time"]:
        for one in record["contestants"]:
            if one["operator"] == SHARED and record["reference"] == REFERENCE:
                saved.append(100 * (1 - one["ratio"]))
                bound.append(100 * (1 - one["flop_ratio"]))
                beyond += saved[-1] > bound[-1]
    if not saved:
        return _statement("Training time", [], "figure-3", "triune time --task cola,mnli,mrpc,qnli,rte,qqp --out OUT")
    text = (
        f"An epoch with shared attention is {_range(saved)} shorter than with standard (medians, {len(saved)} "
        f"task{'' if len(saved) == 1 else 's'}{'; below 0 is longer' if min(saved) < 0 else ''}); its arithmetic is "
        f"{_range(bound)} less."
    )
    if beyond:
        text += f" On {beyond} the saving is more than arithmetic gives: the excess is overhead or noise."
    return Statement("Training time", text, "figure-3", "fact")


def _ablations(found: Gathered) -> Statement:
    said = []
    for record in found["ablations"]:
        ordered = sorted(record["variants"], key=lambda one: one["validation_loss"])
        others = [one for one in ordered if one["name"] != record["reference"]]
        best, worst = ordered[0]["name"], ordered[-1]["name"]
        if any(one["p_holm"] is None for one in others):
            text = (
                f"Of {len(ordered)} variants {best} has the lowest validation loss, {worst} the highest; with one seed "
                "no significance can be told."
            )
        elif differ := [one["name"] for one in others if one["p_holm"] < ALPHA]:
            text = (
                f"Of {len(ordered)} variants {best} has the lowest validation loss, {worst} the highest; shown to "
                f"differ from {record['reference']}: {', '.join(differ)}."
            )
        else:
            text = f"None of {len(others)} variants is shown to differ from {record['reference']}."
        said.append(text)
    return _statement("Ablations", said, "ablations", "triune ablate RECIPE --data BLOCKS --out OUT", "fact")


def _statement(topic: str, said: Sequence[str], section: str, command: str, leans: str = "none") -> Statement:
    if said:
        return Statement(topic, " ".join(said), section, leans)
    return Statement(topic, f"No records. `{command}` makes them.", section, "missing")


def _counted(tally: Tally, pair: tuple[str, str], what: str = "tasks") -> str:
    if tally.leans == "none":
        return f"On none of {tally.count} {what} is a difference between {pair[0]} and {pair[1]} shown."
    return (
        f"Of {tally.count} {what}, {pair[0]} is shown to be better on {_some(tally.standard)}, {pair[1]} on "
        f"{_some(tally.shared)}; {_rest(tally)}."
    )


def _some(names: list[str]) -> str:
    """A number, and which they are where they are few."""
    return f"{len(names)} ({', '.join(names)})" if 0 < len(names) <= 4 else str(len(names) or "none")


def _range(values: Sequence[float]) -> str:
    low, high = (f"{one:.1f}".replace("-", "−") for one in (min(values), max(values)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"
