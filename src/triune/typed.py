"""Which value of a typed dataclass is of the wrong type, in words: huggingface_hub's speak of Python's types."""

import dataclasses
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from triune.errors import shown

_IN_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "names and values",
    NoneType: "nothing (null)",
}


def mistyped(cls: type, values: Mapping[str, Any]) -> str | None:
    """`KEY must be …, not …` of the first value that does not fit; None where all do, as far as can be told here."""
    # Not by get_type_hints: transformers' fields may name types that only it knows, as text.
    hints = {field.name: field.type for field in dataclasses.fields(cls) if not isinstance(field.type, str)}
    for key, value in values.items():
        if key in hints and not _fits(value, hints[key]):
            return f"{key} must be {_in_words(hints[key])}, not {shown(repr(value))}"
    return None


def _fits(value: Any, hint: Any) -> bool:
    kinds = _kinds(hint)
    if get_origin(hint) is Literal:
        return any(type(value) is type(one) and value == one for one in kinds)
    if len(kinds) > 1:
        return any(_fits(value, one) for one in kinds)
    if hint not in _IN_WORDS:
        return True
    return isinstance(value, hint) and not (hint is int and isinstance(value, bool))


def _in_words(hint: Any) -> str:
    kinds = _kinds(hint)
    if get_origin(hint) is Literal:
        return f"one of {', '.join(str(one) for one in kinds)}"
    if float in kinds:
        kinds = tuple(one for one in kinds if one is not int)
    return " or ".join(_in_words(one) for one in kinds) if len(kinds) > 1 else _IN_WORDS.get(kinds[0], str(kinds[0]))


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The values of a Literal, the parts of a union, or the hint itself."""
    return get_args(hint) if get_origin(hint) in (Literal, Union, UnionType) else (hint,)
