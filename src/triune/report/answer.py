"""The short answer: what the records support, in plain words, and nothing more."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from triune.evaluation.comparing import REFERENCE, SHARED
from triune.evaluation.significance import ALPHA, Comparison
from triune.report.answer_ablations import ablations_statement
from triune.report.answer_loss import loss_statement
from triune.report.answer_primary import primary_headline, primary_statement, untested_headline
from triune.report.answer_time import time_statement
from triune.report.gather import Gathered, gather
from triune.report.primary import primary
from triune.report.scores import signed
from triune.report.statement import (
    UNTESTED,
    Statement,
    Tally,
    counted,
    is_of_one_pretraining,
    model_pair,
    rest,
    some,
    statement,
    tally_of,
)

Record = dict[str, Any]

QUESTION = "Does self-attention need separate weights?"
ONCE = "One pre-training of each is compared, so this is about two models and not yet about two kinds of attention"
OF_TWO_MODELS = "One pre-training of each: this is about these two pre-trained models, not yet about the two kinds."
MADE_UP = "All of it in a small made-up world (the pocket benchmark): nothing follows for real text."


def short_answer(roots: Sequence[Path], found: Gathered | None = None) -> list[str]:
    """Lines for the end of a run; `found` as for `write_report`."""
    found = gather(roots) if found is None else found
    return [QUESTION, headline(found), *(f"{one.topic}: {one.text}" for one in statements(found))]


def headline(found: Gathered) -> str:
    return f"{_answer(found)} {MADE_UP}" if found.pocket else _answer(found)


def _answer(found: Gathered) -> str:
    pair, known = model_pair(found), primary(found)
    tested = [one for one in found.comparisons if pair and {one.a, one.b} == set(pair)]
    if found.waits_for:
        so_far = "".join(f" {one.what}: {pair[1]} {one.effect}." for one in known.measures) if pair and known else ""
        return f"Not answered yet: {found.waits_for} are there, and the tests wait for all of them.{so_far}"
    if pair is None or not (tested or (known and known.tested)):
        return (
            "Not answered by these records: they hold no scores of a standard and a shared model with the same seeds."
        )
    tally = tally_of(tested, pair)
    once = is_of_one_pretraining(tested)
    by_task = f"By task{', over fine-tunings of one pre-training of each' if once else ''}, {_by_task(tally)}."
    if known and known.tested:
        return " ".join([primary_headline(known), *([by_task] if tally.count else [])])
    differences = [untested_headline(known)] if known else []
    if not tally.count:
        scores = f"The scores of the two were {tested[0].verdict}."
        return " ".join(["Not answered by these records.", scores, *differences])
    if not once:
        return f"In these runs {_by_task(tally)}."
    return (
        " ".join([f"{ONCE}.", *differences, f"By task, {_by_task(tally)}."]) if known else f"{ONCE}: {_by_task(tally)}."
    )


def _by_task(tally: Tally) -> str:
    tasks = f"{tally.count} task{'' if tally.count == 1 else 's'}"
    if tally.leans == "standard":
        return (
            f"separate weights are shown to do better on {len(tally.standard)} of {tasks} and shared weights on none; "
            f"{rest(tally)}"
        )
    if tally.leans == "shared":
        return (
            f"shared weights are shown to do better on {len(tally.shared)} of {tasks} and separate weights on none; "
            f"{rest(tally)}"
        )
    if tally.leans == "both":
        return (
            f"it depends: separate weights are shown to do better on {len(tally.standard)} of {tasks}, shared weights "
            f"on {len(tally.shared)}; {rest(tally)}"
        )
    return (
        f"a difference between separate and shared weights is shown on none of {tasks}, which does not make them equal"
    )


def statements(found: Gathered) -> list[Statement]:
    first = primary_statement(found)
    return [
        _what_was_run(found),
        *([first] if first else []),
        _parameters(found),
        loss_statement(found),
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
    said += f". {lost}" if (lost := _diverged(found)) else ""
    return Statement("What was run", f"{said}.", "methods", "fact" if runs else "missing")


def _diverged(found: Gathered) -> str:
    """An operator must not be judged by its better runs alone without a word."""
    counts: dict[str, int] = {}
    for one in found.diverged.values():
        kind = "pre-training" if len(one) == 2 else "fine-tuning"
        counts[f"{kind} of {one[-2]}"] = counts.get(f"{kind} of {one[-2]}", 0) + 1
    lost = ", ".join(f"{count} × {what}" for what, count in counts.items())
    return f"Diverged, and so in no table and no test: {lost}" if lost else ""


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
    if said and any(run["recipe"]["model"].get("position") == "rotary" for run in found["pretraining"]):
        said.append("Counted with BERT's learned positions; models of these runs have rotary ones, without weights.")
    pair = model_pair(found)
    counts = {run["label"]: run["parameters"] for run in found["pretraining"]}
    if pair and set(pair) <= counts.keys():
        a, b = (counts[label] for label in pair)
        said.append(f"The models of these runs: {b:,} instead of {a:,} ({100 * (1 - b / a):.2f} % less).")
    return statement("Parameters", said, "table-4", "triune params --json", "fact")


def _tasks(found: Gathered) -> Statement:
    pair = model_pair(found)
    tested = [one for one in found.comparisons if pair and {one.a, one.b} == set(pair)]
    if pair is None or not tested:
        return statement(
            "Tasks",
            [],
            "table-1",
            "triune finetune MODEL... --task glue --seeds 3 --out OUT",
            models=_models(found, "finetuning"),
        )
    tally, all_of_them = tally_of(tested, pair), tested
    tested = [one for one in all_of_them if one.p is not None]
    if not tested:
        text = f"{_count(all_of_them, 'task')} with scores of both: {all_of_them[0].verdict}."
        return Statement("Tasks", f"{text} {_largest(all_of_them, pair)}", "table-1", UNTESTED)
    largest = _largest(tested, pair)
    pretrainings = max(one.pretrainings for one in tested)
    over = f"{_span(one.seeds for one in tested)} fine-tuning seeds"
    if pretrainings > 1:
        over = f"{_span(one.pretrainings for one in tested)} pre-trainings "
        over += f"({_span(one.seeds for one in tested)} fine-tunings)"
    text = (
        f"{counted(tally, pair)} Tested over examples and over {over}, "
        f"corrected for {max(one.corrected_for for one in tested)} (Holm). {largest}"
    )
    if untested := [one for one in all_of_them if one.p is None]:
        text += f" {', '.join(one.task for one in untested)}: {untested[0].verdict}."
    if limit := _power(tested, "pre-trainings" if pretrainings > 1 else "seeds"):
        text += f" {limit}"
    return Statement("Tasks", text + _pretrained_once(tested), "table-1", tally.leans, tally.share)


def _pretrained_once(tested: Sequence[Comparison]) -> str:
    if is_of_one_pretraining(tested):
        return f" {OF_TWO_MODELS}"
    if tasks := [one.task for one in tested if one.pretrainings == 1]:
        return (
            f" The test on {', '.join(tasks)} is over fine-tunings of one pre-training: it is about that, not yet "
            "about the kinds."
        )
    return ""


def _count(compared: Sequence[Comparison], what: str) -> str:
    return f"{len(compared)} {what}{'' if len(compared) == 1 else 's'}"


def _span(numbers: Iterable[int]) -> str:
    found = sorted(numbers)
    low, high = found[0], found[-1]
    return f"{low}" if low == high else f"{low} to {high}"


def _largest(tested: Sequence[Comparison], pair: tuple[str, str]) -> str:
    one = max(tested, key=lambda one: abs(one.effect))
    turn = 1 if one.b == pair[1] else -1
    what = f"The largest difference ({pair[1]} − {pair[0]}) is {one.task} {signed(turn * one.effect)}"
    if one.interval is None:
        return f"{what}."
    low, high = sorted(turn * end for end in one.interval)
    shown = "shown" if one.better else "not shown"
    return f"{what} [{signed(low)}, {signed(high)}] (interval not corrected), and is {shown}."


def _power(tested: Sequence[Comparison], what: str) -> str:
    """What the test over runs asks of the clearest of the differences, which Holm corrects by their number."""
    from scipy import stats

    clearest = max(tested, key=lambda one: (one.pretrainings, one.seeds, one.freedom or 0))
    runs = clearest.pretrainings if clearest.pretrainings > 1 else clearest.seeds
    if clearest.freedom is None:
        return ""
    count = clearest.corrected_for
    factor = stats.t.ppf(1 - ALPHA / (2 * count), clearest.freedom) / runs**0.5
    return (
        f"The design sets a limit: with {runs} {what} and {count} comparison{'' if count == 1 else 's'} "
        f"even the clearest difference is shown only if its mean is more than {factor:.1f} times its standard "
        f"deviation over {what}."
    )


def _models(found: Gathered, study: str) -> list[str]:
    return [record["model"] for record in found[study]]


def _noise(found: Gathered) -> Statement:
    pair = model_pair(found)
    tested = [one for one in found.noise_comparisons if pair and {one.a, one.b} == set(pair)]
    if pair is None or not tested:
        return statement(
            "Noise", [], "table-5", "triune noise MODEL --task TASK --out OUT", models=_models(found, "noise")
        )
    (a, b), tally = pair, tally_of(tested, pair)
    if not tally.count:
        text = f"{_count(tested, 'pair')} of a task and a kind of noise, with both models: {tested[0].verdict}."
        return Statement("Noise", text, "table-5", UNTESTED)
    text = f"What is lost under noise was compared for {tally.count} pairs of a task and a kind of noise: "
    if tally.leans == "none":
        text += f"for none is a difference between {a} and {b} shown."
    else:
        text += f"{b} is shown to lose less in {some(tally.shared)}, {a} in {some(tally.standard)}; {rest(tally)}."
        text += _starts_lower(found, tested)
    return Statement("Noise", text + _pretrained_once(tested), "table-5", tally.leans, tally.share)


def _starts_lower(found: Gathered, tested: Sequence[Comparison]) -> str:
    """Of a model that is shown to lose less under noise, and has less to lose: it is worse without noise."""
    clean: dict[tuple[str, str], list[float]] = {}
    for record in found["noise"]:
        clean.setdefault((record["task_title"], record["model"]), []).append(record["clean"])
    lower: dict[str, list[str]] = {}
    for one in tested:
        task = one.task.rpartition(", ")[0]
        sides = {side: clean.get((task, side)) for side in (one.a, one.b)}
        starts = {side: mean(scores) for side, scores in sides.items() if scores}
        if one.better and len(starts) == 2 and starts[one.better] == min(starts.values()) < max(starts.values()):
            lower.setdefault(one.better, []).append(task)
    return "".join(
        f" On {', '.join(dict.fromkeys(tasks))} {model} starts lower, and has less to lose."
        for model, tasks in lower.items()
    )


def _transfer(found: Gathered) -> Statement:
    pair = model_pair(found)
    at_home = {
        f"{record['source_title']} → {target['title']}"
        for record in found["transfer"]
        for target in record["targets"]
        if target["own_task"] or target["out_of_domain"]
    }
    others = [one for one in found.transfer_comparisons if one.task not in at_home]
    tested = [one for one in others if pair and {one.a, one.b} == set(pair)]
    if pair is None or not tested:
        return statement(
            "Other tasks", [], "table-6", "triune transfer MODEL... --out OUT", models=_models(found, "transfer")
        )
    tally = tally_of(tested, pair)
    if not tally.count:
        text = (
            f"Trained on one task, tested on another, {_count(tested, 'cell')} with both models: {tested[0].verdict}."
        )
        return Statement("Other tasks", text, "table-6", UNTESTED)
    text = f"Trained on one task, tested on another. {counted(tally, pair, 'cell')}"
    return Statement("Other tasks", text + _pretrained_once(tested), "table-6", tally.leans, tally.share)
