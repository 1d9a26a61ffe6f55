"""Metrics of many resamples at once: a resample is a row of weights, how often each example is in it.

Bootstrap resamples are counts; a permutation is zeros and ones over A's and B's examples put together. Both get exactly
what the plain metric gives for the resample written out: Spearman's ranks are made anew for each.
"""

from collections.abc import Callable

import numpy as np

from triune.evaluation.metrics import METRICS, Array

Scorer = Callable[[Array], Array]  # weights (resamples, examples) -> scores in percent (resamples, seeds)

# A variance so small a part of the whole sample's is rounding: the resample holds one value only.
_ROUNDING = 1e-12


def weighted_scorer(metric: str, labels_N: Array | None, predictions_SN: Array) -> Scorer:
    """A function from weights to scores. `mean` takes scores of examples for predictions, and needs no labels."""
    if metric == "mean":
        return lambda weights_RN: (weights_RN @ predictions_SN.T) / weights_RN.sum(axis=1, keepdims=True)
    assert labels_N is not None
    if parts := METRICS[metric].parts:
        scorers = [weighted_scorer(part, labels_N, predictions_SN) for part in parts]
        return lambda weights_RN: np.mean([scorer(weights_RN) for scorer in scorers], axis=0)
    if metric == "pearson":
        return _pearson_scorer(labels_N, predictions_SN)
    if metric == "spearman":
        return _spearman_scorer(labels_N, predictions_SN)
    return _class_scorer(metric, labels_N, predictions_SN)


def _class_scorer(metric: str, labels_N: Array, predictions_SN: Array) -> Scorer:
    if metric == "accuracy":  # needs no confusion counts, and is asked for most
        correct_NS = (predictions_SN == labels_N).T.astype(np.float64)
        return lambda weights_RN: 100 * (weights_RN @ correct_NS) / weights_RN.sum(axis=1, keepdims=True)
    classes = np.unique(np.concatenate([labels_N, predictions_SN.ravel()]))
    seeds, count = len(predictions_SN), len(classes)
    cells_SN = np.searchsorted(classes, labels_N) * count + np.searchsorted(classes, predictions_SN)
    one_hot_NSC = (cells_SN.T[:, :, None] == np.arange(count * count)).astype(np.float64)
    one_hot = one_hot_NSC.reshape(len(labels_N), -1)
    from_confusion = {"f1": _f1, "macro_f1": _macro_f1, "matthews": _matthews}[metric]

    def scores(weights_RN: Array) -> Array:
        confusion = (weights_RN @ one_hot).reshape(
            len(weights_RN), seeds, count, count
        )  # labels down, predictions right
        return 100 * from_confusion(confusion, classes)

    return scores


def _f1_of_classes(confusion: Array) -> tuple[Array, Array]:
    hits = np.diagonal(confusion, axis1=-2, axis2=-1)
    seen = confusion.sum(axis=-1) + confusion.sum(axis=-2)
    return _divide(2 * hits, seen), seen > 0


def _f1(confusion: Array, classes: Array) -> Array:
    values, _ = _f1_of_classes(confusion)
    positive = np.flatnonzero(classes == 1)
    return values[..., positive[0]] if len(positive) else np.zeros(values.shape[:-1])


def _macro_f1(confusion: Array, classes: Array) -> Array:
    values, present = _f1_of_classes(confusion)  # a class that a resample lost does not count in it
    return values.sum(axis=-1) / present.sum(axis=-1)


def _matthews(confusion: Array, classes: Array) -> Array:
    hits = np.trace(confusion, axis1=-2, axis2=-1)
    true, predicted = confusion.sum(axis=-1), confusion.sum(axis=-2)
    total = true.sum(axis=-1)
    above = hits * total - (true * predicted).sum(axis=-1)
    below = (total**2 - (predicted**2).sum(axis=-1)) * (total**2 - (true**2).sum(axis=-1))
    return _divide(above, np.sqrt(below))


def _pearson_scorer(labels_N: Array, predictions_SN: Array) -> Scorer:
    x_NS, y_N1 = _standard(predictions_SN).T, _standard(labels_N)[:, None]
    sums = np.concatenate([x_NS, x_NS**2, x_NS * y_N1, y_N1, y_N1**2], axis=1)
    seeds = x_NS.shape[1]

    def scores(weights_RN: Array) -> Array:
        means = (weights_RN @ sums) / weights_RN.sum(axis=1, keepdims=True)
        x, xx, xy, y, yy = np.split(means, [seeds, 2 * seeds, 3 * seeds, 3 * seeds + 1], axis=1)
        return 100 * _correlation(xx - x**2, yy - y**2, xy - x * y)

    return scores


def _spearman_scorer(labels_N: Array, predictions_SN: Array) -> Scorer:
    label_ranks = _ranker(labels_N)
    prediction_ranks = [_ranker(predictions_N) for predictions_N in predictions_SN]

    def scores(weights_RN: Array) -> Array:
        y_RN = label_ranks(weights_RN)
        weighted_y_RN = weights_RN * y_RN
        total_R = weights_RN.sum(axis=1)
        yy_R = np.einsum("rn,rn->r", weighted_y_RN, y_RN) / total_R
        columns = []
        for ranks in prediction_ranks:
            x_RN = ranks(weights_RN)
            xx_R = np.einsum("rn,rn,rn->r", weights_RN, x_RN, x_RN) / total_R
            xy_R = np.einsum("rn,rn->r", weighted_y_RN, x_RN) / total_R
            columns.append(_correlation(xx_R, yy_R, xy_R))
        return 100 * np.stack(columns, axis=1)

    return scores


def _ranker(values_N: Array) -> Scorer:
    """From weights to ranks within each resample, ties at their middle rank; centred, and scaled to about one."""
    order_N = np.argsort(values_N, kind="stable")
    _, group_N, counts_G = np.unique(values_N, return_inverse=True, return_counts=True)
    starts_G = np.cumsum(counts_G) - counts_G

    def ranks(weights_RN: Array) -> Array:
        in_group_RG = np.add.reduceat(weights_RN[:, order_N], starts_G, axis=1)
        up_to_RG = np.cumsum(in_group_RG, axis=1)
        total_R1 = up_to_RG[:, -1:]
        # The middle rank is (before + (in_group + 1) / 2); the mean of all ranks, ties or not, is (total + 1) / 2.
        centred_RG = (up_to_RG - (in_group_RG + total_R1) / 2) / total_R1
        return centred_RG[:, group_N]

    return ranks


def _standard(values: Array) -> Array:
    """Centred and scaled, so that sums of squares lose no digits; a constant row becomes zeros."""
    centred = values - values.mean(axis=-1, keepdims=True)
    varies = np.ptp(values, axis=-1, keepdims=True) > 0  # the mean of equal numbers need not be that number
    return _divide(centred, np.where(varies, np.abs(centred).max(axis=-1, keepdims=True), 0.0))


def _correlation(variance_x: Array, variance_y: Array, covariance: Array) -> Array:
    constant = (variance_x <= _ROUNDING) | (variance_y <= _ROUNDING)
    below = np.sqrt(np.where(constant, 1.0, variance_x * variance_y))
    return np.where(constant, 0.0, np.clip(covariance / below, -1, 1))


def _divide(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros(np.broadcast_shapes(above.shape, below.shape)), where=below > 0)
