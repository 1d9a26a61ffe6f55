"""What there is to say of an operator, as plain data."""

import dataclasses
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from triune.operators.formula import as_text
from triune.operators.registry import get, names, settings_for


def describe(name: str) -> dict[str, Any]:
    operator = get(name)
    defaults = settings_for(name, None)
    costs = operator.costs(defaults)
    hints = get_type_hints(operator.Settings)
    return {
        "name": name,
        "summary": operator.summary,
        "scores": operator.scores,
        "weights": as_text(costs.weights),
        "biases": as_text(costs.biases),
        "flops": as_text(costs.flops),
        "decoder_cache": operator.decoder_cache,
        "cached": as_text(costs.cached),
        "symmetric_scores": operator.symmetric_scores,
        "fold_note": operator.fold_note,
        "settings": {
            field.name: {"default": getattr(defaults, field.name), "values": _values(hints[field.name])}
            for field in dataclasses.fields(operator.Settings)
        },
    }


def describe_all() -> list[dict[str, Any]]:
    return [describe(name) for name in names()]


def _values(hint: Any) -> list[str] | str:
    kinds = get_args(hint)
    if len(kinds) == 2 and NoneType in kinds:  # may be left open; the default is what it is then
        [hint] = [kind for kind in kinds if kind is not NoneType]
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return getattr(hint, "__name__", str(hint))
