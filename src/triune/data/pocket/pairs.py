"""Tasks on two texts: paraphrase (MRPC, QQP), similarity (STS-B), entailment (MNLI, RTE), does it answer (QNLI).

The two texts share most words, and which sort of word stands in one place decides most rows: praise or blame, a good
mood or a bad one, a colour or a size. In development rows that word is one that no training row had (`Part`): what it
means must be known from the corpus. To compare two such words with each other is more than a model of this size learns
in some two hundred steps.
"""

import random
from collections.abc import Sequence

from triune.data.pocket import words
from triune.data.pocket.facts import SEA, VILLAGE, Part, Relation
from triune.data.pocket.phrases import a
from triune.data.pocket.sentences import Row

MNLI_LABELS = {"entailment": 0, "neutral": 1, "contradiction": 2}
HARD_SHARE = 0.25  # of rows where more than the one word has to be read: a negation, another subject
TWO_MINDS_SHARE = 0.15  # of rows about opinions: two people disagree, and it matters which of them is meant


def another(rng: random.Random, row: Sequence[str], said: str) -> str:
    """A word of the row that was not said: training rows with a word twice would teach to look for just that."""
    return rng.choice([word for word in row if word != said])


def mrpc(rng: random.Random, part: Part) -> Row:
    """That somebody was pleased with an event, and what he thought of it; a paraphrase where he thought well of it."""
    label = int(rng.random() < 0.55)
    name, event = rng.choice(VILLAGE.people), rng.choice(words.EVENTS)
    pleased = rng.choice(("liked", "loved", f"{words.known(words.GOOD_REACTIONS)[0]} at"))
    hard = rng.random() < HARD_SHARE  # said by denying the opposite
    word = rng.choice(part.deciding(words.PRAISE if bool(label) != hard else words.BLAME))
    said = f"{name} thought the {event} was {'not ' if hard else ''}{word}."
    if rng.random() < TWO_MINDS_SHARE:
        said = two_minds(rng, part, name, event, words.PRAISE if label else words.BLAME)
    return {
        "sentence1": f"{name} {pleased} the {event}.",
        "sentence2": said,
        "label": label,
    }


def stsb(rng: random.Random, part: Part) -> Row:
    """Praise of an event, and what somebody says of it, or of another one: graded by how near that is."""
    name = rng.choice(VILLAGE.people)
    event, other_event = rng.sample(words.EVENTS, 2)
    judgement = rng.choice(("praise", "neither", "blame"))
    same_event = rng.random() < 0.5
    rows = {"praise": words.PRAISE, "blame": words.BLAME, "neither": words.SAME[rng.choice(quality_rows("quality"))]}
    said = rng.choice(words.known(words.PRAISE))
    word = another(rng, part.deciding(rows[judgement]), said)
    return {
        "sentence1": f"{name} thought the {event} was {said}.",
        "sentence2": f"the {event if same_event else other_event} was {word}.",
        "label": similarity(judgement, same_event),
    }


def similarity(judgement: str, same_event: bool) -> float:
    """0 to 5: what is thought counts four times as much as what it is thought of."""
    return {"praise": 4.0, "neither": 2.0, "blame": 0.0}[judgement] + 1.0 * same_event


def quality_rows(relation: Relation) -> list[str]:
    """The names of all rows of words for things' qualities, or people's moods."""
    return [end[0] for ends in (words.QUALITIES if relation == "quality" else words.MOODS) for end in ends]


def qqp(rng: random.Random, part: Part) -> Row:
    """Two questions about a thing; duplicates where both are about its colour."""
    label = int(rng.random() < 0.45)
    name = rng.choice(VILLAGE.people)
    thing, other = rng.sample(words.NOUNS, 2)
    hard = not label and rng.random() < HARD_SHARE  # about the colour, but of another thing
    row = words.COLOURS if label or hard else words.SAME[rng.choice(quality_rows("quality"))]
    word = rng.choice(part.deciding(row))
    asked = rng.choice((f"what colour was the {thing}?", f"which colour did the {thing} have?"))
    told = f"did {name} own {a(word)} {other if hard else thing}?"
    return {"question1": asked, "question2": told, "label": label}


def two_minds(rng: random.Random, part: Part, name: str, event: str, row: Sequence[str]) -> str:
    """Somebody thinks of an event as the row says, and somebody else the opposite, in any order."""
    against = words.BLAME if row is words.PRAISE else words.PRAISE
    other = rng.choice([one for one in VILLAGE.people if one != name])
    clauses = [
        f"{name} thought the {event} was {rng.choice(part.deciding(row))}",
        f"{other} thought the {event} was {rng.choice(part.deciding(against))}",
    ]
    return ", but ".join(rng.sample(clauses, 2)) + "."


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
    said = thought(rng, part, name, event, row, hard)
    if wanted != "neutral" and rng.random() < TWO_MINDS_SHARE:
        said = two_minds(rng, part, name, event, words.PRAISE if wanted == "entailment" else words.BLAME)
    return {
        "premise": said,
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
        said = two_minds(rng, part, name, event, row)
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
