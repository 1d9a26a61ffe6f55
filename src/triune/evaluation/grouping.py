"""Seeds that belong together: fine-tunings of one pre-trained model are no independent runs of its kind."""

from collections.abc import Hashable, Sequence

import numpy as np

from triune.evaluation.metrics import Array


def groups_of(models_a: Sequence[Hashable], models_b: Sequence[Hashable]) -> list[int]:
    """A number for each seed, from the model that it started from on either side.

    Seeds that have a model in common, on one side or both, are in one group: what that model is by chance is in all of
    them.
    """
    groups = list(range(len(models_a)))
    for side in (models_a, models_b):
        first: dict[Hashable, int] = {}
        for number, model in enumerate(side):
            here, there = groups[number], groups[first.setdefault(model, number)]
            groups = [there if group == here else group for group in groups]
    order = list(dict.fromkeys(groups))
    return [order.index(group) for group in groups]


def all_known(*sides: Sequence[Hashable | None]) -> bool:
    """Whether it is known of every seed, on each side, which model it started from."""
    return all(model is not None for side in sides for model in side)


def means_of_groups(values_S: Array, groups_S: Array) -> Array:
    return np.array([values_S[groups_S == group].mean() for group in np.unique(groups_S)])


def weights_of_seeds(groups_S: Array) -> Array:
    """Groups weigh the same, and so do the seeds of a group; all together one."""
    _, place_S, sizes_G = np.unique(groups_S, return_inverse=True, return_counts=True)
    return 1 / (len(sizes_G) * sizes_G[place_S])


def drawn_weights(generator: np.random.Generator, rows: int, groups_S: Array) -> Array:
    """`weights_of_seeds` of resamples: groups are drawn with replacement, then seeds within each that was drawn."""
    members = [np.flatnonzero(groups_S == group) for group in np.unique(groups_S)]
    sizes_G = np.array([len(one) for one in members])
    padded_GM = np.stack([np.resize(one, sizes_G.max()) for one in members])
    weights_RS = np.zeros((rows, len(groups_S)))
    for group_R in generator.integers(0, len(members), (len(members), rows)):
        size_R = sizes_G[group_R]
        for draw in range(sizes_G.max()):
            seed_R = padded_GM[group_R, generator.integers(0, size_R)]
            weight_R = np.where(draw < size_R, 1 / (len(members) * size_R), 0.0)
            weights_RS[np.arange(rows), seed_R] += weight_R
    return weights_RS
