"""Operators by name. Registering is all that an operator needs to be usable everywhere."""

import dataclasses
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError

from triune.errors import TriuneError, did_you_mean, one_line
from triune.operators.base import Operator
from triune.operators.roles import AttentionShape
from triune.operators.source import source_sha256
from triune.typed import mistyped

OperatorClass = TypeVar("OperatorClass", bound=type[Operator])

_OPERATORS: dict[str, type[Operator]] = {}
# Before the name of a file that is imported by path, which may be that of another module, or of a file elsewhere.
_PLUGIN = re.compile(r"triune_plugin_[0-9a-f]{16}_")


def register(name: str) -> Callable[[OperatorClass], OperatorClass]:
    """Class decorator: makes an operator known under `name` to configurations, models, commands and tests."""

    def add(operator: OperatorClass) -> OperatorClass:
        known = _OPERATORS.get(name)
        # A module that is run again (a notebook cell, a reload) may replace its own operator, not another's.
        if known is not None and (known.__module__, known.__qualname__) != (
            operator.__module__,
            operator.__qualname__,
        ):
            raise TriuneError(f"operator '{name}' is already registered by {_origin(known)}: choose another name")
        _check_declared(name, operator)
        operator.name = name
        operator.source_sha256 = source_sha256(operator)
        if "__validators__" not in vars(operator.Settings):  # several operators may share one class of settings
            operator.Settings = strict(operator.Settings)
        _OPERATORS[name] = operator
        return operator

    return add


def _origin(operator: type[Operator]) -> str:
    if _PLUGIN.match(operator.__module__):
        return f"{operator.__qualname__} of '{sys.modules[operator.__module__].__file__}'"
    return f"{operator.__module__}.{operator.__qualname__}"


def _check_declared(name: str, operator: type[Operator]) -> None:
    """What every listing and every model needs to know of an operator, asked for when it registers."""
    if not (isinstance(operator, type) and issubclass(operator, Operator)):
        raise TriuneError(f"operator '{name}' must be a subclass of triune.Operator")
    if (other := vars(operator).get("name", name)) != name:
        raise TriuneError(f"{operator.__qualname__} is registered as '{other}' already: derive a class of its own")
    for attribute in ("summary", "scores", "decoder_cache"):
        if not isinstance(getattr(operator, attribute, None), str):
            raise TriuneError(f"operator '{name}' must say its {attribute} as a string")
    for method in ("forward", "costs"):
        if method not in _methods(operator):
            raise TriuneError(f"operator '{name}' must implement {method}")
    if operator.is_one_tensor and "one_tensor" not in _methods(operator):
        raise TriuneError(f"operator '{name}' says is_one_tensor: it must implement one_tensor")
    if not dataclasses.is_dataclass(operator.Settings):
        raise TriuneError(f"operator '{name}': its Settings must be a dataclass")
    for setting in dataclasses.fields(operator.Settings):
        if setting.default is dataclasses.MISSING and setting.default_factory is dataclasses.MISSING:
            raise TriuneError(f"operator '{name}': its setting '{setting.name}' needs a default")


def _methods(operator: type[Operator]) -> set[str]:
    """Everything that the operator or a base below `Operator` defines itself."""
    return {name for base in operator.__mro__[: operator.__mro__.index(Operator)] for name in vars(base)}


def names() -> list[str]:
    return list(_OPERATORS)


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels of models as the paper has its operators, then those that are called otherwise, as they come."""
    order = {name: number for number, name in enumerate(_OPERATORS)}
    return sorted(labels, key=lambda label: order.get(label, len(order)))


def get(name: str) -> type[Operator]:
    if name not in _OPERATORS:
        raise TriuneError(
            f"unknown operator '{name}'{did_you_mean(name, _OPERATORS)}; "
            "an operator of your own must be imported first (--plugin on the command line)"
        )
    return _OPERATORS[name]


def operator_sources(named: Iterable[str]) -> dict[str, str]:
    """Checksums of the sources of operators that are not Triune's own, by name."""
    known = {name: _OPERATORS[name].source_sha256 for name in named if name in _OPERATORS}
    return {name: source for name, source in known.items() if source is not None}


def with_operator_sources(described: dict[str, Any], named: Iterable[str]) -> dict[str, Any]:
    """What an identity is made of, or a record: with the sources of the operators in it, where somebody may edit them.

    Nothing is added for operators of Triune: published records keep their identities.
    """
    sources = operator_sources(named)
    return {**described, "operator_sources": sources} if sources else described


def registering_module(name: str) -> str | None:
    """What has to be imported before this operator is known; nothing for those that come with Triune."""
    module = get(name).__module__
    return None if module.startswith("triune.") else _PLUGIN.sub("", module)


def settings_for(name: str, given: Mapping[str, Any] | None) -> Any:
    """The operator's settings, validated; what is not given takes its default."""
    operator = get(name)
    known = [field.name for field in dataclasses.fields(operator.Settings)]
    for key in given or {}:
        if key not in known:
            raise TriuneError(
                f"operator '{name}' has no setting '{key}'{did_you_mean(str(key), known)}; who changes the operator "
                "drops the settings of the one before: config.operator_settings = None, or in a recipe "
                "model.operator_settings={}"
            )
    try:
        return operator.Settings(**(given or {}))
    except StrictDataclassError as error:
        said = mistyped(operator.Settings, given or {}) or one_line(error.__cause__ or error)
        raise TriuneError(f"operator '{name}': {said}") from error


def written_out(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings given, and what those are that an operator leaves open (their default is None) and then chooses.

    Another version may choose otherwise: what is written of a run says what it was.
    """
    chosen = settings_for(name, given)
    left_open = [one.name for one in dataclasses.fields(chosen) if one.default is None and given.get(one.name) is None]
    now = {key: getattr(chosen, key) for key in left_open}
    return {**given, **{key: value for key, value in now.items() if value is not None}}


def build(
    name: str, shape: AttentionShape, settings: Mapping[str, Any] | None = None, folded: bool = False
) -> Operator:
    return get(name)(shape, settings_for(name, settings), folded)


_plugins: list[str] = []


def loaded_plugins() -> list[str]:
    """What `load_plugin` was given so far: another process has to load the same."""
    return list(_plugins)


def load_plugin(where: str) -> None:
    """Import a module by name, or a Python file by path, so that the operators in it register themselves."""
    is_file = where.endswith(".py")
    if is_file and not Path(where).is_file():
        raise TriuneError(f"plugin file '{where}' does not exist")
    if not is_file and Path(where).is_file():
        raise TriuneError(f"plugin '{where}' is not a Python file: its name must end in .py")
    is_folder = f"plugin '{where}' is a folder: give the Python file in it that registers operators"
    if not is_file and Path(where).is_dir() and not all(part.isidentifier() for part in where.split(".")):
        raise TriuneError(is_folder)
    try:
        if is_file:
            _import_file(Path(where))
        else:
            module = importlib.import_module(where)
            if getattr(module, "__file__", None) is None:  # Python takes any folder for a module without code
                raise TriuneError(is_folder)
    except TriuneError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == where and Path(where).is_dir():
            raise TriuneError(is_folder) from error
        raise TriuneError(f"plugin '{where}' failed to import: {type(error).__name__}: {one_line(error)}") from error
    _plugins.append(where)


def _import_file(path: Path) -> None:
    where = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    name = f"triune_plugin_{where}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their types up there
    spec.loader.exec_module(module)
