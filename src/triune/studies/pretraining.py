"""Stages that pre-train: the search of rates, the models of the paper (Figure 2), the ablations and controls."""

from dataclasses import replace
from pathlib import Path

from triune.cells import Cell, run_missing
from triune.progress import Done
from triune.studies.place import Place

SUMMARY = "summary.json"


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
    return [place.run_of(label, seed) / SUMMARY for seed in place.pretraining_seeds for label in place.labels]


def run_pretraining(place: Place, done: Done) -> None:
    from triune.studies.rates import best_rates, with_rate
    from triune.studies.variants import operator_recipes, seeded
    from triune.training.pretraining_cell import pretraining_cell

    best, several = best_rates(place), place.scale.pretraining.seeds > 1
    cells = []
    for seed in place.pretraining_seeds:
        for label, written in operator_recipes(place).items():
            if (recipe := with_rate(place, best, written, written)) is None:
                continue
            title = f"{label}, seed {seed}, {recipe.about}" if several else f"{label}, {recipe.about}"
            recipe = seeded(recipe, seed) if several else recipe
            cells.append(pretraining_cell(title, recipe, place.blocks, place.run_of(label, seed)))
    run_missing(cells, place.engine, done)


# Ablations and controls.


def ablation_records(place: Place) -> list[Path]:
    from triune.studies.variants import lists_of, runs_of_variants

    seeds = place.of_round(place.scale.ablations.seeds)
    runs = [run for one in lists_of(place) for run in runs_of_variants(place, one, seeds).values()]
    return [run / SUMMARY for run in dict.fromkeys(runs)]  # lists may have variants in common


def run_ablations(place: Place, done: Done) -> None:
    from triune.studies.ablations import RECORD, write_ablations
    from triune.studies.variants import lists_of, runs_of_variants

    part = place.scale.ablations
    run_missing(_ablation_cells(place), place.engine, done)
    lists = lists_of(place)
    for one in lists:
        all_seeds = replace(place, round=None).of_round(part.seeds)
        runs = runs_of_variants(place, one, all_seeds)
        names = [variant.name for variant in one.ablations.variants]
        whole = [seed for seed in all_seeds if all((runs[name, seed] / SUMMARY).is_file() for name in names)]
        file = RECORD if len(lists) == 1 else f"{one.ablations.name}.json"
        if whole:
            write_ablations(one.ablations, whole, place.out / "ablations", file, lambda *key, runs=runs: runs[key])


def _ablation_cells(place: Place) -> list[Cell]:
    from triune.studies.rates import best_rates, with_rate
    from triune.studies.variants import final_recipes, lists_of, runs_of_variants, seeded
    from triune.training.pretraining_cell import pretraining_cell

    best, seeds = best_rates(place), place.of_round(place.scale.ablations.seeds)
    cells: dict[Path, Cell] = {}
    for one in lists_of(place):
        runs, recipes = runs_of_variants(place, one, seeds), final_recipes(place, one)
        for variant in one.ablations.variants:
            written, chosen = one.recipes[variant.name], recipes[variant.name]
            target = one.recipes[variant.narrowed_to] if variant.narrowed_to else None
            recipe = chosen if variant.sets_rate else with_rate(place, best, chosen, written, target)
            if recipe is None:
                continue
            for seed in seeds:
                run = runs[variant.name, seed]
                title = f"{variant.name} · seed {seed}"
                cells.setdefault(run, pretraining_cell(title, seeded(recipe, seed), place.blocks, run))
    return list(cells.values())
