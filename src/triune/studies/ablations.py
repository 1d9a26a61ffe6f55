"""Ablations and controls: variants of one pre-training recipe, several seeds, one table."""

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from os.path import relpath
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
import yaml

from triune.cells import Cell, Record, write_record
from triune.data.blocks import Blocks
from triune.errors import TriuneError, did_you_mean, one_line, shown
from triune.evaluation.over_seeds import pooled_tests
from triune.evaluation.significance import holm
from triune.models.heads import TriuneForMaskedLM
from triune.presence import RUN, SUMMARY
from triune.studies.scale import VARIANT_LIST
from triune.training.pretrain import check_recipe, model_config
from triune.training.pretraining_cell import pretraining_cell
from triune.training.recipe import Recipe, load_recipe
from triune.training.recipe_files import find_recipe

UNNAMED = "ablations.json"  # of a list called `ablations`; in older results of whatever list was the only one


@dataclass(frozen=True)
class Variant:
    name: str
    about: str
    set: tuple[str, ...]  # overrides of the recipe, as --set
    narrowed_to: str | None = None  # made narrower until it has as many parameters as this variant
    against: str | None = None  # the variant that it is compared with, where that is not the reference of the list

    @property
    def sets_rate(self) -> bool:
        """The rate is what it is about: none is searched."""
        return any(one.startswith("optimizer.learning_rate=") for one in self.set)


@dataclass(frozen=True)
class Ablations:
    name: str  # of its file
    about: str
    reference: str
    variants: tuple[Variant, ...]

    @property
    def file(self) -> str:
        """Of its record: by the name of the list, whether there are other lists or not."""
        return f"{self.name}.json"


def load_ablations(name: str, leave_out: Collection[str] = ()) -> Ablations:
    """A list without some of its variants, if it has them."""
    path = find_recipe(name, VARIANT_LIST)
    try:
        written = yaml.safe_load(path.read_text(encoding="utf-8"))
        variants = tuple(
            Variant(str(key), str(value["about"]), _settings(value), *_others(value))
            for key, value in written["variants"].items()
            if str(key) not in leave_out
        )
        ablations = Ablations(path.stem, str(written.get("about", "")), str(written["reference"]), variants)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise TriuneError(f"cannot read '{path}': {one_line(error)}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise TriuneError(
            f"'{path}' is no list of ablations: it needs reference and variants, each with about and set "
            f"({one_line(error)})"
        ) from error
    names = [variant.name for variant in variants]
    narrowed = {variant.name for variant in variants if variant.narrowed_to}
    for name in names:  # a folder is called by it
        if not name.isprintable() or "/" in name or name.startswith("."):
            raise TriuneError(f"'{path}': a variant cannot be called '{shown(name)}'")
    others = (other for variant in variants for other in (variant.narrowed_to, variant.against) if other is not None)
    for wanted in [ablations.reference, *others]:
        if wanted not in names:
            if wanted in leave_out:
                raise TriuneError(f"'{path}': '{wanted}' is left out, and other variants are compared with it")
            raise TriuneError(f"'{path}': there is no variant '{wanted}'{did_you_mean(wanted, names)}")
    for variant in variants:
        if variant.against == variant.name or (variant.against and variant.name == ablations.reference):
            what = f"'{variant.name}' cannot be compared with '{variant.against}'"
            raise TriuneError(f"'{path}': {what}: leave out its `against`")
        if variant.narrowed_to in narrowed:  # what counts is how many parameters that has in the end
            what = f"'{variant.name}' cannot be narrowed to '{variant.narrowed_to}'"
            raise TriuneError(f"'{path}': {what}, which is narrowed itself: name what that is narrowed to")
    return ablations


def _settings(value: dict[str, Any]) -> tuple[str, ...]:
    if not isinstance(value["set"], list):
        raise TypeError(f"set is a list of PART.KEY=VALUE, not {value['set']!r}")
    return tuple(map(str, value["set"]))


def _others(value: dict[str, Any]) -> list[str | None]:
    """Names, which YAML may have read as numbers."""
    named = (value.get("narrowed_to"), value.get("against"))
    return [None if name is None else str(name) for name in named]


