"""Fine-tuned models as people name them: one model, its seeds, a task, or all that `triune finetune` kept."""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from triune import operators
from triune.errors import TriuneError, one_line, shown
from triune.evaluation.predict import TASK_FILE
from triune.models.locate import Location, locate_model
from triune.models.pretrained import resolved
from triune.presence import MODEL, RECORD

# Where models are under a folder that is none itself: its seeds, its models, its tasks, or a whole results folder.
_LAYOUTS = tuple(f"{seeds}/{MODEL}" for seeds in ("seed-*", "*/seed-*", "*/*/seed-*", "tasks/*/*/seed-*"))
_SEED = re.compile(r"seed-(\d+)")


@dataclass(frozen=True)
class Finetuned:
    label: str
    seed: int
    task: str  # that it was fine-tuned on
    path: str
    location: Location


def find_finetuned(given: Sequence[str], tasks: Collection[str] | None = None) -> list[Finetuned]:
    """PATH or LABEL=PATH each; in the order given, and under a folder by task, model and seed.

    Without a label, a model is called by the folder that holds its seed-N, or by its operator where there is none.
    With `tasks`, only models of those: others under a folder are left out, and one that is named itself is an error.
    """
    found: list[Finetuned] = []
    for text in given:
        label, path = split_label(text)
        inside = _models_in(resolved(path))
        if tasks is not None and not (inside := [one for one in inside if task_of(one) in tasks]):
            raise TriuneError(f"'{path}' holds no model that was fine-tuned on {', '.join(tasks)}")
        names = {_folder_label(one) for one in inside}
        if label is not None and len(names) > 1:
            called = ", ".join(sorted(shown(name) for name in names))
            raise TriuneError(f"'{path}' holds several models ({called}), and '{label}' can name one only")
        found += _in_order([_finetuned(one, label) for one in inside])
    taken: dict[tuple[str, str, int], str] = {}
    for one in found:
        key = (one.task, one.label, one.seed)
        if key in taken:
            raise TriuneError(
                f"'{taken[key]}' and '{one.path}' would both be '{one.label}', seed {one.seed}, on {one.task}: "
                "name them, as in LABEL=PATH"
            )
        taken[key] = one.path
    return found


def split_label(text: str) -> tuple[str | None, str]:
    """LABEL=PATH as both, a path alone with None; an equals sign behind a slash belongs to the path."""
    label, equals, path = text.partition("=")
    if not equals or "/" in label:
        return None, text
    if not label or label.startswith(".") or not label.isprintable():  # folders of records are called by it
        raise TriuneError(f"a model cannot be called '{shown(label)}': name it, as in LABEL=PATH")
    return label, path


def _models_in(path: str) -> list[str]:
    """The model itself (a folder or a name on the hub), or all under a folder."""
    folder = Path(path).expanduser()
    if not folder.is_dir() or any((folder / name / "config.json").is_file() for name in ("", MODEL)):
        return [path]
    for layout in _LAYOUTS:
        if inside := [str(one.parent) for one in folder.glob(f"{layout}/{TASK_FILE}")]:
            return inside
    raise TriuneError(
        f"'{path}' holds no fine-tuned model: give a model, a seed-N folder, a folder of them, or what "
        "`triune finetune --keep all` wrote"
    )


def _finetuned(path: str, label: str | None) -> Finetuned:
    location = locate_model(path)
    seed = _seed(location.path)
    return Finetuned(
        label or _folder_label(location.path) or location.config.operator,
        1 if seed is None else seed,
        task_of(location.path),
        location.path,
        location,
    )


def task_of(path: str) -> str:
    """The task that the model in a folder, or in `model/` of it, was fine-tuned on."""
    folder = Path(path).expanduser()
    file = next((one for one in (folder / TASK_FILE, folder / MODEL / TASK_FILE) if one.is_file()), None)
    if file is None:
        locate_model(path)  # where there is no model at all, that is the thing to say
        raise TriuneError(
            f"'{path}' has no {TASK_FILE}, so nothing says what it was fine-tuned on: give a model of `triune finetune`"
        )
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["task"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TriuneError(f"cannot read the task in '{file}': {one_line(error)}") from error


def precision_of(model: Location) -> str:
    """That of the fine-tuning, whose record lies beside the model, so that the clean score is the same."""
    try:
        record = json.loads((Path(model.path).parent / RECORD).read_text(encoding="utf-8"))
        return str(record["recipe"]["training"]["precision"])
    except (OSError, ValueError, KeyError, TypeError):
        return "float32"  # the model was moved away from it


def _seed_folder(path: str) -> Path | None:
    """The seed-N folder that a model lies in, or that it is."""
    folder = Path(path).resolve()
    return next((one for one in (folder, folder.parent) if _SEED.fullmatch(one.name)), None)


def _seed(path: str) -> int | None:
    folder = _seed_folder(path)
    return None if folder is None else int(folder.name.removeprefix("seed-"))


def _folder_label(path: str) -> str | None:
    folder = _seed_folder(path)
    return None if folder is None else folder.parent.name


def _in_order(found: list[Finetuned]) -> list[Finetuned]:
    order = {name: number for number, name in enumerate(operators.names())}
    return sorted(found, key=lambda one: (one.task, order.get(one.label, len(order)), one.label, one.seed))
