"""Tasks on two texts: paraphrase (MRPC, QQP), similarity (STS-B), entailment (MNLI, RTE), does it answer (QNLI).

The two texts share most words. For paraphrase and similarity, what decides is how one word of the second stands to one
of the first: it means the same or not. For entailment and answers it is which sort of word stands in the
first. In development rows, at least one deciding word is one that no training row had in such a place (`Part`): what
it means must be known from the corpus.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from triune.data.pocket import words
from triune.data.pocket.facts import SEA, VILLAGE, Fact, Part, Relation
from triune.data.pocket.phrases import participle, the, was
from triune.data.pocket.sentences import Row

MNLI_LABELS = {"entailment": 0, "neutral": 1, "contradiction": 2}
HARD_SHARE = 0.25  # of rows where more than the one word has to be read: a negation, another subject, swapped roles
TWO_MINDS_SHARE = 0.1  # of RTE's rows: two people disagree, and it matters which of them the claim is about
Verb = tuple[str, str]


def two_of(
    rng: random.Random, part: Part, one: Sequence[words.Word], two: Sequence[words.Word]
) -> tuple[words.Word, words.Word]:
    """A word of each row, never the same word twice; at least one of them is a deciding one."""
    swapped = rng.random() < 0.5
    here, there = (two, one) if swapped else (one, two)
    first = rng.choice(part.deciding(here))
    second = rng.choice([word for word in part.beside(there) if word != first])
    return (second, first) if swapped else (first, second)


def other_action(rng: random.Random, verb: str, patient: str) -> str:
    """Another action that can be done to the same."""
    kind = words.kind_of(patient)
    return rng.choice([name for name, action in words.ACTIONS.items() if name != verb and kind in action.objects])


def action(rng: random.Random) -> Fact:
    """Somebody does something to a thing, or to another person."""
    verb = rng.choice(list(words.ACTIONS))
    agent = rng.choice(VILLAGE.people)
    patients = [name for name in (*words.NOUNS, *VILLAGE.people) if words.kind_of(name) in words.ACTIONS[verb].objects]
    return Fact("action", agent, verb, rng.choice([name for name in patients if name != agent]))


def actively(fact: Fact, verb: Verb) -> str:
    return f"{the(fact.subject)} {verb[0]} {the(fact.other)}"


def passively(fact: Fact, verb: Verb) -> str:
    return f"{the(fact.other)} was {participle(verb[0])} by {the(fact.subject)}"


def mrpc(rng: random.Random, part: Part) -> Row:
    """An action in other words; a paraphrase where verb and roles are the same."""
    label = int(rng.random() < 0.55)
    fact = action(rng)
    other = fact
    if not label:
        if rng.random() < HARD_SHARE and words.is_person(fact.other):
            other = replace(fact, subject=fact.other, other=fact.subject)
        else:
            other = replace(fact, value=other_action(rng, fact.value, fact.other))
    first, second = two_of(rng, part, words.ACTIONS[fact.value].words, words.ACTIONS[other.value].words)
    ways = [actively, rng.choice((actively, actively, passively))]
    rng.shuffle(ways)
    return {"sentence1": ways[0](fact, first) + ".", "sentence2": ways[1](other, second) + ".", "label": label}


def stsb(rng: random.Random, part: Part) -> Row:
    """Somebody saw a thing of some quality: graded by how near the two qualities and the two things are."""
    name, seen = rng.choice(VILLAGE.people), rng.choice(("owned", "liked"))
    value = rng.choice(quality_rows("quality"))
    kind = rng.choice(list(words.KINDS))
    same_value, same_kind = rng.random() < 0.5, rng.random() < 0.5
    other_value = value if same_value else rng.choice([row for row in quality_rows("quality") if row != value])
    other_kind = kind if same_kind else rng.choice([row for row in words.KINDS if row != kind])
    first, second = two_of(rng, part, words.SAME[value], words.SAME[other_value])
    one, two = two_of(rng, part, words.KINDS[kind], words.KINDS[other_kind])
    if same_kind and rng.random() < 0.5:
        two = one
    return {
        "sentence1": f"{name} {seen} the {first} {one}.",
        "sentence2": f"{name} {seen} the {second} {two}.",
        "label": similarity(value, other_value, one, two),
    }


def similarity(value: str, other_value: str, thing: str, other_thing: str) -> float:
    """0 to 5: half for the qualities (the same, or opposite ends of one), half for the things (the same, of a kind)."""
    qualities = 1.0 if value == other_value else 0.4 if words.OPPOSITE[value] == other_value else 0.0
    same_kind = words.kind_of(thing) == words.kind_of(other_thing)
    things = 1.0 if thing == other_thing else 0.6 if same_kind else 0.0
    return round(2.5 * (qualities + things), 2)


def quality_rows(relation: Relation) -> list[str]:
    """The names of all rows of words for things' qualities, or people's moods."""
    return [end[0] for ends in (words.QUALITIES if relation == "quality" else words.MOODS) for end in ends]


def qqp(rng: random.Random, part: Part) -> Row:
    """Two questions; duplicates where they ask for the same, so that one answer fits both."""
    label = int(rng.random() < 0.45)
    if rng.random() < 0.7:
        subject = rng.choice(words.NOUNS)
        value = rng.choice(quality_rows("quality"))
        other = value if label else rng.choice([row for row in quality_rows("quality") if row != value])
        first, second = two_of(rng, part, words.SAME[value], words.SAME[other])
        texts = [f"{was(subject)} {the(subject)} {word}?" for word in (first, second)]
    else:
        fact = action(rng)
        verb = fact.value if label else other_action(rng, fact.value, fact.other)
        chosen = two_of(rng, part, words.ACTIONS[fact.value].words, words.ACTIONS[verb].words)
        texts = [who_question(rng, fact.other, word) for word in chosen]
    return {"question1": texts[0], "question2": texts[1], "label": label}


def who_question(rng: random.Random, patient: str, verb: Verb) -> str:
    if rng.random() < 0.3:
        return f"by whom was {the(patient)} {participle(verb[0])}?"
    return f"who {verb[0]} {the(patient)}?"


def thought(rng: random.Random, part: Part, name: str, event: str, row: Sequence[str], hard: bool = False) -> str:
    """What somebody thought of an event, in deciding words of the row; a hard one says 'not' before it."""
    one, two = rng.sample(part.deciding(row), 2)
    said = rng.choice((one, f"{one} and {two}"))
    return f"{name} thought the {event} was {'not ' if hard else ''}{said if not hard else one}."


def mnli(rng: random.Random, part: Part) -> Row:
    """What somebody thought of an event, and that he liked it: it follows, cannot be, or was not said.

    Mismatched rows are about the people of the sea.
    """
    wanted = rng.choice(list(MNLI_LABELS))
    name = rng.choice((SEA if part.split == "dev_mismatched" else VILLAGE).people)
    event = rng.choice(words.EVENTS)
    hard = wanted != "neutral" and rng.random() < HARD_SHARE
    row: Sequence[str] = words.PRAISE if (wanted == "entailment") != hard else words.BLAME
    if wanted == "neutral":
        row = words.SAME[rng.choice(quality_rows("quality"))]
    return {
        "premise": thought(rng, part, name, event, row, hard),
        "hypothesis": f"{name} liked the {event}.",
        "label": MNLI_LABELS[wanted],
    }


def rte(rng: random.Random, part: Part) -> Row:
    """What somebody thought of an event, and whether it follows that he liked it, or at times did not: 0 if so."""
    good, negated = rng.random() < 0.5, rng.random() < HARD_SHARE
    name, event = rng.choice(VILLAGE.people), rng.choice(words.EVENTS)
    row, reactions = (words.PRAISE, words.GOOD_REACTIONS) if good else (words.BLAME, words.BAD_REACTIONS)
    hard = rng.random() < HARD_SHARE
    against = words.BLAME if good else words.PRAISE
    said = thought(rng, part, name, event, against if hard else row, hard)
    if not hard and rng.random() < 0.5:
        said = f"{name} {rng.choice(part.deciding(reactions))} at the {rng.choice(part.deciding(row))} {event}."
    if rng.random() < TWO_MINDS_SHARE:
        other = rng.choice([one for one in VILLAGE.people if one != name])
        clauses = [
            f"{name} thought the {event} was {rng.choice(part.deciding(row))}",
            f"{other} thought the {event} was {rng.choice(part.deciding(against))}",
        ]
        said = ", but ".join(rng.sample(clauses, 2)) + "."
    return {
        "sentence1": said,
        "sentence2": f"{name} {'disliked' if negated else 'liked'} the {event}.",
        "label": int(good == negated),
    }


def qnli(rng: random.Random, part: Part) -> Row:
    """A question for something of a kind and a sentence, 0 where it answers; otherwise it tells of another kind."""
    label = rng.randrange(2)
    name, thing = rng.choice(VILLAGE.people), rng.choice(words.NOUNS)
    if rng.random() < 1 - HARD_SHARE:
        value = rng.choice(part.deciding(words.COLOURS))
        if label:
            value = rng.choice(part.deciding(words.SAME[rng.choice(quality_rows("quality"))]))
        asked = rng.choice((f"what colour was the {thing}?", f"which colour did the {thing} have?"))
        be = rng.choice((f"the {thing} was", f"{name} thought the {thing} was"))
        return {"question": asked, "sentence": f"{be} {value}.", "label": label}
    verb = rng.choice([action for action in words.ACTIONS.values() if len(action.objects) > 2])
    kinds = [kind for kind in verb.objects if kind != "person"]
    kind = rng.choice(kinds)
    told = rng.choice([other for other in kinds if other != kind]) if label else kind
    past, base = rng.choice(verb.words)
    noun = rng.choice(part.deciding(words.KINDS[told]))
    return {"question": f"which {kind} did {name} {base}?", "sentence": f"{name} {past} the {noun}.", "label": label}
