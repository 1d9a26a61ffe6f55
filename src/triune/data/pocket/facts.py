"""Facts of a scene, what follows from them, and which facts only development sets may hold."""

import random
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from triune.data.pocket import words

Relation = Literal["quality", "mood", "colour", "place", "owner", "opinion", "action"]
Verdict = Literal["entailment", "neutral", "contradiction"]


@dataclass(frozen=True)
class Fact:
    """`subject` stands in `relation` with `value` (and with `other`, where a relation has a third place).

    quality, mood   the dog, big                   owner    amy, -, the kite
    colour          the dog, brown                 opinion  amy, liked, the kite
    place           the dog, barn                  action   amy, found, the dog
    """

    relation: Relation
    subject: str
    value: str
    other: str = ""

    @property
    def topic(self) -> tuple[str, ...]:
        """What the fact is about: two facts with one topic and different values cannot both be true."""
        if self.relation in ("quality", "mood"):
            return (self.relation, self.subject, *sorted((self.value, words.OPPOSITE[self.value])))
        if self.relation in ("colour", "place"):
            return (self.relation, self.subject)
        if self.relation == "owner":
            return (self.relation, self.other)
        if self.relation == "opinion":
            return (self.relation, self.subject, self.other)
        return (self.relation, self.subject, self.value, self.other)


def matches(fact: Fact, claim: Fact) -> bool:
    """Whether the fact makes the claim true; a claim may name a kind ('a tool') where the fact names the thing."""
    if claim.other in words.KINDS and fact.other and not words.is_person(fact.other):
        claim = replace(claim, other=fact.other if words.kind_of(fact.other) == claim.other else claim.other)
    return fact == claim


def verdict(facts: Iterable[Fact], claim: Fact, negated: bool = False) -> Verdict:
    """What the facts say about a claim. Every quality, mood, opinion and comparison has just two ends here."""
    facts = list(facts)
    if any(matches(fact, claim) for fact in facts):
        answer: Verdict = "entailment"
    elif claim.relation != "action" and any(fact.topic == claim.topic for fact in facts):
        answer = "contradiction"
    else:
        return "neutral"
    if negated:
        return "contradiction" if answer == "entailment" else "entailment"
    return answer


def opposite(fact: Fact) -> Fact | None:
    """The same topic at its other end, where it has just two."""
    return replace(fact, value=words.OPPOSITE[fact.value]) if fact.value in words.OPPOSITE else None


@dataclass(frozen=True)
class Cast:
    """Who and what may occur together: the village of most stories, or the sea of the others."""

    people: tuple[str, ...]
    things: tuple[str, ...]
    places: tuple[str, ...]


VILLAGE = Cast(words.WOMEN + words.MEN, words.NOUNS + tuple(words.PLURALS.values()), words.PLACES)
SEA = Cast(words.SEA_PEOPLE, words.SEA_NOUNS, words.SEA_PLACES)
# Comparisons are understood but not drawn: their words would not fit a small vocabulary.
RELATIONS: tuple[Relation, ...] = ("quality", "mood", "colour", "place", "owner", "opinion", "action")
# Which relations are drawn, and how often: actions carry the roles, qualities most of the synonyms.
DRAWN: tuple[Relation, ...] = (*RELATIONS, "action", "action", "quality", "quality", "mood")

DEVELOPMENT_SHARE = 4  # one topic in this many is kept for development sets
Allowed = Callable[[Fact], bool]


def anything(_: Fact) -> bool:
    return True


@dataclass(frozen=True)
class Part:
    """What rows of one split may be about and decided by; development rows by what training rows never showed."""

    split: str
    seed: int

    @property
    def training(self) -> bool:
        return self.split == "train"

    def allows(self, fact: Fact) -> bool:
        """Training rows are about one part of the topics only, development rows about the rest.

        True and false claims alike: were only true ones held out, training would teach that the others are false.
        """
        who = sorted((fact.subject, fact.other)) if fact.relation == "action" else ()
        key = " ".join((str(self.seed), *(("action", fact.value, *who) if who else fact.topic)))
        held_out = zlib.crc32(key.encode()) % DEVELOPMENT_SHARE == 0
        return held_out != self.training

    def deciding(self, row: Sequence[words.Word]) -> Sequence[words.Word]:
        """The words of a row that may decide a label."""
        return words.known(row) if self.training else words.held_out(row)

    def beside(self, row: Sequence[words.Word]) -> Sequence[words.Word]:
        """The words of a row that may stand beside a deciding one; no training row shows a held-out word."""
        return words.known(row) if self.training else row


