"""Stages that pre-train: the search of rates, the models of the paper (Figure 2), the ablations and controls."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from triune.cells import Cell, run_missing
from triune.errors import TriuneError
from triune.presence import SUMMARY, diverged
from triune.progress import Done
from triune.studies.place import Place

if TYPE_CHECKING:
    from triune.studies.ablations import Ablations
    from triune.studies.variants import VariantList


# The search of rates: before the models of the paper, and before the ablations.


def rate_records(place: Place) -> list[Path]:
    from triune.studies import rates

    return rates.rate_records(place, of_operators=True)


def run_rates(place: Place, done: Done) -> None:
    from triune.studies import rates

    run_missing(rates.rate_cells(place, of_operators=True), place.engine, done)


def variant_rate_records(place: Place) -> list[Path]:
    from triune.studies import rates

    return rates.rate_records(place, of_operators=False)


def run_variant_rates(place: Place, done: Done) -> None:
    from triune.studies import rates

    run_missing(rates.rate_cells(place, of_operators=False), place.engine, done)


# Pre-training (Figure 2).


def pretraining_records(place: Place) -> list[Path]:
    return [place.run_of(label, seed) / SUMMARY for seed in place.pretraining_seeds for label in place.in_turn]


def run_pretraining(place: Place, done: Done) -> None:
    from triune.studies.rates import best_rates, search_diverged, with_rate
    from triune.studies.variants import operator_recipes, seeded
    from triune.training.pretraining_cell import pretraining_cell

    best, several, recipes = best_rates(place), place.scale.pretraining.seeds > 1, operator_recipes(place)
    if all(search_diverged(place, best, recipes[label]) for label in place.in_turn):
        raise TriuneError(
            f"{', '.join(place.in_turn)}: every rate of the search diverged; lower pretraining.search.learning_rates"
        )
    cells = []
    for seed in place.pretraining_seeds:
        for label in place.in_turn:
            written = recipes[label]
            if (recipe := with_rate(place, best, written, written)) is None:
                continue
            title = f"{label}, seed {seed}" if several else label
            recipe = seeded(recipe, seed) if several else recipe
            cells.append(pretraining_cell(title, recipe, place.blocks, place.run_of(label, seed)))
    run_missing(cells, place.engine, done)


# Ablations and controls.


def ablation_records(place: Place) -> list[Path]:
    from triune.studies.variants import lists_of, runs_of_variants

    runs = [
        run
        for one in lists_of(place)
        for (name, _), run in runs_of_variants(place, one, _seeds(place, one)).items()
        if place.takes(one.recipes[name].model.operator)
    ]
    return [run / SUMMARY for run in dict.fromkeys(runs)]  # lists may have variants in common


def _seeds(place: Place, one: "VariantList") -> list[int]:
    """Of a list, those of the round of the place."""
    return place.of_round(place.scale.ablations.seeds_of(one.ablations.name))


def run_ablations(place: Place, done: Done) -> None:
    from triune.studies.ablations import check_lists, says_more, seeds_in, write_ablations
    from triune.studies.rates import best_rates, search_diverged
    from triune.studies.variants import lists_of, runs_of_variants

    folder = place.out / "ablations"
    lists = lists_of(place)
    check_lists([one.ablations for one in lists_of(replace(place, variants=None))], folder)
    cells = _ablation_cells(place)
    if place.engine.budget is not None and len(place.rounds) > 1:
        # A variant may be a run of pre-training, which is made with its round, when there is time to go on from it.
        cells = [cell for cell in cells if cell.record.is_relative_to(folder) or cell.record.is_file()]
    run_missing(cells, place.engine, done)
    best = best_rates(place)
    for one in lists:
        all_seeds = _seeds(replace(place, round=None), one)
        runs = runs_of_variants(place, one, all_seeds)
        lost = {
            variant.name
            for variant in one.ablations.variants
            if not variant.sets_rate and search_diverged(place, best, *one.written(variant))
        }
        ablations = without_diverged(one.ablations, all_seeds, lambda *key, runs=runs: runs[key], lost)
        if ablations is None:
            continue
        there = {key for key, run in runs.items() if (run / SUMMARY).is_file()}
        kept, seeds = comparable(ablations, all_seeds, there, seeds_in(folder / ablations.file))
        if kept is None or len(kept.variants) < 2:
            continue
        names = [variant.name for variant in kept.variants]
        missing = [variant.name for variant in ablations.variants if variant.name not in names]
        if says_more(folder / kept.file, seeds, missing):
            continue
        left_out = {variant.name for variant in one.ablations.variants} - set(names)
        write_ablations(kept, seeds, folder, lambda *key, runs=runs: runs[key], left_out, missing)


def without_diverged(
    ablations: "Ablations", seeds: Sequence[int], run_of: Callable[[str, int], Path], lost: Collection[str] = ()
) -> "Ablations | None":
    """Of a list, the variants that can be compared; None where the reference is not among them.

    A variant that diverged with one seed has no mean over seeds, and one that is compared with it is left out too. The
    page names such runs.
    """
    kept = tuple(
        one
        for one in ablations.variants
        if one.name not in lost and not any(diverged(run_of(one.name, seed) / SUMMARY) for seed in seeds)
    )
    return restricted(ablations, {one.name for one in kept})


def comparable(
    ablations: "Ablations", all_seeds: Sequence[int], there: Collection[tuple[str, int]], held: Collection[int]
) -> "tuple[Ablations | None, list[int]]":
    """The variants whose runs are there, and the seeds that all of them have.

    Where a record holds more seeds already, its seeds, and the variants that have them all: one that is new to the list
    waits until it has run as often as the others.
    """

    def with_all(seeds: Sequence[int]) -> "Ablations | None":
        names = {one.name for one in ablations.variants}
        return restricted(ablations, {name for name in names if all((name, seed) in there for seed in seeds)})

    kept = with_all(all_seeds[:1])
    if kept is None:
        return None, []
    common = [seed for seed in all_seeds if all((one.name, seed) in there for one in kept.variants)]
    seeds = [seed for seed in all_seeds if seed in common or seed in held]
    return with_all(seeds), seeds


def restricted(ablations: "Ablations", names: Collection[str]) -> "Ablations | None":
    """A list of these variants only: without those whose counterpart is not among them; None without the reference."""
    kept = tuple(one for one in ablations.variants if one.name in names and (one.against or one.name) in names)
    return replace(ablations, variants=kept) if ablations.reference in names else None


def _ablation_cells(place: Place) -> list[Cell]:
    from triune.studies.rates import best_rates, with_rate
    from triune.studies.variants import final_recipes, lists_of, runs_of_variants, seeded
    from triune.training.pretraining_cell import pretraining_cell

    best = best_rates(place)
    cells: dict[Path, Cell] = {}
    for one in lists_of(place):
        seeds = _seeds(place, one)
        runs, chosen = runs_of_variants(place, one, seeds), final_recipes(place, one)
        taken = [variant for variant in one.ablations.variants if place.takes(chosen[variant.name].model.operator)]
        rated = {
            variant.name: chosen[variant.name]
            if variant.sets_rate
            else with_rate(place, best, chosen[variant.name], *one.written(variant))
            for variant in taken
        }
        # A budget may end anywhere: all variants have one seed before one of them has the next.
        for seed in seeds:
            for name, recipe in rated.items():
                if recipe is not None:
                    run, title = runs[name, seed], f"{name} · seed {seed}"
                    cells.setdefault(run, pretraining_cell(title, seeded(recipe, seed), place.blocks, run))
    return list(cells.values())
