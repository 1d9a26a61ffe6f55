"""Recipes on disk: YAML in typed parts, with overrides; whatever is unknown or of the wrong type is one clear line."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from huggingface_hub.errors import StrictDataclassError

from triune.errors import TriuneError, did_you_mean, one_line
from triune.typed import mistyped

Number = float | int
Parts = dict[str, type]
_FOLDERS = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[3] / "recipes")
NOTHING = {dict: "{}", list: "[]"}
LARGEST = 2**32  # of whole numbers: more cannot be meant, and what counts with them would fail in ways of its own


def check_optimizer(part: Any) -> None:
    """What the optimisers of all recipes have in common."""
    if not 0 <= part.warmup < 1:
        raise ValueError(f"optimizer.warmup is a share of the steps between 0 and 1, not {part.warmup}")
    numbers = all(isinstance(beta, Number) and not isinstance(beta, bool) for beta in part.betas)
    if len(part.betas) != 2 or not numbers or not all(0 <= beta < 1 for beta in part.betas):
        raise ValueError(f"optimizer.betas must be two numbers from 0 up to 1, not {part.betas}")
    for name in ("weight_decay", "epsilon", "clip"):
        if not 0 <= getattr(part, name) < math.inf:
            raise ValueError(f"optimizer.{name} must be a number from 0 up, not {getattr(part, name)}")


def check_dropouts(part: Any, names: Sequence[str]) -> None:
    for name in names:
        if not 0 <= (getattr(part, name) or 0) < 1:
            raise ValueError(f"model.{name} is a share from 0 up to 1, not {getattr(part, name)}")


def find_recipe(name: str, parts: Parts) -> Path:
    """A path, or the name of a recipe that comes with the project; those with other parts are of another kind."""
    if (path := Path(name)).suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise TriuneError(f"recipe '{name}' does not exist")
        return path
    for folder in _FOLDERS:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    hint = did_you_mean(name, recipes_with(parts))
    raise TriuneError(f"unknown recipe '{name}'{hint}, or give the path of a .yaml file")


def recipes_with(parts: Parts) -> list[str]:
    """The names of the recipes of one kind that come with the project."""
    files = [found for folder in _FOLDERS for found in folder.glob("*.yaml")]
    return sorted({found.stem for found in files if set(yaml.safe_load(found.read_text())) <= {*parts, "about"}})


def read_parts(name: str, overrides: list[str] | None, parts: Parts) -> dict[str, Any]:
    """The parts of a recipe, built and checked, and `about`."""
    path = find_recipe(name, parts)
    try:
        written = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise TriuneError(f"cannot read recipe '{path}': {one_line(error)}") from error
    if not isinstance(written, dict):
        raise TriuneError(f"recipe '{path}' must hold the parts {', '.join(parts)}")
    for override in overrides or []:
        _apply(written, override, parts)
    return parts_from_dict(written, parts, str(path))


def parts_from_dict(written: dict[str, Any], parts: Parts, where: str) -> dict[str, Any]:
    for part in written:
        if part not in (*parts, "about"):
            raise TriuneError(f"recipe '{where}': unknown part '{part}'{did_you_mean(str(part), parts)}")
    built = {name: _build_part(name, parts[name], written.get(name) or {}, where) for name in parts}
    return {**built, "about": str(written.get("about", ""))}


def _build_part(name: str, part: type, values: Any, where: str) -> Any:
    hints = get_type_hints(part)
    if not isinstance(values, dict):
        raise TriuneError(f"recipe '{where}': '{name}' must hold keys and values")
    for key in values:
        if key not in hints:
            raise TriuneError(f"recipe '{where}': unknown key '{name}.{key}'{did_you_mean(str(key), hints)}")
        if values[key] is None and hints[key] in NOTHING:
            raise TriuneError(f"recipe '{where}': '{name}.{key}' is null; for nothing write {NOTHING[hints[key]]}")
    values = {key: _number(value, hints[key]) for key, value in values.items()}
    for key, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, int) and abs(one) > LARGEST:
                raise TriuneError(f"recipe '{where}': '{name}.{key}' is {one}, which is too large")
    try:
        return part(**values)
    except StrictDataclassError as error:
        said = mistyped(part, values) or one_line(error.__cause__ or error)
        raise TriuneError(f"recipe '{where}', {name}: {said}") from error


_POWER = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


def _number(value: Any, hint: Any) -> Any:
    """YAML reads `1e-3` as text; people write it as a number."""
    if isinstance(value, list) and "list" in str(hint):
        return [_number(entry, float) for entry in value]
    if isinstance(value, dict):  # settings of an operator, whose types only it knows
        return {name: float(one) if _POWER.fullmatch(str(one)) else one for name, one in value.items()}
    if isinstance(value, str) and "float" in str(hint):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _apply(written: dict[str, Any], override: str, parts: Parts) -> None:
    key, equals, value = override.partition("=")
    part, dot, name = key.partition(".")
    if not equals or not dot:
        raise TriuneError(f"'{override}' is not PART.KEY=VALUE: parts are {', '.join(parts)}")
    if part not in parts:
        raise TriuneError(f"'{override}': unknown part '{part}'{did_you_mean(str(part), parts)}")
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise TriuneError(f"'{override}': the value is not valid YAML") from error
    target = written[part] = written.get(part) or {}  # a part without keys is None in YAML
    if not isinstance(target, dict):
        raise TriuneError(f"'{override}': '{part}' is {target} in the recipe, and must hold keys and values")
    if part == "training" and name in ("steps", "epochs"):  # one replaces the other
        target.pop("epochs" if name == "steps" else "steps", None)
    first, inner, rest = name.partition(".")
    if inner:  # operator_settings.role_start=signed
        within = target.setdefault(first, {})
        if not isinstance(within, dict):
            raise TriuneError(f"'{override}': '{part}.{first}' is {within}, which has no keys")
        within[rest] = parsed
    else:
        target[name] = parsed
