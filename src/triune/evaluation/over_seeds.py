"""Would another training say the same? Tests over seeds, or over pre-trainings where there are several."""

from dataclasses import dataclass

import numpy as np

from triune.evaluation.metrics import Array

EQUAL = 1e-9  # points or nats: differences closer than this differ by rounding only


@dataclass
class Difference:
    """B − A, with what a test says of it; None where it cannot be told."""

    effect: float
    interval: tuple[float, float] | None
    p: float | None
    freedom: int | None = None  # degrees of freedom of Student's t


def pooled_tests(differences_MR: Array) -> list[Difference]:
    """Several models against one reference in the same runs: is the mean of each difference zero?

    A run (a seed, or a pre-training) has text, order and masks in common for all models: y = model + run + chance. How
    large chance is, is taken from all models together, the reference among them: a few runs of one pair hardly tell.
    Where a pair varies more than the others, its own figure is taken. Student's t has (models − 1) · (runs − 1)
    degrees of freedom; for one model and its reference all of this is the paired t test. In simulations of equal
    models (docs/finetuning.md) it finds a difference in 4 % of the cases, in 7 % where one model varies twice as much
    as the others.

    Where all runs differ by exactly the same amount (small development sets), a t test would claim certainty. Then p
    is that of the sign test, 2^(1 − runs), or 1 for no difference at all, and there is no interval.
    """
    from scipy import stats

    differences_MR = np.asarray(differences_MR, dtype=np.float64)
    others, runs = differences_MR.shape
    effects = [float(effect) for effect in differences_MR.mean(axis=1)]
    if runs < 2:
        return [Difference(effect, None, None) for effect in effects]
    # As differences from the reference, whose own are zero: what all models of a run have in common drops out anyway.
    table = np.concatenate([np.zeros((1, runs)), differences_MR])
    chance = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    if np.ptp(chance) <= EQUAL:
        return [Difference(e, None, 1.0 if abs(e) <= EQUAL else 2.0 ** (1 - runs)) for e in effects]
    freedom = others * (runs - 1)
    of_all_M = np.full(others, (2 * (chance**2).sum() / freedom / runs) ** 0.5)
    error_M = np.maximum(of_all_M, differences_MR.std(axis=1, ddof=1) / runs**0.5)
    half_M = stats.t.ppf(0.975, freedom) * error_M
    p_M = 2 * stats.t.sf(np.abs(effects) / error_M, freedom)
    return [
        Difference(effect, (effect - half, effect + half), float(p), freedom)
        for effect, half, p in zip(effects, half_M.tolist(), p_M, strict=True)
    ]
