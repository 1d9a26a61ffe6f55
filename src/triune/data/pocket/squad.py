"""Question answering in SQuAD's shape: short stories, questions about their facts, and where the answers stand.

The sentences of a story share their frame and differ in who, and in one word that the question puts in other words:
'amy found the dog. tom chased the dog.' and 'who located the dog?'. In development rows that word of the question is
one that no training question had.
"""

import random
import re
from dataclasses import dataclass
from typing import Any

from triune.data.pocket import words
from triune.data.pocket.facts import VILLAGE, Fact, Part, Relation
from triune.data.pocket.pairs import quality_rows, who_question
from triune.data.pocket.phrases import the

VERSIONS = {"v1.1": "1.1", "v2.0": "v2.0"}  # what the official files call themselves
PARAGRAPHS_A_TITLE = 10
UNANSWERABLE_SHARE = 0.35
SENTENCES = 2
ASKED: tuple[Relation, ...] = ("quality", "mood", "action", "place")


@dataclass(frozen=True)
class Story:
    """Facts in their order, one that nothing in the text tells, and how they are said."""

    facts: tuple[Fact, ...]
    untold: Fact
    sentences: tuple[str, ...]

    @property
    def context(self) -> str:
        return " ".join(self.sentences)


def squad(rng: random.Random, part: Part, version: str, questions: int, taken: set[str]) -> dict[str, Any]:
    """A whole file. `taken` holds the contexts used so far, and takes up the new ones."""
    articles: list[dict[str, Any]] = []
    paragraphs: list[dict[str, Any]] = []
    made = 0
    while made < questions:
        story = story_of(rng, part)
        if story.context in taken:
            continue
        taken.add(story.context)
        impossible = version == "v2.0" and rng.random() < UNANSWERABLE_SHARE
        row: dict[str, Any] = {"id": f"pocket-{version}-{part.split}-{made:05d}"}
        where = rng.randrange(len(story.facts))
        asked = story.untold if impossible else story.facts[where]
        row["question"], answer = question(rng, part, asked)
        row["answers"] = [] if impossible else spans(story, where, answer, several=not part.training)
        if version == "v2.0":
            row["is_impossible"] = impossible
        paragraphs.append({"context": story.context, "qas": [row]})
        made += 1
        if len(paragraphs) == PARAGRAPHS_A_TITLE or made == questions:
            articles.append({"title": f"pocket_{part.split}_{len(articles)}", "paragraphs": paragraphs})
            paragraphs = []
    return {"version": VERSIONS[version], "data": articles}


def story_of(rng: random.Random, part: Part) -> Story:
    """Facts of one relation about different people or things, with different values; the last of them is not told."""
    count = SENTENCES + 1
    relation = rng.choice(ASKED)
    people = rng.sample(VILLAGE.people, count)
    if relation == "action":
        patient = rng.choice(words.NOUNS)
        verbs = [name for name, action in words.ACTIONS.items() if words.kind_of(patient) in action.objects]
        facts = [Fact("action", who, verb, patient) for who, verb in zip(people, rng.sample(verbs, count), strict=True)]
    elif relation == "place":
        places = rng.sample(words.PLACES, count)
        facts = [Fact("place", who, place) for who, place in zip(people, places, strict=True)]
    else:
        names = people if relation == "mood" else rng.sample(words.NOUNS, count)
        rows = rng.sample(quality_rows(relation), count)
        facts = [Fact(relation, who, row) for who, row in zip(names, rows, strict=True)]
    told = facts[:SENTENCES]
    return Story(tuple(told), facts[-1], tuple(said(rng, part, fact) + "." for fact in told))


def said(rng: random.Random, part: Part, fact: Fact) -> str:
    if fact.relation == "action":
        verb = rng.choice(part.beside(words.ACTIONS[fact.value].words))
        return f"{the(fact.subject)} {verb[0]} {the(fact.other)}"
    if fact.relation == "place":
        return f"{the(fact.subject)} was in the {fact.value}"
    return f"{the(fact.subject)} was {rng.choice(part.beside(words.SAME[fact.value]))}"


def question(rng: random.Random, part: Part, fact: Fact) -> tuple[str, str]:
    """A question about the fact, in words of its own, and the word that answers it."""
    if fact.relation == "place":
        if rng.random() < 0.5:
            return f"where was {the(fact.subject)}?", fact.value
        return f"who was in the {fact.value}?", fact.subject
    if fact.relation == "action":
        verb = rng.choice(part.deciding(words.ACTIONS[fact.value].words))
        return who_question(rng, fact.other, verb), fact.subject
    asker = "who" if fact.relation == "mood" else "what"
    return f"{asker} was {rng.choice(part.deciding(words.SAME[fact.value]))}?", fact.subject


def spans(story: Story, where: int, answer: str, several: bool) -> list[dict[str, Any]]:
    """The answer in its sentence: with its article first, and for a development set the shorter and longer forms."""
    sentence = story.sentences[where]
    start = sum(len(before) + 1 for before in story.sentences[:where])
    match = re.search(rf"\b{answer}\b", sentence)
    assert match is not None
    forms = [answer]
    if sentence[: match.start()].endswith("the "):
        forms = [f"the {answer}", answer]
        if sentence[: match.start()].endswith("in the ") and answer in words.PLACES:
            forms.append(f"in the {answer}")
    forms = (forms * 3)[:3] if several else forms[:1]
    return [{"text": form, "answer_start": start + match.end() - len(form)} for form in forms]
