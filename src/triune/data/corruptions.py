"""Corrupted texts and tokens: typos, dropped and swapped words, changed case, masked tokens, each at a rate.

What is corrupted follows from (seed, draw, row, kind) alone. A function reads as many random numbers whatever the rate,
so that a higher rate of the same draw corrupts what a lower one does, and more.
"""

import dataclasses
import random
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from triune.data.encoded import ENCODED, Arrays, Encoded, arrays_of, encode_pairs, encoded_from, from_lists, kept_arrays
from triune.data.examples import Examples
from triune.data.tokenizer import describe_tokenizer

MASKED = "masked"
SHORTEST = 3  # letters of a word that gets typos: in shorter ones a letter makes another word

_WORDS = re.compile(r"\S+")
_LETTERS = re.compile(r"[^\W\d_]+")
_KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def source(seed: int, draw: int, row: int, kind: str, text: int = 0) -> random.Random:
    """The random numbers for one text of a row (0 or 1), the same on every machine."""
    return random.Random(f"{seed}/{draw}/{row}/{kind}/{text}")


def typos(text: str, rate: float, numbers: random.Random) -> str:
    """`rate` of the words with three letters or more get one typo, which always changes the word."""

    def change(found: re.Match[str]) -> str:
        word = found.group()
        if len(word) < SHORTEST:
            return word
        chance, which, place, key = (numbers.random() for _ in range(4))
        return _typo(word, which, int(place * len(word)), key) if chance < rate else word

    return _LETTERS.sub(change, text)


def drop_words(text: str, rate: float, numbers: random.Random) -> str:
    """`rate` of the words are left out; where it would be all of them, one stays."""
    words, gaps = _WORDS.findall(text), _WORDS.split(text)
    chances = [numbers.random() for _ in words]
    least = min(rate, max(chances, default=1.0))
    kept = [word + gap for word, gap, chance in zip(words, gaps[1:], chances, strict=True) if chance >= least]
    return gaps[0] + "".join(kept)


def swap_words(text: str, rate: float, numbers: random.Random) -> str:
    """`rate` of the pairs of neighbours change places; fewer where pairs overlap, since a word moves once at most."""
    words, gaps = _WORDS.findall(text), _WORDS.split(text)
    chances = [numbers.random() for _ in words[1:]]
    moved: set[int] = set()
    # In the order of their numbers: what a higher rate adds then takes nothing away from a lower one.
    for first in sorted((n for n, chance in enumerate(chances) if chance < rate), key=chances.__getitem__):
        if not moved & {first, first + 1}:
            words[first], words[first + 1] = words[first + 1], words[first]
            moved |= {first, first + 1}
    return gaps[0] + "".join(word + gap for word, gap in zip(words, gaps[1:], strict=True))


def change_case(text: str, rate: float, numbers: random.Random) -> str:
    """`rate` of the letters change between upper and lower case; not ß and others that this would not lead back to."""

    def change(letter: str) -> str:
        other = letter.swapcase()
        return other if len(other) == 1 and other.swapcase() == letter else letter

    return "".join(change(letter) if numbers.random() < rate else letter for letter in text)


TEXT_KINDS: dict[str, Callable[[str, float, random.Random], str]] = {
    "typos": typos,
    "dropped": drop_words,
    "swapped": swap_words,
    "casing": change_case,
}


def corrupt_texts(kind: str, texts: list[str], rate: float, seed: int, draw: int, text: int = 0) -> list[str]:
    """A corruption of `TEXT_KINDS` for the first (0) or second (1) text of every row."""
    corrupt = TEXT_KINDS[kind]
    return [corrupt(one, rate, source(seed, draw, row, kind, text)) for row, one in enumerate(texts)]


def mask_tokens(
    encoded: Encoded, rate: float, mask_id: int, special_ids: Collection[int], seed: int, draw: int
) -> Encoded:
    """`rate` of the tokens become [MASK], never a special one."""
    ids = encoded.ids.copy()
    for row, begin in enumerate(encoded.starts[:-1]):
        numbers = source(seed, draw, row, MASKED)
        for place, token in enumerate(encoded.row(row).tolist(), start=int(begin)):
            if numbers.random() < rate and token not in special_ids:
                ids[place] = mask_id
    return dataclasses.replace(encoded, ids=ids)


@dataclasses.dataclass(frozen=True)
class Corrupted:
    """Corrupted examples as a model takes them. Equal rows are kept once: they need one answer only.

    Rows are numbered: first the clean ones, then those of `fresh`; of equal clean rows the first counts.
    """

    fresh: Encoded
    clean: np.ndarray  # (N,): the numbers of the examples as they were
    rows: dict[str, np.ndarray]  # by kind: (rates, draws, N)

    def changed(self, kind: str) -> float:
        """The share of rows whose tokens are not those of the clean row."""
        return float((self.rows[kind] != self.clean).mean())