def ablation_cells(
    ablations: Ablations, recipe: str, overrides: Sequence[str], seeds: Sequence[int], data: Path, out: Path
) -> list[Cell]:
    """A pre-training run for each variant and seed, in `out/VARIANT/seed-N`."""
    check_lists([ablations], out)
    recipes = variant_recipes(ablations, recipe, overrides, data)
    for name, chosen in recipes.items():
        check_recipe(chosen, name)  # of all, before the first is trained
    cells = []
    for name, chosen in recipes.items():
        for seed in seeds:
            seeded = replace(chosen, training=replace(chosen.training, seed=seed))
            cells.append(pretraining_cell(f"{name} · seed {seed}", seeded, data, out / name / f"seed-{seed}"))
    return cells


def variant_recipes(ablations: Ablations, recipe: str, overrides: Sequence[str], data: Path) -> dict[str, Recipe]:
    blocks = Blocks(data, "train")
    recipes = written_recipes(ablations, recipe, overrides)
    for variant in ablations.variants:
        if variant.narrowed_to:
            target = _parameters(recipes[variant.narrowed_to], blocks)
            recipes[variant.name] = _narrowed(recipes[variant.name], target, blocks)
    return recipes


def written_recipes(ablations: Ablations, recipe: str, overrides: Sequence[str]) -> dict[str, Recipe]:
    """Before any is made narrower, which takes the vocabulary of the data."""
    return {one.name: load_recipe(recipe, [*overrides, *one.set]) for one in ablations.variants}


def write_ablations(
    ablations: Ablations,
    seeds: Sequence[int],
    out: Path,
    run_of: Callable[[str, int], Path] | None = None,
    left_out: Collection[str] = (),
    missing: Sequence[str] = (),
) -> Record:
    """One record of all variants from the summaries of their runs, with paired tests over seeds.

    `run_of(variant, seed)` says where a run is that is not in `out/VARIANT/seed-N`; `left_out` are variants of the list
    that this record does without, of which `missing` are still to run.
    """
    path = out / ablations.file
    _check_list(ablations, path, left_out)

    def summary_file(name: str, seed: int) -> Path:
        return (run_of(name, seed) if run_of else out / name / f"seed-{seed}") / SUMMARY

    runs = {
        one.name: [json.loads(summary_file(one.name, seed).read_text()) for seed in seeds] for one in ablations.variants
    }
    losses = {name: [summary["validation_loss"] for summary in summaries] for name, summaries in runs.items()}
    p_values = _tests(losses, ablations)
    rows = []
    for variant in ablations.variants:
        first, own = runs[variant.name][0], losses[variant.name]
        rows.append(
            {
                "name": variant.name,
                "about": variant.about,
                "set": list(variant.set),
                **({"against": variant.against} if variant.against else {}),
                "operator": first["operator"],
                "parameters": first["parameters"],
                "runs": [relpath(summary_file(variant.name, seed), out) for seed in seeds],
                "validation_losses": own,
                "validation_loss": mean(own),
                "deviation": stdev(own) if len(own) > 1 else None,
                "p_holm": p_values.get(variant.name),
            }
        )
    one = runs[ablations.reference][0]
    identity = hashlib.sha256("".join(run["identity"] for group in runs.values() for run in group).encode()).hexdigest()
    record = {
        "study": "ablations",
        "identity": identity[:24],
        "about": ablations.about,
        "reference": ablations.reference,
        "seeds": list(seeds),
        "steps": one["steps"],
        "tokens": one["tokens"],
        **{name: one[name] for name in ("unigram_entropy", "unigram_loss") if name in one},
        "device": one["device"],
        "variants": rows,
        "versions": _versions_of(summary_file(ablations.reference, seeds[0]).with_name(RUN)),
    }
    if missing:
        record["missing"] = list(missing)
    if path.name != UNNAMED:
        record["list"] = ablations.name
    if _read(path) != record:
        write_record(path, record)
    return record


def _versions_of(run: Path) -> dict[str, str]:
    """Of what the runs were made with, which may be another machine than the one that makes the table."""
    return dict(json.loads(run.read_text(encoding="utf-8"))["versions"])


