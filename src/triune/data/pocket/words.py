"""The words of the pocket world: what there is, of which kind, which words mean the same and which the opposite."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Word = TypeVar("Word")  # a word, or a verb with its forms

# In every row below, the first half are the words by which training rows are decided, the second half those of
# development rows (`known` and `held_out`). The corpus has them all: whoever read it knows that they mean the same.
WOMEN = ("amy", "ann", "eva", "lucy", "mary", "ruth")
MEN = ("ben", "bob", "carl", "dan", "fred", "tom")
WOMEN_AT_SEA = ("dora", "ella")
MEN_AT_SEA = ("gus", "leo")
SEA_PEOPLE = WOMEN_AT_SEA + MEN_AT_SEA

KINDS = {
    "animal": ("dog", "cat", "horse", "goat", "pig", "cow"),
    "bird": ("robin", "owl", "duck", "crow", "hen", "swan"),
    "fruit": ("apple", "pear", "plum", "melon", "lemon", "fig"),
    "tool": ("hammer", "axe", "spade", "rake", "drill", "knife"),
    "toy": ("ball", "kite", "doll", "drum", "puppet", "marble"),
    "vehicle": ("cart", "bike", "wagon", "sled", "truck", "van"),
}
KINDS_AT_SEA = {
    "animal": ("crab", "seal"),
    "bird": ("gull",),
    "tool": ("net", "hook"),
    "vehicle": ("ship", "raft"),
}
KIND_OF = {noun: kind for kinds in (KINDS, KINDS_AT_SEA) for kind, nouns in kinds.items() for noun in nouns}
LIVING = ("animal", "bird")
NOUNS = tuple(noun for nouns in KINDS.values() for noun in nouns)
SEA_NOUNS = tuple(noun for nouns in KINDS_AT_SEA.values() for noun in nouns)
# Only these also come in numbers: enough to learn agreement from, few enough for a small vocabulary.
PLURALS = {noun: noun + "s" for noun in KINDS["animal"][:4]}

PLACES = ("barn", "kitchen", "garden", "forest", "attic", "cellar", "school", "mill")
SEA_PLACES = ("harbour", "cave", "cabin")
COLOURS = ("red", "blue", "green", "yellow", "black", "white", "brown", "pink")

# Each pair of rows is one quality with its two ends; the words of a row mean the same. The first names the row.
QUALITIES = (
    (("big", "large", "huge", "giant"), ("small", "little", "tiny", "wee")),
    (("old", "ancient", "aged", "antique"), ("new", "fresh", "modern", "recent")),
    (("clean", "neat", "tidy", "spotless"), ("dirty", "messy", "filthy", "grimy")),
)
MOODS = (
    (("happy", "glad", "cheerful", "merry"), ("sad", "gloomy", "unhappy", "upset")),
    (("brave", "bold", "daring", "fearless"), ("scared", "afraid", "timid", "fearful")),
)
OPINIONS = ((("liked", "loved"), ("disliked", "hated")),)
SAME = {ends[end][0]: ends[end] for table in (QUALITIES, MOODS, OPINIONS) for ends in table for end in (0, 1)}
OPPOSITE = {
    ends[end][0]: ends[1 - end][0] for table in (QUALITIES, MOODS, OPINIONS) for ends in table for end in (0, 1)
}
BASE_FORM = {"liked": "like", "loved": "love", "disliked": "dislike", "hated": "hate"}


@dataclass(frozen=True)
class Action:
    """A verb's meaning: its words as (past, base form), and the kinds of things it can be done to."""

    words: tuple[tuple[str, str], ...]
    objects: tuple[str, ...]


_THINGS = ("fruit", "tool", "toy", "vehicle")
_ALL = ("person", *LIVING, *_THINGS)
ACTIONS = {
    "found": Action((("found", "find"), ("discovered", "discover"), ("located", "locate")), _ALL),
    "chased": Action((("chased", "chase"), ("pursued", "pursue"), ("followed", "follow")), ("person", *LIVING)),
    "took": Action((("took", "take"), ("grabbed", "grab"), ("seized", "seize")), _THINGS),
    "bought": Action((("bought", "buy"), ("purchased", "purchase"), ("acquired", "acquire")), (*LIVING, *_THINGS)),
    "fixed": Action((("fixed", "fix"), ("repaired", "repair"), ("mended", "mend")), ("tool", "toy", "vehicle")),
}
# What follows from a word of a row, or is typical of a kind. The corpus often says it at once, always in these words:
# one frequent word beside many rare ones is what a short pre-training learns the rare ones' meaning from.
CONSEQUENCES = {
    "big": "needed room",
    "small": "fitted",
    "old": "cracked",
    "new": "lasted",
    "clean": "shone",
    "dirty": "smelled",
    "happy": "sang",
    "sad": "cried",
    "brave": "stayed",
    "scared": "fled",
}
MANNERS = {
    "found": "by luck",
    "chased": "far",
    "took": "in secret",
    "bought": "at once",
    "fixed": "with glue",
}
TYPICAL = {
    "animal": "slept",
    "bird": "flew",
    "fruit": "grew",
    "tool": "rusted",
    "toy": "broke",
    "vehicle": "rolled",
}
# Animals do these; everything else is for people.
ANIMAL_ACTIONS = ("found", "chased")

EVENTS = ("show", "song", "meal", "party", "story", "trip", "game", "dance")
# Each row is one polarity of what people say of events.
PRAISE = (
    *("lovely", "wonderful", "great", "fine", "grand", "sweet"),
    *("superb", "charming", "perfect", "splendid", "pleasant", "brilliant"),
)
BLAME = (
    *("awful", "horrible", "terrible", "poor", "boring", "grim"),
    *("lousy", "dull", "nasty", "dreadful", "rotten", "bitter"),
)
GOOD_REACTIONS = ("smiled", "cheered")
BAD_REACTIONS = ("frowned", "groaned")


def known(row: Sequence[Word]) -> Sequence[Word]:
    """The words of a row by which training rows may be decided."""
    return row[: (len(row) + 1) // 2]


def held_out(row: Sequence[Word]) -> Sequence[Word]:
    """The words of a row that decide development rows only."""
    return row[(len(row) + 1) // 2 :]


def is_person(name: str) -> bool:
    return name in WOMEN or name in MEN or name in SEA_PEOPLE


def is_woman(name: str) -> bool:
    return name in WOMEN or name in WOMEN_AT_SEA


SINGULAR = {plural: noun for noun, plural in PLURALS.items()}


def is_plural(name: str) -> bool:
    return name in SINGULAR


def kind_of(name: str) -> str:
    """'person', or the kind of a noun in either number."""
    return "person" if is_person(name) else KIND_OF[SINGULAR.get(name, name)]


def is_living(name: str) -> bool:
    return kind_of(name) in ("person", *LIVING)
