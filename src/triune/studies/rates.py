"""The search of rates: every model is pre-trained shortly at each rate of one grid, and takes the one it did best at.

Records are `rates/MODEL/RATE/summary.json`; the weights of these runs are not kept.
"""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triune.cells import Cell, Record, finished, write_record
from triune.data.blocks import Blocks
from triune.errors import DivergedError
from triune.presence import SUMMARY
from triune.studies.place import Place
from triune.studies.variants import VariantList, content, final_recipes, lists_of, operator_recipes
from triune.training import run_folder
from triune.training.pretraining_cell import run_pretraining
from triune.training.recipe import Recipe

STUDY = "rates"


@dataclass(frozen=True)
class Arm:
    """A model whose rate is searched; those with the same content are one."""

    name: str  # of its folder
    same: str
    operator: str
    number: int | None = None  # of the list of variants that it is from; None for an operator of the paper
    variant: str = ""

    @property
    def of_operator(self) -> bool:
        return self.number is None


def arms(place: Place) -> list[Arm]:
    """Of all lists, whichever the place is to do: names, and who shares a search, do not depend on that.

    Known before there are blocks: a narrower variant is told by what it is to be as small as.
    """
    if not place.scale.pretraining.rates:
        return []
    found: dict[str, Arm] = {}
    for label, recipe in operator_recipes(place).items():
        same = _same(place, recipe)
        found.setdefault(same, Arm(label, same, recipe.model.operator))
    taken = {arm.name for arm in found.values()}
    for number, one in enumerate(_all_lists(place)):
        for variant in one.ablations.variants:
            if variant.sets_rate:
                continue
            written, narrowed_to = one.written(variant)
            same = _key(place, written, narrowed_to)
            name = variant.name if variant.name not in taken else f"{one.ablations.name}-{variant.name}"
            if same not in found:
                found[same] = Arm(name, same, written.model.operator, number, variant.name)
                taken.add(name)
    return list(found.values())


def rate_records(place: Place, of_operators: bool) -> list[Path]:
    if not place.is_first_round:
        return []
    rates = place.scale.pretraining.rates
    return [_folder(place, arm, rate) / SUMMARY for arm in _arms_to_do(place, of_operators) for rate in rates]


def rate_cells(place: Place, of_operators: bool) -> list[Cell]:
    return [cell for cells in _cells(place, _arms_to_do(place, of_operators)).values() for cell in cells]


def _arms_to_do(place: Place, of_operators: bool) -> list[Arm]:
    if not place.scale.pretraining.rates:
        return []
    listed = {_key(place, *one.written(variant)) for one in lists_of(place) for variant in one.ablations.variants}
    return [
        arm
        for arm in arms(place)
        if arm.of_operator == of_operators and (of_operators or arm.same in listed) and place.takes(arm.operator)
    ]


def _all_lists(place: Place) -> list[VariantList]:
    return lists_of(replace(place, variants=None))


def best_rates(place: Place) -> dict[str, float]:
    """By what makes models the same (see `with_rate`), of those whose search is finished."""
    best = {}
    for arm, cells in _cells(place, arms(place)).items():
        records = [finished(cell) for cell in cells]
        if all(records):
            losses = [_loss(record) for record in records if record is not None]
            lowest, rate = min(zip(losses, place.scale.pretraining.rates, strict=True))
            best[arm.same] = rate if math.isfinite(lowest) else math.nan
    return best


def with_rate(
    place: Place, best: dict[str, float], recipe: Recipe, written: Recipe, narrowed_to: Recipe | None = None
) -> Recipe | None:
    """The recipe at the best rate; `written` is before it was narrowed.

    None where the search is not finished, and where every rate of it diverged.
    """
    if not place.scale.pretraining.rates:
        return recipe
    rate = best.get(_key(place, written, narrowed_to), math.nan)
    return None if math.isnan(rate) else _at_rate(recipe, rate)


def search_diverged(place: Place, best: dict[str, float], written: Recipe, narrowed_to: Recipe | None = None) -> bool:
    """At every rate of the grid."""
    return bool(place.scale.pretraining.rates) and math.isnan(best.get(_key(place, written, narrowed_to), 0.0))


def _key(place: Place, written: Recipe, narrowed_to: Recipe | None) -> str:
    return _same(place, written) + (_same(place, narrowed_to) if narrowed_to else "")


def run_rate(recipe: dict[str, Any], data: Path, folder: Path, identity: str) -> Record:
    """A short pre-training in a folder beside, of which the summary is kept; one that diverges loses the search."""
    beside = folder.with_name(f".{folder.name}")
    made_of = {
        "recipe": recipe,
        "data": run_folder.data_hashes(Blocks(data, "train")),
        "versions": run_folder.versions(),
    }
    record = {"study": STUDY, "identity": identity, "learning_rate": recipe["optimizer"]["learning_rate"], **made_of}
    try:
        summary = run_pretraining(recipe, data, beside)
        record = {**{name: value for name, value in summary.items() if name != "run"}, **record}
    except DivergedError as error:
        record |= {"operator": recipe["model"]["operator"], "diverged": error.short}
    write_record(folder / SUMMARY, record)
    shutil.rmtree(beside, ignore_errors=True)
    return record


def _loss(record: Record) -> float:
    loss = math.nan if "diverged" in record else record["validation_loss"]
    return loss if math.isfinite(loss) else math.inf


def _folder(place: Place, arm: Arm, rate: float) -> Path:
    return place.out / STUDY / arm.name / f"{rate:g}"


def _cells(place: Place, chosen: Sequence[Arm]) -> dict[Arm, list[Cell]]:
    operators = operator_recipes(place)
    lists = {number for arm in chosen if (number := arm.number) is not None}
    variants = {number: final_recipes(place, one) for number, one in enumerate(_all_lists(place)) if number in lists}
    data = run_folder.data_hashes(Blocks(place.blocks, "train")) if chosen else {}
    cells: dict[Arm, list[Cell]] = {}
    for arm in chosen:
        recipe = operators[arm.name] if arm.number is None else variants[arm.number][arm.variant]
        for rate in place.scale.pretraining.rates:
            tried = _at_rate(_short(place, recipe), rate)
            identity = run_folder.identity_of(tried, data)
            folder = _folder(place, arm, rate)
            arguments = {"recipe": tried.to_dict(), "data": place.blocks, "folder": folder, "identity": identity}
            cell = Cell(f"{arm.name} · rate {rate:g}", run_rate, arguments, folder / SUMMARY, identity)
            cells.setdefault(arm, []).append(cell)
    return cells


def _short(place: Place, recipe: Recipe) -> Recipe:
    steps = place.scale.pretraining.search["steps"]
    return replace(recipe, training=replace(recipe.training, steps=steps, epochs=None))


def _at_rate(recipe: Recipe, rate: float) -> Recipe:
    return replace(recipe, optimizer=replace(recipe.optimizer, learning_rate=rate))


def _same(place: Place, recipe: Recipe) -> str:
    return json.dumps(content(_at_rate(_short(place, recipe), place.scale.pretraining.rates[0])), sort_keys=True)