def check_lists(lists: Sequence[Ablations], out: Path) -> None:
    """Before anything is run: records of these lists get their names, and another list's in their place is an error."""
    for one in lists:
        _take_over(one, out)
    for one in lists:
        _check_list(one, out / one.file)


def _take_over(ablations: Ablations, out: Path) -> None:
    """A record of this list that was written when the only list had no name of its own gets its name."""
    old, new = out / UNNAMED, out / ablations.file
    held = _read(old) or {}
    if new == old or new.exists() or "list" in held or held.get("reference") != ablations.reference:
        return
    described = {one.name: [one.about, list(one.set)] for one in ablations.variants}
    try:
        is_ours = all(described.get(one["name"]) == [one["about"], one["set"]] for one in held["variants"])
    except (KeyError, TypeError):
        return  # damaged
    if is_ours:
        old.rename(new)


def _check_list(ablations: Ablations, path: Path, left_out: Collection[str] = ()) -> None:
    """A record of other variants is not written over: it may be all that there is of them."""
    names = {*left_out, *(one.name for one in ablations.variants)}
    if lost := [name for name in _variants_in(_read(path) or {}) if name not in names]:
        raise TriuneError(
            f"'{path}' is of a list with {shown(', '.join(lost))}, and '{ablations.name}' has no such variants: choose "
            "another folder, or remove that file"
        )


def says_more(path: Path, seeds: Sequence[int], missing: Collection[str]) -> bool:
    """Whether a record is there with seeds or variants that a new one would be without: its runs may have gone."""
    return not seeds_in(path).issubset(seeds) or not _variants_in(_read(path) or {}).keys().isdisjoint(missing)


def seeds_in(path: Path) -> set[int]:
    """Those of a record; none if there is none, or it is damaged, and made anew."""
    try:
        return set((_read(path) or {})["seeds"])
    except (KeyError, TypeError):
        return set()


def _variants_in(record: Record) -> dict[str, None]:
    """Their names in order; none if it is damaged, and made anew."""
    try:
        return dict.fromkeys(str(one["name"]) for one in record["variants"])
    except (KeyError, TypeError):
        return {}


def _read(path: Path) -> Record | None:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _tests(losses: dict[str, list[float]], ablations: Ablations) -> dict[str, float]:
    """t tests over seeds (same data order and masks), each against its own reference; corrected for all."""
    compared: dict[str, list[str]] = {}
    for one in ablations.variants:
        if one.name != ablations.reference:
            compared.setdefault(one.against or ablations.reference, []).append(one.name)
    p: dict[str, float] = {}
    for reference, names in compared.items():
        differences = np.array([losses[name] for name in names]) - np.array(losses[reference])
        tested = zip(names, pooled_tests(differences), strict=True)
        p |= {name: found.p for name, found in tested if found.p is not None}
    return dict(zip(p, holm(list(p.values())), strict=True))


def _parameters(recipe: Recipe, blocks: Blocks) -> int:
    with torch.device("meta"):
        return int(TriuneForMaskedLM(model_config(recipe, blocks)).num_parameters())


def _narrowed(recipe: Recipe, target: int, blocks: Blocks) -> Recipe:
    """The same recipe, narrower, with `target` parameters but for rounding.

    Of all widths that heads divide, the one at which the feed-forward layer that makes the count right is nearest to
    its usual multiple of the width.
    """

    def shaped(width: int, feed_forward: int) -> Recipe:
        return replace(recipe, model=replace(recipe.model, width=width, feed_forward=feed_forward))

    step = 2 * recipe.model.heads  # rotary positions need heads of even width
    proportion = recipe.model.feed_forward / recipe.model.width
    best: tuple[float, Recipe] | None = None
    for width in range(step, recipe.model.width + 1, step):
        base, one_more = (_parameters(shaped(width, size), blocks) for size in (1, 2))
        feed_forward = 1 + round((target - base) / (one_more - base))
        if feed_forward >= 1:
            distance = abs(feed_forward / width - proportion)
            best = min(
                best or (distance, shaped(width, feed_forward)), (distance, shaped(width, feed_forward)), key=_first
            )
    if best is None:
        raise TriuneError(f"no standard model of {recipe.model.heads} heads has only {target:,} parameters")
    return best[1]


def _first(pair: tuple[float, Any]) -> float:
    return pair[0]
