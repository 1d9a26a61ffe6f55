"""The short answer: what the records support, in plain words, and nothing more."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from triune.evaluation.comparing import REFERENCE
from triune.evaluation.significance import ALPHA, Comparison, Paired, seed_test
from triune.report.answer_ablations import ablations_statement
from triune.report.answer_primary import primary_statement
from triune.report.answer_time import time_statement
from triune.report.gather import Gathered, gather
from triune.report.scores import signed
from triune.report.statement import (
    SHARED,
    Statement,
    Tally,
    counted,
    model_pair,
    p_value,
    rest,
    some,
    statement,
    tally_of,
)

Record = dict[str, Any]

QUESTION = "Does self-attention need separate weights?"


def short_answer(roots: Sequence[Path], found: Gathered | None = None) -> list[str]:
    """Lines for the end of a run; `found` as for `write_report`."""
    found = gather(roots) if found is None else found
    return [QUESTION, headline(found), *(f"{one.topic}: {one.text}" for one in statements(found))]


def headline(found: Gathered) -> str:
    pair = model_pair(found)
    tally = tally_of(found.comparisons, pair) if pair else None
    if pair is None or tally is None or not tally.count:
        return "Not answered by these records: they hold no scores of both a standard and a shared model."
    tasks = f"{tally.count} task{'' if tally.count == 1 else 's'}"
    ahead = {name: f"{len(getattr(tally, name))} of {tasks}" for name in ("standard", "shared")}
    if tally.leans == "standard":
        return (
            f"In these runs separate weights are shown to do better on {ahead['standard']} and shared weights on none; "
            f"{rest(tally)}."
        )
    if tally.leans == "shared":
        return (
            f"In these runs shared weights are shown to do better on {ahead['shared']} and separate weights on none; "
            f"{rest(tally)}."
        )
    if tally.leans == "both":
        return (
            f"In these runs it depends on the task: separate weights are shown to do better on {ahead['standard']}, "
            f"shared weights on {len(tally.shared)}; {rest(tally)}."
        )
    return (
        f"Undecided in these runs: on none of {tasks} is a difference between separate and shared weights shown. That "
        "does not make them equal."
    )


def statements(found: Gathered) -> list[Statement]:
    primary = primary_statement(found)
    return [
        _what_was_run(found),
        *([primary] if primary else []),
        _parameters(found),
        _loss(found),
        _tasks(found),
        _noise(found),
        _transfer(found),
        time_statement(found),
        ablations_statement(found),
    ]


def _what_was_run(found: Gathered) -> Statement:
    runs = found["pretraining"]
    sizes = dict.fromkeys(
        f"{one['recipe']['model']['layers']} layers × {one['recipe']['model']['width']}, {one['tokens']:,} tokens of "
        "pre-training"
        for one in runs
    )
    said = "; ".join(sizes) if sizes else "No pre-training runs are among the records"
    if found.pocket:
        said += (
            ". The data are a small made-up world (the pocket benchmark): nothing follows for real text. "
            "Scores of models of this size can move by 10 to 20 points when the same pre-training is only rounded "
            "otherwise (docs/pocket.md)"
        )
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
    pair = model_pair(found)
    counts = {run["label"]: run["parameters"] for run in found["pretraining"]}
    if pair and set(pair) <= counts.keys():
        a, b = (counts[label] for label in pair)
        said.append(f"The models of these runs: {b:,} instead of {a:,} ({100 * (1 - b / a):.2f} % less).")
    return statement("Parameters", said, "table-4", "triune params --json", "fact")


def _loss(found: Gathered) -> Statement:
    """Validation loss after pre-training; seeds that both have are paired."""
    pair = model_pair(found)
    runs = found["pretraining"]
    losses = [{run["seed"]: run["validation_loss"] for run in runs if run["label"] == label} for label in pair or ()]
    if pair is None or not all(losses):
        return statement(
            "Pre-training loss",
            [],
            "figure-2",
            "triune pretrain RECIPE --data BLOCKS --out RUN",
            models=[run["label"] for run in runs],
        )
    seeds = sorted(losses[0].keys() & losses[1].keys())
    # Seeds that one of them lacks would be in one mean and not in the other.
    a, b = (mean(one[seed] for seed in seeds) if seeds else mean(one.values()) for one in losses)
    difference = f"{'+' if b > a else '−'}{abs(b - a):.3f}"
    said = f"Validation loss {b:.3f} nats with {pair[1]}, {a:.3f} with {pair[0]} ({difference})."
    if len(seeds) < 2:
        what = "One pre-training run of each"
        if max(map(len, losses)) > 1:
            what = f"Of seed {seeds[0]}, the only one of both" if seeds else "Means of different seeds"
        return Statement("Pre-training loss", f"{said} {what}: no significance can be told.", "figure-2")
    sides = [[[one[seed]] for seed in seeds] for one in losses]
    p = seed_test(Paired("validation loss", "mean", pair[0], pair[1], sides[0], sides[1])).p
    shown = p is not None and p < ALPHA
    verdict = "the difference is shown" if shown else "no difference is shown"
    leans = "none" if not shown else "standard" if a < b else "shared"
    return Statement(
        "Pre-training loss",
        f"{said} Over {len(seeds)} seeds {verdict} (paired t test, p {p_value(p)}).",
        "figure-2",
        leans,
    )


def _tasks(found: Gathered) -> Statement:
    pair = model_pair(found)
    tally = tally_of(found.comparisons, pair) if pair else Tally([], [], [])
    if pair is None or not tally.count:
        return statement(
            "Tasks",
            [],
            "table-1",
            "triune finetune MODEL... --task glue --seeds 3 --out OUT",
            models=_models(found, "finetuning"),
        )
    tested = [one for one in found.comparisons if {one.a, one.b} == set(pair)]
    seeds, pretrainings = min(one.seeds for one in tested), max(one.pretrainings for one in tested)
    over = f"{seeds} fine-tuning seed{'' if seeds == 1 else 's'}"
    if pretrainings > 1:
        over = f"{_span(one.pretrainings for one in tested)} pre-trainings "
        over += f"({_span(one.seeds for one in tested)} fine-tunings)"
    text = (
        f"{counted(tally, pair)} Tested over examples and over {over}, "
        f"corrected for all {len(found.comparisons)} comparisons (Holm)."
    )
    text += f" {_largest(tested, pair)}"
    if pretrainings > 1:
        text += f" {_power(pretrainings, len(found.comparisons), 'pre-trainings')}"
    elif seeds > 1:
        text += f" {_power(seeds, len(found.comparisons))}"
    else:
        text += " With one seed nothing is said about the noise of training."
    return Statement("Tasks", text + _pretrained_once(found, tested, pair), "table-1", tally.leans)


def _pretrained_once(found: Gathered, tested: Sequence[Comparison], pair: tuple[str, str]) -> str:
    once = [label for label in pair if _checkpoints(found, label) == 1]
    if len(once) == 2:
        return " Each was pre-trained once: this is about these two pre-trained models, not yet about the two kinds."
    if tasks := [one.task for one in tested if one.pretrainings == 1]:
        where = "" if len(tasks) == len(tested) else f" on {', '.join(tasks)}"
        return f" The test{where} is over fine-tunings of one pre-training: it is about that, not yet about the kinds."
    return ""


def _span(numbers: Iterable[int]) -> str:
    found = sorted(numbers)
    low, high = found[0], found[-1]
    return f"{low}" if low == high else f"{low} to {high}"


def _largest(tested: Sequence[Comparison], pair: tuple[str, str]) -> str:
    one = max(tested, key=lambda one: abs(one.effect))
    turn = 1 if one.b == pair[1] else -1
    low, high = sorted(turn * end for end in one.interval)
    what = (
        f"The largest difference ({pair[1]} − {pair[0]}), {one.task} {signed(turn * one.effect)} [{signed(low)}, "
        f"{signed(high)}] (interval not corrected), is "
    )
    return what + ("shown." if one.better else "not shown." if len(tested) == 1 else "not shown either.")


def _power(seeds: int, comparisons: int, what: str = "seeds") -> str:
    """What the test over seeds asks of the clearest of the differences, which Holm corrects by their number."""
    from scipy import stats

    factor = stats.t.ppf(1 - ALPHA / (2 * comparisons), seeds - 1) / seeds**0.5
    return (
        f"The design sets a limit: with {seeds} {what} and {comparisons} comparison{'' if comparisons == 1 else 's'} "
        f"even the clearest difference is shown only if its mean is more than {factor:.1f} times its standard "
        f"deviation over {what}."
    )


def _models(found: Gathered, study: str) -> list[str]:
    return [record["model"] for record in found[study]]


def _checkpoints(found: Gathered, label: str) -> int:
    return len({one.get("model_sha256") for one in found["finetuning"] if one["model"] == label})


def _noise(found: Gathered) -> Statement:
    pair = model_pair(found)
    tally = tally_of(found.noise_comparisons, pair) if pair else Tally([], [], [])
    if pair is None or not tally.count:
        return statement(
            "Noise", [], "table-5", "triune noise MODEL --task TASK --out OUT", models=_models(found, "noise")
        )
    a, b = pair
    text = f"What is lost under noise was compared for {tally.count} pairs of a task and a kind of noise: "
    if tally.leans == "none":
        text += f"for none is a difference between {a} and {b} shown."
    else:
        text += f"{b} is shown to lose less in {some(tally.shared)}, {a} in {some(tally.standard)}; {rest(tally)}."
    return Statement("Noise", text, "table-5", tally.leans)


def _transfer(found: Gathered) -> Statement:
    pair = model_pair(found)
    at_home = {
        f"{record['source_title']} → {target['title']}"
        for record in found["transfer"]
        for target in record["targets"]
        if target["own_task"] or target["out_of_domain"]
    }
    others = [one for one in found.transfer_comparisons if one.task not in at_home]
    tally = tally_of(others, pair) if pair else Tally([], [], [])
    if pair is None or not tally.count:
        return statement(
            "Other tasks", [], "table-6", "triune transfer MODEL... --out OUT", models=_models(found, "transfer")
        )
    text = f"Trained on one task, tested on another. {counted(tally, pair, 'cells')}"
    return Statement("Other tasks", text, "table-6", tally.leans)
