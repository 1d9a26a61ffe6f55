"""Plans of batches: every example once, the same for the same seed, long enough."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from triune.data.batches import POOL, evaluation_plan, rounded_length, training_plan
from triune.data.encoded import FILLER

lengths = st.lists(st.integers(1, 200), min_size=1, max_size=120).map(np.array)


@given(st.integers(1, 2000), st.integers(0, 2000))
def test_rounded_lengths_grow_and_hold_what_they_are_rounded_from(length, more):
    assert length <= rounded_length(length, 10_000) <= rounded_length(length + more, 10_000)


@given(st.integers(1, 512), st.integers(1, 512))
def test_rounded_lengths_stay_within_the_longest(length, spare):
    longest = length + spare
    assert length <= rounded_length(length, longest) <= longest


def test_few_lengths_are_made_of_many():
    assert len({rounded_length(length, 512) for length in range(1, 513)}) == 20  # 8 + 4 + 4 + 4


@given(lengths, st.integers(1, 9), st.integers(0, 5), st.integers(0, 5))
def test_every_example_is_in_an_epoch_once(lengths, batch, seed, epoch):
    plan = training_plan(lengths, batch, seed, epoch, 200)
    rows = np.concatenate([rows for _, rows in plan])
    assert sorted(rows[rows != FILLER]) == list(range(len(lengths)))
    assert all(len(rows) == batch for _, rows in plan)
    assert len(plan) == -(-len(lengths) // batch)


@given(lengths, st.integers(1, 9))
def test_batches_are_long_enough_and_fillers_come_last(lengths, batch):
    for length, rows in training_plan(lengths, batch, 1, 0, 200):
        real = rows[: (rows != FILLER).sum()]
        assert len(real)
        assert (real != FILLER).all()
        assert lengths[real].max() <= length <= 200


def same(one, other):
    return [(length, rows.tolist()) for length, rows in one] == [(length, rows.tolist()) for length, rows in other]


def test_a_plan_is_made_of_seed_and_epoch_alone():
    lengths = np.random.default_rng(0).integers(1, 100, 90)
    plan = training_plan(lengths, 8, 1, 0, 128)
    np.random.seed(5)
    assert same(plan, training_plan(lengths, 8, 1, 0, 128))
    assert not same(plan, training_plan(lengths, 8, 2, 0, 128))
    assert not same(plan, training_plan(lengths, 8, 1, 1, 128))


def test_batches_hold_examples_of_like_length():
    lengths = np.random.default_rng(0).integers(1, 513, POOL * 8)
    tokens = sum(length * len(rows) for length, rows in training_plan(lengths, 8, 1, 0, 512))
    assert tokens < 1.15 * lengths.sum()
    shuffled = np.random.default_rng(1).permutation(lengths).reshape(-1, 8)
    assert tokens < 0.7 * (8 * shuffled.max(1)).sum()  # what it would be without sorting


@given(lengths, st.integers(1, 500))
def test_evaluation_takes_every_example_once_within_its_tokens(lengths, tokens):
    plan = list(evaluation_plan(lengths, tokens, 200))
    assert sorted(np.concatenate([rows for _, rows in plan])) == list(range(len(lengths)))
    for length, rows in plan:
        assert lengths[rows].max() <= length
        assert length * len(rows) <= tokens or len(rows) == 1
    assert [length for length, _ in plan] == sorted((length for length, _ in plan), reverse=True)