class Scene:
    """A few people and things, and a source of facts about them that never contradict each other."""

    def __init__(self, rng: random.Random, cast: Cast, allowed: Allowed = anything, people: int = 2, things: int = 2):
        self.rng, self.cast, self.allowed = rng, cast, allowed
        self.people = rng.sample(cast.people, people)
        self.things: list[str] = []
        while len(self.things) < things:
            noun = rng.choice(cast.things)
            # Two of a kind would make 'the animal' ambiguous, and a singular beside its plural 'the dog'.
            if words.kind_of(noun) not in [words.kind_of(thing) for thing in self.things]:
                self.things.append(noun)
        self.facts: list[Fact] = []

    def draw(self, relation: Relation | None = None, tries: int = 60) -> Fact | None:
        """A new fact, kept in `facts`; None when the scene has no more to offer."""
        for _ in range(tries):
            fact = self.imagine(self.rng.choice(DRAWN) if relation is None else relation)
            if fact and self.allowed(fact) and all(fact.topic != known.topic for known in self.facts):
                self.facts.append(fact)
                return fact
        return None

    def imagine(self, relation: Relation) -> Fact | None:
        """A fact of this relation, true or not; None when the draw made none (a table that eats)."""
        rng = self.rng
        if relation == "mood":
            return Fact("mood", rng.choice(self.people), rng.choice(rng.choice(words.MOODS))[0])
        if relation in ("owner", "opinion"):
            value = rng.choice(words.OPINIONS[0])[0] if relation == "opinion" else ""
            return Fact(relation, rng.choice(self.people), value, rng.choice(self.things))
        if relation == "action":
            verb = rng.choice(list(words.ACTIONS))
            patients = [n for n in (*self.people, *self.things) if words.kind_of(n) in words.ACTIONS[verb].objects]
            agents = [*self.people, *(self.things if verb in words.ANIMAL_ACTIONS else [])]
            agent = rng.choice([name for name in agents if words.is_living(name)])
            patient = rng.choice(patients) if patients else agent
            return Fact("action", agent, verb, patient) if agent != patient else None
        subject = rng.choice(self.things if relation != "place" else [*self.things, *self.people])
        if relation == "colour":
            return Fact("colour", subject, rng.choice(words.COLOURS))
        if relation == "place":
            return Fact("place", subject, rng.choice(self.cast.places))
        return Fact("quality", subject, rng.choice(rng.choice(words.QUALITIES))[0])


def about_another(rng: random.Random, scene: Scene, fact: Fact) -> Fact | None:
    """The same said of somebody else in the scene, or with the roles swapped: same words, another fact."""
    if fact.relation == "action":
        if rng.random() < 0.5 and words.is_living(fact.other):
            swapped = replace(fact, subject=fact.other, other=fact.subject)
            fits = words.kind_of(swapped.other) in words.ACTIONS[fact.value].objects
            return swapped if fits and (words.is_person(fact.other) or fact.value in words.ANIMAL_ACTIONS) else None
        others = [name for name in scene.people if name not in (fact.subject, fact.other)]
        return replace(fact, subject=rng.choice(others)) if others else None
    group = scene.people if words.is_person(fact.subject) else scene.things
    others = [name for name in group if name not in (fact.subject, fact.other)]
    return replace(fact, subject=rng.choice(others)) if others else None


def several(rng: random.Random, cast: Cast, allowed: Allowed, count: int, people: int = 2, things: int = 2) -> Scene:
    """A scene with exactly so many facts."""
    while True:
        scene = Scene(rng, cast, allowed, people, things)
        for _ in range(count):
            if scene.draw() is None:
                break
        if len(scene.facts) == count:
            return scene
