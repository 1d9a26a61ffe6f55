"""A model card for each model, in the form of the Hugging Face hub."""

import re
from pathlib import Path
from statistics import mean
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from triune import operators
from triune.data.tasks import get_task, task_names
from triune.files import write_text
from triune.operators.formula import as_text
from triune.report.gather import Gathered
from triune.report.scores import concerns, mean_and_spread, subset_text
from triune.report.tables import Table, markdown_text
from triune.report.task_name import POCKET_NOTE, is_pocket, task_name
from triune.report.unigram import unigram_of
from triune.version import __version__

Record = dict[str, Any]

POCKET_TEXT = "a small made-up world (the pocket corpus)"
UNNAMED_TEXT = "the text whose checksum the run folder holds"
PIPELINES = {"classification": "text-classification", "regression": "text-classification", "span": "question-answering"}


def write_cards(found: Gathered, folder: Path) -> Path:
    taken: set[str] = set()
    for label in found.models:
        name = re.sub(r"[^\w.-]+", "-", label, flags=re.ASCII).strip(".-") or "model"
        while name in taken:
            name += "-2"
        taken.add(name)
        write_text(folder / f"{name}.md", model_card(found, label))
    return folder


def model_card(found: Gathered, label: str) -> str:
    runs = [one for one in found["pretraining"] if one["label"] == label]
    scores = [one for one in found["finetuning"] if one["model"] == label]
    parts = [
        _front_matter(found, label, scores),
        f"# {markdown_text(label)}",
        what_it_is(found.models[label]),
        _use(runs, scores),
        training_section(runs, POCKET_TEXT if found.pocket else UNNAMED_TEXT),
        scores_section(scores),
        _limits(found, label, runs, scores),
        f"Written by `triune report --format cards`, version {__version__}, from the records of the runs.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(found: Gathered, label: str, scores: list[Record]) -> str:
    """What the hub reads. The licence is the user's to choose: it stays a comment."""
    results = eval_results(scores)
    about = ModelCardData(
        library_name="transformers",
        language="en",
        pipeline_tag="fill-mask",
        tags=card_tags(found.models[label]),
        model_name=label if results else None,
        eval_results=results or None,
    )
    return f"---\n# license: say which before you publish\n{about.to_yaml().strip()}\n---"


def card_tags(operator: str) -> list[str]:
    return ["triune", "bert", f"{operator}-attention"]


def eval_results(scores: list[Record]) -> list[EvalResult]:
    """The mean score on each task, in the form of the hub."""
    results = []
    for task in dict.fromkeys(one["task"] for one in scores):
        ours = [one for one in scores if one["task"] == task]
        one = ours[0]
        pocket = any(map(is_pocket, ours))
        hub = get_task(task).hub if task in task_names() and not pocket else None
        results.append(
            EvalResult(
                task_type=PIPELINES[one["kind"]],
                dataset_type=hub.name if hub else "pocket" if pocket else "own",
                dataset_name=task_name(ours),
                dataset_config=hub.config if hub else task,  # sets are told apart by it
                dataset_split="validation",
                metric_type=one["metric"],
                metric_name=f"{one['metric_title']}, mean of {len(ours)} seed{'' if len(ours) == 1 else 's'}",
                metric_value=round(mean(one["primary"] for one in ours), 2),
            )
        )
    return results


def what_it_is(operator: str, settings: dict[str, Any] | None = None) -> str:
    said = f"A BERT-like encoder with `{markdown_text(operator)}` attention"
    if operator in operators.names():
        one = operators.get(operator)
        weights = as_text(one.costs(operators.settings_for(operator, settings)).weights)
        where = "width d and m heads" if "m" in weights else "width d"
        said += f": {markdown_text(one.summary)}. Attention scores: {markdown_text(one.scores)}; weights for queries, "
        said += f"keys and values in a layer of {where}: {weights}"
    return f"{said}. Made with Triune, the library for arXiv 2412.00359 (the paper)."


def _use(runs: list[Record], scores: list[Record]) -> str:
    lines = [
        "## Use",
        "",
        "```python",
        "import triune",
        "from transformers import AutoModelForMaskedLM, AutoTokenizer",
        "",
    ]
    lines += [
        'model = AutoModelForMaskedLM.from_pretrained("PATH")',
        'tokenizer = AutoTokenizer.from_pretrained("PATH")',
        "```",
    ]
    counts = dict.fromkeys(f"{one['parameters']:,}" for one in runs)
    if counts:
        lines += ["", f"Parameters, with the masked-LM head: {' or '.join(counts)}."]
    elif scores:
        lines += ["", f"Parameters, fine-tuned: {scores[0]['parameters']:,}."]
    return "\n".join(lines)


def training_section(runs: list[Record], text: str) -> str:
    """What the records of the runs say of pre-training; `text` says in words what they saw."""
    if not runs:
        return "## Pre-training\n\nNo record of its pre-training is among the records."
    run = runs[0]
    recipe = run["recipe"]
    model, training, optimizer = recipe["model"], recipe["training"], recipe["optimizer"]
    losses = ", ".join(f"{one['validation_loss']:.3f} (seed {one['seed']})" for one in runs)
    settings = ", ".join(f"{name} {value}" for name, value in model["operator_settings"].items())
    return "\n".join(
        [
            "## Pre-training",
            "",
            f"- Data: {text}; {run['tokens']:,} tokens seen in {run['steps']:,} steps.",
            f"- Size: {model['layers']} layers × {model['width']}, {model['heads']} heads, feed-forward "
            f"{model['feed_forward']}.",
            *([f"- Settings of the operator: {markdown_text(settings)}."] if settings else []),
            f"- Recipe: {training['sequences']} sequences of {recipe['data']['block_length']} tokens a step, learning "
            f"rate {optimizer['learning_rate']:g} ({optimizer['schedule']}), weight decay "
            f"{optimizer['weight_decay']:g}, {training['precision']}, on {markdown_text(str(run['device']))}.",
            f"- Validation loss: {losses}, in nats; word frequencies alone give {unigram_of(run):.3f}.",
        ]
    )


def scores_section(scores: list[Record]) -> str:
    if not scores:
        return "## Scores\n\nIt was not fine-tuned."
    table = Table(
        "Scores on development sets",
        ["task", "metric", "score", "development rows"],
        text_columns=2,
        notes=[
            "In percent: mean ± standard deviation over fine-tuning seeds (number of seeds). The best epoch, "
            "and the rate where several were tried, was chosen on the development set: scores are somewhat too high."
        ],
    )
    for task in dict.fromkeys(one["task"] for one in scores):
        ours = [one for one in scores if one["task"] == task]
        figure = mean_and_spread([one["primary"] for one in ours])
        table.rows.append([task_name(ours), ours[0]["metric_title"], figure, f"{ours[0]['dev_rows']:,}"])
        if any(one["subset"] for one in ours):
            table.notes.append(f"Not the whole data. {subset_text(ours)}.")
    if any(map(is_pocket, scores)):
        table.notes.append(POCKET_NOTE)
    return "## Scores\n\n" + table.to_markdown().strip()


def _limits(found: Gathered, label: str, runs: list[Record], scores: list[Record]) -> str:
    limits = []
    if found.pocket:
        limits.append(
            "Trained and scored on a made-up world: it knows nothing of real text, and its scores say nothing of it."
        )
    if len(runs) == 1:
        limits.append("Pre-trained once: how much another seed would change is not known.")
    if any(one["subset"] for one in scores):
        limits.append("Some scores are on parts of the official data and cannot be set beside published ones.")
    shown = [one for one in found.comparisons if label in (one.a, one.b) and one.better]
    for one in shown:
        other = one.a if one.b == label else one.b
        how = "better" if one.better == label else "worse"
        task = task_name([record for record in scores if concerns(one, record)])
        limits.append(f"Shown to be {how} than {other} on {task} (p {one.p_holm:.3f} after Holm's correction).")
    limits.append("Its biases are those of its training data; they were not measured.")
    return "\n".join(["## Limits", "", *(f"- {markdown_text(one)}" for one in limits)])
