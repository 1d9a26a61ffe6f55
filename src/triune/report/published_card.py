"""The card of a model that is published: what its run recorded, and what only its publisher knows."""

import json
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from huggingface_hub import ModelCardData

from triune.data.manifest import Manifest
from triune.data.sources import HUB
from triune.models.pretrained import VARIABLE
from triune.operators import registering_module
from triune.report.cards import card_tags, eval_results, scores_section, training_section, what_it_is
from triune.report.tables import markdown_text
from triune.report.task_name import is_pocket
from triune.version import __version__

Record = dict[str, Any]

MARK = "Written by `triune publish`"  # a folder whose card says so may be replaced
EXAMPLE = "She opened the [MASK] and looked out."
EXAMPLE_OF_POCKET = "The robin was [MASK]."  # the made-up world has neither doors nor windows


@dataclass(frozen=True)
class Said:
    """What no record holds; a line each."""

    text: str  # what text the model saw, and where it is from
    licence: str  # of the weights, as the hub names licences
    text_licence: str
    languages: list[str]  # codes of ISO 639


@dataclass(frozen=True)
class Counted:
    """Of the weights as they are written."""

    parameters: int
    attention: int  # parameters of a layer
    vocabulary: int
    bytes: int


def published_card(
    name: str,
    run: Record,
    said: Said,
    counted: Counted,
    manifest: Manifest | None = None,
    scores: list[Record] | None = None,
) -> str:
    """`run` as `run_record` gives it, `manifest` that of its data, `scores` the records of its fine-tunings."""
    scores = scores or []
    pocket = run.get("pocket", False) or (manifest is not None and manifest.pocket)
    parts = [
        _front_matter(name, run, said, scores),
        f"# {markdown_text(name)}",
        what_it_is(run["operator"], run["recipe"]["model"]["operator_settings"]),
        _use(name, run["operator"], EXAMPLE_OF_POCKET if pocket else EXAMPLE),
        _size(run, counted),
        _text(said, manifest),
        training_section([run], "the text above"),
        "The validation loss is that of the weights before they were rounded to bfloat16.",
        scores_section(scores) if scores else "## Scores\n\nNone are recorded.",
        _not_for(run, said, counted, _made_up(pocket, scores)),
        f"{MARK}, version {__version__}, from the records of a run with version {run['versions']['triune']}.",
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(name: str, run: Record, said: Said, scores: list[Record]) -> str:
    results = eval_results(scores)
    about = ModelCardData(
        license=said.licence,
        language=said.languages[0] if len(said.languages) == 1 else said.languages,
        library_name="transformers",
        pipeline_tag="fill-mask",
        tags=card_tags(run["operator"]),
        model_name=name if results else None,
        eval_results=results or None,
    )
    return f"---\n{about.to_yaml().strip()}\n---"


def _use(name: str, operator: str, example: str) -> str:
    module, called = registering_module(operator), json.dumps(name)
    lines = [
        "## Use",
        "",
        "Install Triune first: `pip install -e .` in a clone of its repository (Python 3.11).",
        "",
    ]
    if module is not None:
        lines += [
            f"`{markdown_text(operator)}` does not come with Triune: get the module that registers it, `{module}`, "
            "too. Import it before the model is loaded, or give its file to the command: `triune --plugin FILE …`.",
            "",
        ]
    return "\n".join(
        [
            *lines,
            "```python",
            "import triune",
            *([f"import {module}"] if module is not None else []),
            "from transformers import pipeline",
            "",
            f'fill = pipeline("fill-mask", {called})  # the path of this folder, or its name on the hub',
            f'print(fill("{example}")[0]["token_str"])',
            "```",
            "",
            f"Where the folder lies in `models/` of the clone, or in the folder that `{VARIABLE}` names, "
            f"`triune.pretrained({markdown_text(called)})` is its path. `triune finetune` takes the path or the name.",
        ]
    )


def _size(run: Record, counted: Counted) -> str:
    operator = markdown_text(run["operator"])
    return "\n".join(
        [
            "## Size",
            "",
            f"- Parameters, with the masked-LM head: {counted.parameters:,}.",
            f"- Query, key and value parameters of a layer (`{operator}`): {counted.attention:,}.",
            f"- Vocabulary: {counted.vocabulary:,} word pieces.",
            f"- Weights: {counted.bytes:,} bytes in bfloat16. Widen them to train: `dtype=torch.float32` in "
            "`from_pretrained`; `triune finetune` does so by itself.",
        ]
    )


def _text(said: Said, manifest: Manifest | None) -> str:
    lines = [
        "## Text",
        "",
        f"- What it saw: {markdown_text(said.text)}",
        f"- Licence of the text: {markdown_text(said.text_licence)}",
        f"- Licence of the weights: {markdown_text(said.licence)}",
    ]
    if manifest is not None:
        lines += [f"- {markdown_text(_source(one))}" for one in manifest.sources]
        lines += [
            f"- Prepared, {markdown_text(split)}: {one['documents']:,} documents, {one['tokens']:,} tokens."
            for split, one in manifest.splits.items()
        ]
    return "\n".join(lines)


def _source(source: Record) -> str:
    """Without the folders that it lay in on the publisher's machine."""
    where = source["where"] if source["where"].startswith(HUB) else PurePath(source["where"]).name
    counts = source["counts"]
    taken = "" if source["weight"] == 1 else f", taken {source['weight']:g} times"
    size = f"{counts['documents']:,} documents, {counts['bytes'] / 1e6:,.1f} MB"
    return f"Source, {source['split']}: {where}: {size}{taken}."


def _made_up(pocket: bool, scores: list[Record]) -> list[str]:
    """What of it is the pocket benchmark's, in words."""
    said = []
    if pocket:
        said.append("it was pre-trained on a made-up world and knows no other")
    if any(map(is_pocket, scores)):
        said.append("its scores are on a made-up world and say nothing of it")
    return said


def _not_for(run: Record, said: Said, counted: Counted, made_up: list[str]) -> str:
    longest = run["recipe"]["data"]["block_length"]
    spoken = "English" if said.languages == ["en"] else f"those of its text ({', '.join(said.languages)})"
    lines = [
        f"Products, and decisions about people. It is small ({counted.parameters:,} parameters, {run['tokens']:,} "
        "tokens of pre-training) and made for learning, for tests and for fine-tuning on a laptop.",
        "Facts: it fills a blank with what its text makes likely, which is often false.",
        f"Other languages than {spoken}, and texts longer than {longest} tokens, which must be cut.",
        "Unfiltered output: it had no safety training, and the biases of its text are in it; they were not measured.",
        "Saying which operator is better: it was pre-trained once, and another seed gives another model.",
    ]
    if made_up:
        lines.append(f"Real text: {'; '.join(made_up)}.")
    return "\n".join(["## Not for", "", *(f"- {line}" for line in lines)])
