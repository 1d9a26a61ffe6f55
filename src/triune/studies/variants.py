"""Every model that a scale pre-trains: the operators of the paper and the variants of the ablations.

Two of them may be one: a variant that is nothing but an operator of the paper is not searched or trained twice.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triune.errors import TriuneError
from triune.presence import SUMMARY
from triune.studies.ablations import Ablations, Variant, load_ablations, variant_recipes, written_recipes
from triune.studies.place import FIRST_SEED, Place
from triune.training.recipe import Recipe, load_recipe, read_recipe, swap_operator


def operator_recipes(place: Place) -> dict[str, Recipe]:
    """By label, as written: without the rate of a search."""
    part = place.scale.pretraining
    own = read_recipe(part.recipe, part.set)
    recipes = {}
    for operator in place.labels:
        overrides = [*part.set, *swap_operator(own, operator)]
        overrides += [
            f"model.operator_settings.{key}={json.dumps(value)}"  # which is YAML too: nothing stays nothing
            for key, value in part.settings.get(operator, {}).items()
        ]
        recipes[operator] = load_recipe(part.recipe, overrides)
    return recipes


@dataclass(frozen=True)
class VariantList:
    """A list of variants with their recipes, as written: not yet made narrower, without the rate of a search."""

    ablations: Ablations
    recipes: dict[str, Recipe]

    def written(self, variant: Variant) -> tuple[Recipe, Recipe | None]:
        """The recipe of a variant, and that of the one that it is to be as small as."""
        return self.recipes[variant.name], self.recipes[variant.narrowed_to] if variant.narrowed_to else None

    def same(self, variant: Variant) -> Any:
        """What is equal for two variants that are the same model."""
        recipe, target = self.written(variant)
        return content(recipe), target and content(target), variant.sets_rate


def content(recipe: Recipe) -> dict[str, Any]:
    return {**recipe.to_dict(), "about": ""}


def lists_of(place: Place) -> list[VariantList]:
    part, found = place.scale.ablations, []
    overrides = [*place.scale.pretraining.set, *part.set]
    for name in part.lists if place.variants is None else [place.variants]:
        ablations = load_ablations(name, part.leave_out)
        found.append(VariantList(ablations, written_recipes(ablations, place.scale.pretraining.recipe, overrides)))
    names = [one.ablations.name for one in found]
    if double := [name for name in names if names.count(name) > 1]:
        raise TriuneError(f"ablations.variants has two lists called '{double[0]}': their records would be one file")
    _check_names(found)
    return found


def _check_names(lists: list[VariantList]) -> None:
    """Variants of all lists lie in one folder: what several lists have in common is trained once."""
    seen: dict[str, tuple[str, Any]] = {}
    for one in lists:
        for variant in one.ablations.variants:
            before, same = seen.setdefault(variant.name, (one.ablations.name, one.same(variant)))
            if same != one.same(variant):
                raise TriuneError(
                    f"the variant '{variant.name}' of '{one.ablations.name}' is another one in '{before}': give one of "
                    "them another name"
                )


def final_recipes(place: Place, one: VariantList) -> dict[str, Recipe]:
    """With those made narrower that are to be; the blocks must be there."""
    overrides = [*place.scale.pretraining.set, *place.scale.ablations.set]
    return variant_recipes(one.ablations, place.scale.pretraining.recipe, overrides, place.blocks)


def runs_of_variants(place: Place, one: VariantList, seeds: Sequence[int]) -> dict[tuple[str, int], Path]:
    """By variant and seed: a folder of its own, or that of the pre-training of an operator, if it is the same run."""
    count = place.scale.pretraining.seeds
    trained = [
        (content(seeded(recipe, seed)), place.run_of(label, seed))
        for label, recipe in operator_recipes(place).items()
        for seed in (range(FIRST_SEED, FIRST_SEED + count) if count > 1 else [recipe.training.seed])
    ]
    runs = {}
    for variant in one.ablations.variants:
        for seed in seeds:
            own = place.out / "ablations" / variant.name / f"seed-{seed}"
            wanted = content(seeded(one.recipes[variant.name], seed))
            same = [run for recipe, run in trained if recipe == wanted and not variant.narrowed_to]
            if variant.sets_rate and place.scale.pretraining.rates:
                same = []  # the operator has a rate of its own
            is_there = (own / SUMMARY).is_file()  # of a scale in which it was another run
            runs[variant.name, seed] = own if is_there or not same else same[0]
    return runs


def seeded(recipe: Recipe, seed: int) -> Recipe:
    return replace(recipe, training=replace(recipe.training, seed=seed))
