"""Is a difference between two models on one task real? Tests over examples, over seeds, and over both."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from triune.errors import TriuneError
from triune.evaluation.grouping import drawn_weights, means_of_groups, weights_of_seeds
from triune.evaluation.metrics import METRICS, Array, Metric, checked, metric_named
from triune.evaluation.over_seeds import EQUAL, Difference, pooled_tests
from triune.evaluation.weighted import weighted_scorer

RESAMPLES = 2_000
ALPHA = 0.05
ONE_SEED = "one seed: nothing is said about training noise"
NOT_TESTED = "not tested: one run of each"
UNKNOWN_ORIGIN = "not tested: it is not known which runs are of one pre-training"

_WEIGHTS_AT_ONCE = 2_000_000  # resamples × examples held in memory together
_HALF_OF_NORMAL = 1.96  # standard deviations: half of a 95 % interval
_SCORES = Metric("mean", "mean of the examples' scores", "numbers")


@dataclass
class Paired:
    """Two models on one task: the same examples, and the same seeds in the same order.

    Predictions are (seeds, examples), or (examples,) for one seed. With the metric `mean` they are scores of examples
    (SQuAD: F1 of each question), in the unit that the effect shall have, and there are no labels.

    `groups` says which pre-training each seed is of (`grouping.groups_of`). With several, pre-trainings are the sample
    and weigh the same, however many fine-tunings each has; with one, or where it is not said, the seeds are.

    Pairs of one task, with one A and the same `numbers` (of the seeds), are tested over seeds together. Those of one
    `family` are corrected together.
    """

    task: str
    metric: str
    a: str
    b: str
    predictions_a: Any
    predictions_b: Any
    labels: Any = None
    groups: Any = None
    numbers: Sequence[int] | None = None
    family: str = ""
    known_origin: bool = True  # False where it is not known which pre-training each seed is of
    pretrainings: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        metric = _SCORES if self.metric == "mean" else metric_named(self.metric)
        where = f"{self.task}, {self.a} and {self.b}"
        self.predictions_a = np.atleast_2d(checked(metric, self.predictions_a, f"predictions of {self.a}"))
        self.predictions_b = np.atleast_2d(checked(metric, self.predictions_b, f"predictions of {self.b}"))
        shape_a, shape_b = self.predictions_a.shape, self.predictions_b.shape
        if shape_a != shape_b or len(shape_a) != 2:
            raise TriuneError(f"{where}: predictions of {shape_a} and {shape_b} (seeds, examples) do not pair up")
        self._set_groups(where)
        if metric is _SCORES:
            self.labels = None
            return
        if self.labels is None:
            raise TriuneError(f"{where}: {self.metric} needs labels: give them, or scores of examples with 'mean'")
        self.labels = checked(metric, self.labels, "labels")
        if self.labels.shape != shape_a[1:]:
            raise TriuneError(
                f"{where}: {self.labels.shape} labels do not fit {shape_a[1]} examples: give one for each"
            )

    def _set_groups(self, where: str) -> None:
        alone = np.arange(self.seeds)
        groups = alone if self.groups is None else np.asarray(self.groups)
        if groups.shape != alone.shape:
            raise TriuneError(f"{where}: {groups.shape} groups do not fit {self.seeds} seeds: give one for each")
        self.pretrainings = 1 if self.groups is None else len(np.unique(groups))
        self.groups = groups if self.pretrainings > 1 else alone

    @property
    def is_grouped(self) -> bool:
        """Whether some seeds are of one pre-training and others of another."""
        return len(np.unique(self.groups)) < self.seeds

    @property
    def seeds(self) -> int:
        return int(self.predictions_a.shape[0])

    @property
    def examples(self) -> int:
        return int(self.predictions_a.shape[1])

    def differences(self) -> Array:
        """B − A for each seed, on all examples."""
        everything = np.ones((1, self.examples))
        score_a, score_b = (weighted_scorer(self.metric, self.labels, p) for p in self._predictions())
        return (score_b(everything) - score_a(everything))[0]

    def independent_differences(self) -> Array:
        """B − A for each seed, or for each pre-training where there are several: the mean of its seeds."""
        return means_of_groups(self.differences(), self.groups)

    def _predictions(self) -> tuple[Array, Array]:
        return self.predictions_a, self.predictions_b


def paired_bootstrap(pair: Paired, resamples: int = RESAMPLES, seed: int = 0) -> Difference:
    """Seeds and examples are both drawn anew, the same for A and B: 95 % percentile interval and two-sided p."""
    difference = _difference_scorer(pair)
    counts_RN, seeds_RS = _resampled(seed, resamples, pair.examples, tuple(pair.groups.tolist()))
    effects = np.concatenate(
        [
            (difference(counts_RN[part].astype(np.float64)) * seeds_RS[part]).sum(axis=1)
            for part in _chunks(resamples, pair.examples)
        ]
    )
    low, high = np.percentile(effects, [2.5, 97.5])
    tail = min((effects <= EQUAL).sum(), (effects >= -EQUAL).sum())
    p = min(1.0, 2 * (int(tail) + 1) / (resamples + 1))
    return Difference(float(pair.independent_differences().mean()), (float(low), float(high)), p)


@dataclass
class Swapped:
    """What swapping A and B on examples at random says of B − A."""

    p: float  # two-sided
    spread: float  # standard deviation of B − A over swaps: what the choice of examples alone does


def permutation_test(pair: Paired, permutations: int = RESAMPLES, seed: int = 0) -> Swapped:
    """A and B are swapped on examples at random, the same swaps in all seeds."""
    effect = _effect_of_swaps(pair)
    swaps_PN = _swaps(seed, permutations, pair.examples)
    effects = np.concatenate(
        [effect(swaps_PN[part].astype(np.float64)) for part in _chunks(permutations, 2 * pair.examples)]
    )
    observed = abs(effect(np.zeros((1, pair.examples)))[0])
    as_far = np.abs(effects) >= observed - EQUAL
    return Swapped((int(as_far.sum()) + 1) / (permutations + 1), float(np.sqrt((effects**2).mean())))


# All pairs of one size meet the same resamples: a study has dozens, and drawing them takes longer than scoring them.


@lru_cache(maxsize=4)
def _resampled(seed: int, resamples: int, examples: int, groups: tuple[int, ...]) -> tuple[Array, Array]:
    """How often each example is in each resample (R, N), and the weights of the seeds in it (R, S)."""
    generator, groups_S = np.random.default_rng(seed), np.array(groups)
    is_grouped = len(np.unique(groups_S)) < len(groups_S)
    counts, weights = [], []
    for part in _chunks(resamples, examples):
        rows = part.stop - part.start
        counts.append(_counts(generator, rows, examples).astype(np.uint16 if examples < 2**16 else np.uint32))
        drawn = drawn_weights(generator, rows, groups_S) if is_grouped else None
        weights.append(_counts(generator, rows, len(groups)) / len(groups) if drawn is None else drawn)
    return np.concatenate(counts), np.concatenate(weights)


@lru_cache(maxsize=4)
def _swaps(seed: int, permutations: int, examples: int) -> Array:
    """Whether A and B are swapped (P, N)."""
    generator = np.random.default_rng(seed)
    parts = _chunks(permutations, 2 * examples)
    return np.concatenate([generator.integers(0, 2, (part.stop - part.start, examples)).astype(bool) for part in parts])


def _differences_of_examples(pair: Paired) -> Array | None:
    """B − A for each seed and example, where a score is their mean, as most are; None where it is not.

    Resamples and swaps are then sums of these, many times faster than scoring both models.
    """
    if pair.metric == "mean":
        return np.asarray(pair.predictions_b - pair.predictions_a, dtype=np.float64)
    if pair.metric == "accuracy":
        right_a, right_b = (100.0 * (predictions == pair.labels) for predictions in pair._predictions())
        return right_b - right_a
    return None


def _difference_scorer(pair: Paired) -> Callable[[Array], Array]:
    """From weights (resamples, examples) to B − A (resamples, seeds)."""
    if (differences_SN := _differences_of_examples(pair)) is not None:
        return lambda weights: (weights @ differences_SN.T) / weights.sum(axis=1, keepdims=True)
    score_a, score_b = (weighted_scorer(pair.metric, pair.labels, p) for p in pair._predictions())
    return lambda weights: score_b(weights) - score_a(weights)


def _effect_of_swaps(pair: Paired) -> Callable[[Array], Array]:
    """From zeros and ones (permutations, examples), one where A and B are swapped, to B − A over all seeds."""
    seeds_S = weights_of_seeds(pair.groups) if pair.is_grouped else np.full(pair.seeds, 1 / pair.seeds)
    if (differences_SN := _differences_of_examples(pair)) is not None:
        differences_N = seeds_S @ differences_SN / pair.examples
        return lambda swapped: (1 - 2 * swapped) @ differences_N
    # Both models' predictions side by side; weights of zero and one say which of the two plays A and which B.
    labels = None if pair.labels is None else np.concatenate([pair.labels, pair.labels])
    scorer = weighted_scorer(pair.metric, labels, np.concatenate(pair._predictions(), axis=1))

    def effect(swapped: Array) -> Array:
        as_a = np.concatenate([1 - swapped, swapped], axis=1)
        return (scorer(1 - as_a) - scorer(as_a)) @ seeds_S

    return effect


def seed_tests(pairs: Sequence[Paired]) -> list[Difference]:
    """For each pair a t test over seeds, or over pre-trainings where there are several, with its 95 % interval.

    Pairs of one task with the same A and the same runs are tested together. Interval and p are None with fewer than
    two runs.
    """
    found: dict[int, Difference] = {}
    together: dict[Hashable, list[int]] = {}
    for place, pair in enumerate(pairs):
        same: Hashable = ("alone", place)
        if pair.numbers is not None:
            runs = (pair.pretrainings, pair.known_origin, *pair.numbers, *pair.groups.tolist())
            same = (pair.task, pair.metric, pair.a, *runs)
        together.setdefault(same, []).append(place)
    for places in together.values():
        differences = np.stack([pairs[place].independent_differences() for place in places])
        found |= dict(zip(places, pooled_tests(differences), strict=True))
    return [found[place] for place in range(len(pairs))]


def mcnemar(pair: Paired) -> float | None:
    """Exact McNemar p on accuracy, whatever the metric; None where predictions are not classes.

    Seeds vote: the class that most of them predict; of classes with equally many votes, the lowest.
    """
    from scipy import stats

    if pair.metric == "mean" or METRICS[pair.metric].kind != "classes":
        return None
    right_a, right_b = (_vote(predictions) == pair.labels for predictions in pair._predictions())
    only_a, only_b = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    if only_a + only_b == 0:
        return 1.0
    return float(stats.binomtest(only_b, only_a + only_b, 0.5).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p values, in the order given: valid for the whole family, whatever depends on what."""
    p = np.asarray(p_values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise TriuneError("Holm's correction needs p values from 0 to 1: one of them is not")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return [float(value) for value in adjusted]


@dataclass
class Comparison:
    task: str
    metric: str
    a: str
    b: str
    effect: float  # B − A, in percentage points, mean over seeds, or over the means of pre-trainings
    interval: tuple[float, float] | None  # 95 %, the wider of those over runs and over examples; None if not tested
    p_examples: float
    p_bootstrap: float
    p_seeds: float | None
    p_mcnemar: float | None
    seeds: int
    examples: int
    p: float | None  # the larger of p_examples and p_seeds: a real difference overcomes both kinds of noise
    p_holm: float | None
    better: str | None  # the model that is shown to be better, if one is
    verdict: str
    pretrainings: int = 1  # where there are several, p_seeds is over them
    freedom: int | None = None  # of Student's t in p_seeds
    family: str = ""
    corrected_for: int = 0  # comparisons of the family

    def to_dict(self) -> dict[str, Any]:
        values = {**asdict(self), "interval": self.interval and list(self.interval)}
        if self.pretrainings == 1:
            del values["pretrainings"]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Comparison":
        return cls(**{**values, "interval": values["interval"] and tuple(values["interval"])})


def compare_all(
    pairs: Sequence[Paired], resamples: int = RESAMPLES, seed: int = 0, alpha: float = ALPHA
) -> list[Comparison]:
    """Every pair tested, p values corrected (Holm) over those of a family, each with a verdict in words.

    Single runs are not tested: how far two trainings of one kind are apart cannot be told from them.
    """
    # A permutation p cannot fall below 1/(permutations + 1): a large family needs more, to pass the correction at all.
    permutations = max(resamples, int(np.ceil(2 * len(pairs) / alpha)))
    over_seeds = seed_tests(pairs)
    compared = [_compare(*one, resamples, permutations, seed) for one in zip(pairs, over_seeds, strict=True)]
    for family in dict.fromkeys(one.family for one in compared):
        tested = [one for one in compared if one.family == family and one.p is not None]
        for one, p_holm in zip(tested, holm([one.p for one in tested if one.p is not None]), strict=True):
            one.p_holm, one.corrected_for = p_holm, len(tested)
            if p_holm < alpha:
                one.better = one.b if one.effect > 0 else one.a
            one.verdict = f"{one.better} better" if one.better else "no difference shown"
    return compared


def _compare(pair: Paired, over_seeds: Difference, resamples: int, permutations: int, seed: int) -> Comparison:
    swapped = permutation_test(pair, permutations, seed)
    bootstrap = paired_bootstrap(pair, resamples, seed)
    assert bootstrap.p is not None
    p, half = None, _HALF_OF_NORMAL * swapped.spread
    if over_seeds.p is not None and pair.known_origin:
        p = max(swapped.p, over_seeds.p)
    if over_seeds.interval is not None:
        half = max(half, over_seeds.interval[1] - over_seeds.effect)
    return Comparison(
        task=pair.task,
        metric=pair.metric,
        a=pair.a,
        b=pair.b,
        effect=over_seeds.effect,
        interval=None if p is None else (over_seeds.effect - half, over_seeds.effect + half),
        p_examples=swapped.p,
        p_bootstrap=bootstrap.p,
        p_seeds=over_seeds.p if pair.known_origin else None,
        p_mcnemar=mcnemar(pair),
        seeds=pair.seeds,
        examples=pair.examples,
        p=p,
        p_holm=None,
        better=None,
        verdict=NOT_TESTED if pair.known_origin else UNKNOWN_ORIGIN,
        pretrainings=pair.pretrainings,
        freedom=over_seeds.freedom,
        family=pair.family,
    )


def _vote(predictions_SN: Array) -> Array:
    classes = np.unique(predictions_SN)
    votes_KN = (predictions_SN[None] == classes[:, None, None]).sum(axis=1)
    return classes[votes_KN.argmax(axis=0)]  # argmax takes the first of equals, and the classes are in order


def _counts(generator: np.random.Generator, rows: int, size: int) -> Array:
    """How often each of `size` things is drawn in `size` draws with replacement, for each row."""
    drawn = generator.integers(0, size, (rows, size)) + np.arange(rows)[:, None] * size
    return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size)


def _chunks(total: int, width: int) -> list[slice]:
    """Of so many rows, those that are taken together."""
    if total < 1:
        raise TriuneError(f"{total} resamples say nothing: ask for at least 1, better {RESAMPLES:,}")
    most = max(1, _WEIGHTS_AT_ONCE // width)
    return [slice(start, min(start + most, total)) for start in range(0, total, most)]