@dataclasses.dataclass(frozen=True)
class Draws:
    """Every kind at every rate, so many times."""

    kinds: tuple[str, ...]
    rates: tuple[float, ...]
    draws: int
    seed: int


def kept_corrupted(cache: Path | None, tokenizer: Any, examples: Examples, max_length: int, drawn: Draws) -> Corrupted:
    """`corrupted`, or what was kept of it: of a large development set it takes minutes, and all models share it."""
    if cache is None:
        return corrupted(tokenizer, examples, max_length, drawn)
    identity = {"text": examples.sha256, "tokenizer": describe_tokenizer(tokenizer), "max_length": max_length}
    identity |= {"cut": tokenizer.truncation_side, "drawn": dataclasses.asdict(drawn), "corrupted": 1}
    names = {kind: f"rows.{kind}" for kind in drawn.kinds}

    def make() -> Arrays:
        made = corrupted(tokenizer, examples, max_length, drawn)
        return {**arrays_of(made.fresh), "clean": made.clean, **{name: made.rows[kind] for kind, name in names.items()}}

    kept = kept_arrays(cache, identity, make, [*ENCODED, "clean", *names.values()])
    return Corrupted(encoded_from(kept), kept["clean"], {kind: kept[name] for kind, name in names.items()})


def corrupted(tokenizer: Any, examples: Examples, max_length: int, drawn: Draws) -> Corrupted:
    """Each kind at each rate and draw, tokenised."""
    clean = encode_pairs(tokenizer, examples.first, examples.second, None, max_length)
    mask_id, special_ids = int(tokenizer.mask_token_id), frozenset(tokenizer.all_special_ids)
    numbers: dict[tuple[int, bytes], int] = {}
    fresh: list[tuple[list[int], int]] = []

    def encoded(kind: str, rate: float, draw: int) -> Encoded:
        if kind == MASKED:
            return mask_tokens(clean, rate, mask_id, special_ids, drawn.seed, draw)
        first = corrupt_texts(kind, examples.first, rate, drawn.seed, draw)
        second = examples.second and corrupt_texts(kind, examples.second, rate, drawn.seed, draw, text=1)
        return encode_pairs(tokenizer, first, second, None, max_length)

    def numbered(part: Encoded) -> list[int]:
        found = []
        for row, first_length in enumerate(part.first_lengths.tolist()):
            ids = part.row(row)
            key, next_number = (first_length, ids.tobytes()), len(clean) + len(fresh)
            if numbers.setdefault(key, next_number) == next_number:
                fresh.append((ids.tolist(), first_length))
            found.append(numbers[key])
        return found

    for row, first_length in enumerate(clean.first_lengths.tolist()):
        numbers.setdefault((first_length, clean.row(row).tobytes()), row)
    unchanged = np.array(numbered(clean))
    rows = {
        kind: np.array([[numbered(encoded(kind, rate, draw)) for draw in range(drawn.draws)] for rate in drawn.rates])
        for kind in drawn.kinds
    }
    return Corrupted(from_lists([ids for ids, _ in fresh], [first for _, first in fresh], None), unchanged, rows)


def _typo(word: str, which: float, place: int, key: float) -> str:
    """Two neighbours swapped, a letter left out, doubled, or hit beside; each as likely where the word allows it."""
    letter, rest = word[place], word[place + 1 :]
    if which < 0.25 and (swapped := _swapped(word, place)) is not None:
        return swapped
    if which < 0.5:
        return word[:place] + rest
    beside = _beside(letter)
    if which < 0.75 or not beside:
        return word[: place + 1] + letter + rest
    return word[:place] + beside[int(key * len(beside))] + rest


def _swapped(word: str, place: int) -> str | None:
    """The first two different neighbours from `place` on change places; from the start where there are none."""
    for first in (*range(place, len(word) - 1), *range(place)):
        if word[first] != word[first + 1]:
            return word[:first] + word[first + 1] + word[first] + word[first + 2 :]
    return None


def _neighbouring_keys() -> dict[str, str]:
    """For each letter those that touch it; a lower row stands half a key to the right."""
    beside: dict[str, str] = {}
    for number, row in enumerate(_KEYBOARD):
        for place, letter in enumerate(row):
            near = [(number, place - 1), (number, place + 1), (number - 1, place), (number - 1, place + 1)]
            near += [(number + 1, place - 1), (number + 1, place)]
            beside[letter] = "".join(
                _KEYBOARD[r][c] for r, c in near if 0 <= r < len(_KEYBOARD) and 0 <= c < len(_KEYBOARD[r])
            )
    return beside


_BESIDE = _neighbouring_keys()


def _beside(letter: str) -> str:
    keys = _BESIDE.get(letter.lower(), "")
    return keys.upper() if letter.isupper() else keys
