"""Corruptions: nothing at rate 0, no more than they say, the same each time, and nested from rate to rate."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertTokenizerFast

from tests.conftest import WORDS
from triune.data.corruptions import (
    TEXT_KINDS,
    Draws,
    change_case,
    corrupt_texts,
    corrupted,
    drop_words,
    mask_tokens,
    source,
    swap_words,
    typos,
)
from triune.data.encoded import encode_pairs, from_lists
from triune.data.examples import make_examples

LETTERS = re.compile(r"[^\W\d_]+")
TEXTS = st.text(max_size=60) | st.text("ab C é\tЖ ß.,\u0301😀字", max_size=60)
RATES = st.floats(0, 1)
SEEDS = st.integers(0, 5)


def numbers(seed=0):
    return source(seed, 0, 0, "any")


@pytest.mark.parametrize("kind", TEXT_KINDS)
@given(text=TEXTS, seed=SEEDS)
def test_rate_zero_changes_nothing(kind, text, seed):
    assert TEXT_KINDS[kind](text, 0.0, numbers(seed)) == text


@given(text=TEXTS, rate=RATES, seed=SEEDS)
def test_typos_touch_one_place_of_a_word(text, rate, seed):
    changed = typos(text, rate, numbers(seed))
    assert LETTERS.sub("", changed) == LETTERS.sub("", text)  # what is no letter stays, in its order
    before, after = LETTERS.findall(text), LETTERS.findall(changed)
    assert len(before) == len(after)
    for word, other in zip(before, after, strict=True):
        assert abs(len(word) - len(other)) <= 1
        if len(word) < 3:
            assert word == other
        elif len(word) == len(other):
            assert sum(a != b for a, b in zip(word, other, strict=True)) in (0, 1, 2)


@given(text=TEXTS, seed=SEEDS)
def test_at_rate_one_every_word_of_three_letters_has_a_typo(text, seed):
    before, after = LETTERS.findall(text), LETTERS.findall(typos(text, 1.0, numbers(seed)))
    for word, other in zip(before, after, strict=True):
        assert (word != other) == (len(word) >= 3)


def test_all_four_typos_are_made():
    made = {typos("word", 1.0, numbers(seed)) for seed in range(200)}
    assert {"owrd", "wrod", "wodr"} <= made  # neighbours swapped
    assert {"ord", "wrd", "wod", "wor"} <= made  # a letter left out
    assert {"wword", "woord", "worrd", "wordd"} <= made  # doubled
    assert {"eord", "qord", "wird", "wotd", "wors"} <= made  # hit beside
    assert not {"zord", "wqrd"} & made  # not across the keyboard
    assert {typos("WORD", 1.0, numbers(seed)) for seed in range(200)} == {one.upper() for one in made}


@given(text=TEXTS, rate=RATES, seed=SEEDS)
def test_dropped_words_leave_the_others_in_order(text, rate, seed):
    words, left = re.findall(r"\S+", text), re.findall(r"\S+", drop_words(text, rate, numbers(seed)))
    rest = iter(words)
    assert all(word in rest for word in left)
    assert bool(left) == bool(words)


@given(text=TEXTS, seed=SEEDS)
def test_one_word_is_always_left(text, seed):
    words = re.findall(r"\S+", text)
    assert len(re.findall(r"\S+", drop_words(text, 1.0, numbers(seed)))) == min(1, len(words))


@given(words=st.integers(0, 30), rate=RATES, seed=SEEDS)
def test_swapped_words_move_by_one_place(words, rate, seed):
    text = " \t".join(map(str, range(words)))
    swapped = swap_words(text, rate, numbers(seed))
    order = [int(word) for word in swapped.split()]
    assert sorted(order) == list(range(words))
    assert all(abs(place - number) <= 1 for place, number in enumerate(order))
    assert re.sub(r"\S+", "", swapped) == re.sub(r"\S+", "", text)
    moved = sum(place != number for place, number in enumerate(order))
    assert moved % 2 == 0
    if rate == 1.0:  # no two neighbours are left that could still be swapped
        stays = [place == number for place, number in enumerate(order)]
        assert not any(a and b for a, b in itertools.pairwise(stays))


@given(text=TEXTS, rate=RATES, seed=SEEDS)
def test_casing_changes_letters_that_lead_back(text, rate, seed):
    changed = change_case(text, rate, numbers(seed))
    assert len(changed) == len(text)
    for letter, other in zip(text, changed, strict=True):
        assert other == letter or (other == letter.swapcase() and other.swapcase() == letter)
    assert changed.lower() == text.lower() or "Σ" in text + changed  # whose lower case depends on its place


def test_casing_of_all_letters():
    assert change_case("Straße, ÉTÉ!", 1.0, numbers()) == "sTRAßE, été!"


@pytest.mark.parametrize("kind", TEXT_KINDS)
@given(text=TEXTS, rates=st.tuples(RATES, RATES).map(sorted), seed=SEEDS)
def test_a_higher_rate_corrupts_what_a_lower_one_does(kind, text, rates, seed):
    low, high = (TEXT_KINDS[kind](text, rate, numbers(seed)) for rate in rates)
    if kind == "dropped":
        rest = iter(re.findall(r"\S+", low))
        assert all(word in rest for word in re.findall(r"\S+", high))
        return
    parts = {"typos": LETTERS, "swapped": re.compile(r"\S+"), "casing": re.compile(r"(?s).")}[kind]
    triples = zip(*(parts.findall(one) for one in (text, low, high)), strict=True)
    assert all(after == then for before, then, after in triples if then != before)


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_rates_are_what_they_say(rate):
    text = " ".join(f"word{'abcdefghij'[n % 10]}" for n in range(4000))
    words = text.split()
    several = [source(seed, 0, 0, "any") for seed in range(4)]
    changed = [a != b for a, b in zip(words, typos(text, rate, several[0]).split(), strict=True)]
    assert np.mean(changed) == pytest.approx(rate, abs=0.03)
    assert 1 - len(drop_words(text, rate, several[1]).split()) / len(words) == pytest.approx(rate, abs=0.03)
    flipped = [a != b for a, b in zip(text, change_case(text, rate, several[2]), strict=True) if a != " "]
    assert np.mean(flipped) == pytest.approx(rate, abs=0.02)
    order = [int(n) for n in swap_words(" ".join(map(str, range(4000))), rate, several[3]).split()]
    pairs = sum(place != number for place, number in enumerate(order)) / 2
    assert 0.6 * rate < pairs / 3999 <= rate + 0.03


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_a_row_depends_on_seed_draw_and_number_only(kind):
    text = "the quick brown fox jumps over the lazy dog while nobody looks"
    here = corrupt_texts(kind, ["something else", text], 0.5, seed=3, draw=1)[1]
    assert corrupt_texts(kind, ["a", text, "b"], 0.5, seed=3, draw=1)[1] == here
    others = [
        corrupt_texts(kind, [text], 0.5, seed=3, draw=1)[0],
        corrupt_texts(kind, ["", text], 0.5, seed=3, draw=2)[1],
        corrupt_texts(kind, ["", text], 0.5, seed=4, draw=1)[1],
        corrupt_texts(kind, ["", text], 0.5, seed=3, draw=1, text=1)[1],
    ]
    assert len({here, *others}) == 5


def test_the_same_on_every_machine():
    text = "the quick brown fox jumps over the lazy dog"
    made = [corrupt_texts(kind, [text], 0.5, seed=0, draw=0)[0] for kind in TEXT_KINDS]
    assert made == [
        "hte quick bown fox jumps ovver the lazzy odg",
        "the quick brown fox jumps over lazy ",
        "quick the brown jumps fox the over dog lazy",
        "THE QuicK bRowN fOX jumPs OveR The LazY DOG",
    ]


ROWS = st.lists(st.lists(st.integers(0, 19), min_size=1, max_size=12), min_size=1, max_size=6)


@given(rows=ROWS, rates=st.tuples(RATES, RATES).map(sorted), seed=SEEDS)
def test_masked_tokens(rows, rates, seed):
    encoded = from_lists(rows, [1] * len(rows), None)
    low, high = (mask_tokens(encoded, rate, 4, {0, 2, 3, 4}, seed, draw=0) for rate in rates)
    for changed in (low, high):
        same = changed.ids == encoded.ids
        assert np.isin(changed.ids[~same], 4).all()
        assert same[np.isin(encoded.ids, [0, 2, 3, 4])].all()
        assert changed.starts is encoded.starts
    assert (high.ids[low.ids != encoded.ids] == 4).all()
    everything = mask_tokens(encoded, 1.0, 4, {0, 2, 3, 4}, seed, draw=0)
    assert (np.isin(everything.ids, [0, 2, 3, 4])).all()
    assert (mask_tokens(encoded, 0.0, 4, {0, 2, 3, 4}, seed, draw=0).ids == encoded.ids).all()


def examples():
    first = ["the cat sat on a mat", "a dog ran home", "the cat sat on a mat", "one"]
    second = ["the red dog saw", "a mat", "the red dog saw", ""]
    return make_examples(first, second, [0, 1, 0, 1], list(range(4)), "here")


def test_rows_of_all_corruptions_are_those_of_each_alone(tokenizer):
    given_examples, kinds = examples(), [*TEXT_KINDS, "masked"]
    made = corrupted(tokenizer, given_examples, 12, Draws(tuple(kinds), (0.3, 0.9), draws=2, seed=5))
    clean = encode_pairs(tokenizer, given_examples.first, given_examples.second, None, 12)
    everything = [clean.row(row).tolist() for row in range(4)]
    everything += [made.fresh.row(row).tolist() for row in range(len(made.fresh))]
    lengths = [*clean.first_lengths, *made.fresh.first_lengths]
    for kind in kinds:
        for number, rate in enumerate([0.3, 0.9]):
            for draw in range(2):
                if kind == "masked":
                    special = tokenizer.all_special_ids
                    alone = mask_tokens(clean, rate, tokenizer.mask_token_id, special, seed=5, draw=draw)
                else:
                    texts = [
                        corrupt_texts(kind, side, rate, 5, draw, text)
                        for text, side in enumerate((given_examples.first, given_examples.second))
                    ]
                    alone = encode_pairs(tokenizer, *texts, None, 12)
                for row in range(4):
                    place = made.rows[kind][number, draw, row]
                    assert everything[place] == alone.row(row).tolist()
                    assert lengths[place] == alone.first_lengths[row]
    different = {(tuple(ids), first) for ids, first in zip(everything[4:], lengths[4:], strict=True)}
    assert len(different) == len(made.fresh)  # each is kept once …
    assert made.clean.tolist() == [0, 1, 0, 3]  # … and equal clean rows are one
    assert 0 < made.changed("dropped") < 1


def test_an_uncased_tokenizer_undoes_casing(tokenizer, tmp_path):
    (tmp_path / "cased.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    cased = BertTokenizerFast(vocab=str(tmp_path / "cased.txt"), do_lower_case=False)
    shares = [
        corrupted(one, examples(), 12, Draws(("casing",), (0.4,), 2, 0)).changed("casing") for one in (tokenizer, cased)
    ]
    assert shares[0] == 0
    assert shares[1] > 0.3
