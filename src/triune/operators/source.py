"""What an operator is made of, where it is not Triune's own: a name says nothing about code that somebody edits."""

import dataclasses
import hashlib
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from triune.operators.base import Operator

OURS = f"{__name__.partition('.')[0]}."


def source_sha256(operator: type[Operator]) -> str | None:
    """A checksum of the files that define an operator and its bases, read now, as it registers: what is edited later is
    not what runs. None for an operator of Triune, whose records go by its name alone.

    A notebook or an interactive session has no file: there it is of the code of the class and of its settings.
    """
    if operator.__module__.startswith(OURS):
        return None
    own = [
        base for base in operator.__mro__[: operator.__mro__.index(Operator)] if not base.__module__.startswith(OURS)
    ]
    parts = list(dict.fromkeys(_file_of(base) or _code_of(base, operator.Settings) for base in own))
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def _file_of(base: type) -> str | None:
    file = getattr(sys.modules.get(base.__module__), "__file__", None)
    try:
        return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return None


def _code_of(base: type, settings: type) -> str:
    defaults = {field.name: _plain(field.default) for field in dataclasses.fields(settings)}
    added = ("name", "source_sha256")  # by `register`, and what has underscores by Python
    attributes = {name: value for name, value in vars(base).items() if name not in added}
    return json.dumps([defaults, *(described for one in attributes.items() if (described := _described(*one)))])


def _described(name: str, value: Any) -> list[Any]:
    """A method as its code, an attribute as its value, where that is plain."""
    function = inspect.unwrap(getattr(value, "__func__", None) or getattr(value, "fget", None) or value)
    if isinstance(function, FunctionType):
        return [name, _plain(function.__defaults__), *_code(function.__code__)]
    return [] if name.startswith("__") else [name, _plain(value)]


def _code(code: CodeType) -> Iterator[Any]:
    yield [code.co_code.hex(), code.co_names, code.co_varnames]
    for constant in code.co_consts:
        yield list(_code(constant)) if isinstance(constant, CodeType) else _plain(constant)


def _plain(value: Any) -> Any:
    """The text of a value, of a kind that has the same in every process."""
    if isinstance(value, tuple | frozenset):
        inner = [str(_plain(one)) for one in value]
        return inner if isinstance(value, tuple) else sorted(inner)
    return repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
