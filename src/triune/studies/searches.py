"""Which pre-training seed the search of a fine-tuning recipe starts from: all rates and operators of a task from one.

It is the first. Where the weights of the first have gone, or one of them diverged, before the search was finished, a
later round makes a search of its own, in folders with another ending, and keeps to it.
"""

from triune.presence import MODEL, RECORD, SUMMARY, diverged, has_weights
from triune.studies.place import FIRST_SEED, Place


def ending(seed: int) -> str:
    """Of the folders of a search."""
    return "" if seed == FIRST_SEED else f"-from-{seed}"


def search_folders(place: Place, task: str, seed: int) -> list[str]:
    from triune.training.matrix import search_folder

    return [search_folder(rate, ending(seed)) for rate in place.recipe_for(task).search.learning_rates]


def search_seed(place: Place, task: str) -> int:
    """Of the round of the place."""
    if place.is_first_round or not place.recipe_for(task).search.learning_rates:
        return FIRST_SEED
    [own] = place.pretraining_seeds
    labels = [label for label in place.labels if not diverged(place.run_of(label, own) / SUMMARY)]

    def is_there(label: str, seed: int) -> bool:
        return has_weights(place.run_of(label, seed) / MODEL)

    def is_searched(label: str, seed: int) -> bool:
        folder = place.out / "tasks" / task / label
        return all((folder / name / RECORD).is_file() for name in search_folders(place, task, seed))

    for seed in range(own, FIRST_SEED, -1):  # the latest: what was chosen stays chosen
        if all(is_searched(label, seed) for label in labels):
            return seed
    if all(is_searched(label, FIRST_SEED) or is_there(label, FIRST_SEED) for label in labels):
        return FIRST_SEED
    return own if all(is_there(label, own) for label in labels) else FIRST_SEED
