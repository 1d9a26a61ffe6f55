"""The parameter study: the paper's Tables 3 and 4, as formulas and as counts on real modules.

Models are built on the meta device: every module is there, no memory is, and the whole study takes seconds.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from triune import operators
from triune.benchmarks import paper
from triune.cells import Cell, Record, write_record
from triune.errors import TriuneError
from triune.models.configuration import TriuneConfig
from triune.models.heads import HEADS
from triune.models.modeling import TriunePreTrainedModel
from triune.models.presets import preset
from triune.operators.formula import as_text, evaluate
from triune.operators.role_vectors import RoleVectorSettings
from triune.version import __version__

FLOAT32, BFLOAT16 = 4, 2
# Weights, gradients and Adam's two moments, all in float32.
ADAM_TRAINING = 4 * FLOAT32
BASELINE = "standard"
VERSION = 1  # of what is counted: a record of another one is not current


def study(config: TriuneConfig, heads: Sequence[str], names: Sequence[str] | None = None) -> dict[str, Any]:
    """Everything about the parameters of `names` (all registered operators by default) in the shape of `config`."""
    unknown = [head for head in heads if head not in HEADS]
    if unknown:
        raise TriuneError(f"unknown head '{unknown[0]}': there are {', '.join(HEADS)}")
    chosen = list(names or operators.names())
    rows = {name: _operator_row(config, name, heads) for name in chosen}
    # The baseline is needed for the savings even if it is not asked for.
    baseline = rows.get(BASELINE) or _operator_row(config, BASELINE, heads)
    for row in rows.values():
        row["saved"] = _saved(row, baseline)
    comparison = _paper_comparison(rows) if _is_the_papers_model(config) else None
    for name, row in rows.items():
        printed = comparison["table_4"].get(name) if comparison else None
        for head, count in row["model"].items():
            count["printed_in_paper"] = printed is not None and printed["head"] == head and printed["equal"]
    return {
        "study": "parameters",
        "triune": __version__,
        "model": {
            "layers": config.num_hidden_layers,
            "width": config.hidden_size,
            "heads": config.num_attention_heads,
            "feed_forward": config.intermediate_size,
            "vocabulary": config.vocab_size,
            "positions": config.max_position_embeddings,
            "labels": config.num_labels,
            "norm_position": config.norm_position,
            "position": config.position,
        },
        "heads": list(heads),
        "operators": rows,
        "paper": comparison,
    }


def parameter_cell(record: Path) -> Cell:
    """The study of the paper's own model with all operators that are registered, but for those that came later."""
    named = {name: str(operators.settings_for(name, _at_one(name))) for name in _reproduced()}
    described = operators.with_operator_sources({"operators": named, "version": VERSION}, named)
    identity = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:24]
    return Cell("parameters", _measure, {"record": record, "identity": identity}, record, identity)


def _measure(record: Path, identity: str) -> Record:
    measured = {**study(preset("base"), paper.TABLE_4_HEADS, _reproduced()), "identity": identity}
    return write_record(record, operators.with_operator_sources(measured, _reproduced()))


def _at_one(name: str) -> dict[str, Any] | None:
    """A start changes no count, and another default must not make records out of date either."""
    return {"role_start": "ones"} if issubclass(operators.get(name).Settings, RoleVectorSettings) else None


def _reproduced() -> list[str]:
    """An operator that is added to Triune must not make records out of date that others have."""
    return [name for name in operators.names() if operators.get(name).in_reproduction]


def _operator_row(config: TriuneConfig, name: str, heads: Sequence[str]) -> dict[str, Any]:
    own = config.operator_settings if name == config.operator else None
    settings = operators.settings_for(name, own)
    costs = operators.get(name).costs(settings)
    shape = config.attention_shape
    models = {head: _on_meta(config, name, own, head) for head in heads}
    model = next(iter(models.values()), None) or _on_meta(config, name, own, "none")
    return {
        "settings": dict(vars(settings)),
        "formula": {"weights": as_text(costs.weights), "biases": as_text(costs.biases)},
        "layer": {"weights": evaluate(costs.weights, shape), "biases": evaluate(costs.biases, shape)},
        "attention": sum(_count(layer.attention.self) for layer in model.base_model.encoder.layer),
        "attention_block": sum(_count(layer.attention) for layer in model.base_model.encoder.layer),
        "model": {
            head: {
                "parameters": _count(built),
                "bytes_float32": FLOAT32 * _count(built),
                "bytes_bfloat16": BFLOAT16 * _count(built),
                "bytes_training_adam": ADAM_TRAINING * _count(built),
            }
            for head, built in models.items()
        },
    }


def _on_meta(config: TriuneConfig, name: str, settings: dict | None, head: str) -> TriunePreTrainedModel:
    described = config.to_dict()
    described.update(operator=name, operator_settings=settings, folded=False)
    with torch.device("meta"):
        return HEADS[head](TriuneConfig.from_dict(described))


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())  # a tied parameter is listed once


def _saved(row: dict[str, Any], baseline: dict[str, Any]) -> dict[str, Any]:
    """Shares saved against the baseline, in per cent, for each thing that one may divide by."""

    def percent(mine: int, theirs: int) -> float:
        return 100 * (1 - mine / theirs)

    mine, theirs = row["layer"], baseline["layer"]
    return {
        "attention_without_biases": percent(mine["weights"], theirs["weights"]),
        "attention": percent(sum(mine.values()), sum(theirs.values())),
        "attention_block": percent(row["attention_block"], baseline["attention_block"]),
        "model": {
            head: percent(count["parameters"], baseline["model"][head]["parameters"])
            for head, count in row["model"].items()
        },
    }


def _is_the_papers_model(config: TriuneConfig) -> bool:
    papers = preset("base", operator=config.operator)
    counted = [
        "tie_word_embeddings",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "vocab_size",
    ]
    counted += ["max_position_embeddings", "type_vocab_size", "num_labels", "position"]
    costs = operators.get(config.operator).costs  # settings that change no count leave it the paper's
    return costs(config.settings) == costs(papers.settings) and all(
        getattr(config, field) == getattr(papers, field) for field in counted
    )


def _paper_comparison(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The paper's printed figures beside ours, each with the head that it belongs to."""
    printed = {}
    for name, (figure, head) in paper.TABLE_4.items():
        ours = rows.get(name, {}).get("model", {}).get(head, {}).get("parameters")
        if ours is not None:
            printed[name] = {"printed": figure, "head": head, "ours": ours, "equal": figure == ours}
    notes = []
    if all(name in rows for name in ("standard", "shared")):
        saved = rows["shared"]["saved"]
        notes.append(
            paper.TABLE_3_NOTE.format(
                without_biases=saved["attention_without_biases"],
                with_biases=saved["attention"],
                block=saved["attention_block"],
            )
        )
        if set(paper.TABLE_4_HEADS) <= set(rows["shared"]["model"]):
            mixed = paper.TABLE_4["shared"][0] / paper.TABLE_4["standard"][0]
            notes.append(paper.TABLE_4_NOTE.format(like_with_like=saved["model"]["masked-lm"], mixed=100 * (1 - mixed)))
    return {"table_4": printed, "notes": notes}
