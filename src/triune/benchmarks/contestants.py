"""What models of ours and of transformers have in common in benchmarks: the same sizes, compiled or not."""

from typing import Any

import torch
from transformers import BertConfig

from triune.benchmarks.timing import Entry
from triune.errors import TriuneError
from triune.models.configuration import TriuneConfig
from triune.operators import names

THEIRS = "transformers BERT"
AUTOMATIC = "triune"  # attn_implementation: the one-tensor kernel where it runs
PYTORCH = "sdpa"
GRAPHS = "reduce-overhead"


def bert_config(ours: TriuneConfig) -> BertConfig:
    """BERT of the same sizes, with its best attention."""
    config = BertConfig(
        vocab_size=ours.vocab_size,
        pad_token_id=ours.pad_token_id,
        max_position_embeddings=ours.max_position_embeddings,
        num_hidden_layers=ours.num_hidden_layers,
        hidden_size=ours.hidden_size,
        num_attention_heads=ours.num_attention_heads,
        intermediate_size=ours.intermediate_size,
        hidden_dropout_prob=ours.hidden_dropout_prob,
        attention_probs_dropout_prob=ours.attention_probs_dropout_prob,
        classifier_dropout=ours.classifier_dropout,
    )
    config._attn_implementation = PYTORCH
    return config


def compiled(model: torch.nn.Module, mode: str, ours: bool) -> Any:
    """`mode` is none, or one of torch.compile's; shapes are fixed. A model of ours that falls into pieces is an error:
    they are called one by one from Python, and that is what would be measured."""
    return model if mode == "none" else torch.compile(model, mode=mode, dynamic=False, fullgraph=ours)


def note_attention(entry: Entry, model: Any) -> str:
    """Into the record: what computes attention in a model of ours, and why."""
    core = model.attention_core
    entry.about |= {
        "attention": core.name,
        "reason": core.reason,
        "feed_forward": model.feed_forward_core.name,
        "norm": model.norm_core.name,
        "rotary": model.rotary_core and model.rotary_core.name,
    }
    return str(core.name)


def operator_names(given: str) -> list[str]:
    """Names with commas, each of a registered operator."""
    chosen = list_of(given, "--operator")
    for name in chosen:
        if name not in names():
            raise TriuneError(f"unknown operator '{name}': there are {', '.join(names())}")
    return chosen


def list_of(given: str, option: str) -> list[str]:
    found = list(dict.fromkeys(one.strip() for one in given.split(",") if one.strip()))
    if not found:
        raise TriuneError(f"{option} names nothing: give one or more, with commas")
    return found


def numbers_of(given: str, option: str) -> tuple[int, ...]:
    found = list_of(given, option)
    for one in found:
        if not one.isdecimal() or int(one) < 1:
            raise TriuneError(f"{option} takes whole numbers from 1, with commas: '{one}' is none")
    return tuple(int(one) for one in found)
