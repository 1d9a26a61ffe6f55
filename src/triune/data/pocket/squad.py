"""Question answering in SQuAD's shape: short stories, questions about their facts, and where the answers stand.

A story tells two things of one thing: 'the dog was in the barn. the dog was red.' What is asked for (a place, a colour,
a person) tells which word answers; where the story has none of the sort, nothing does. The places and colours of
development rows are those that no training row had. In some stories both sentences are of one sort and about two
things, and then it matters which of them is meant.
"""

import random
import re
from dataclasses import dataclass
from typing import Any

from triune.data.pocket import words
from triune.data.pocket.facts import VILLAGE, Fact, Part, Relation
from triune.data.pocket.phrases import the

VERSIONS = {"v1.1": "1.1", "v2.0": "v2.0"}  # what the official files call themselves
PARAGRAPHS_A_TITLE = 10
UNANSWERABLE_SHARE = 0.35
HARD_SHARE = 0.2
ASKED: tuple[Relation, ...] = ("place", "colour", "action")


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
        row["question"], answer = question(rng, asked)
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
    """Two facts that are told, and one of another sort, or of another thing, that is not."""
    things = rng.sample(words.NOUNS, 3)
    if rng.random() < HARD_SHARE:
        relation = rng.choice(ASKED)
        facts = [fact_of(rng, part, relation, thing) for thing in things]
        while len({(fact.subject if relation == "action" else fact.value) for fact in facts}) < 3:
            facts = [fact_of(rng, part, relation, thing) for thing in things]
    else:
        facts = [fact_of(rng, part, relation, things[0]) for relation in rng.sample(ASKED, 3)]
    told = tuple(facts[:2])
    return Story(told, facts[2], tuple(said(fact) + "." for fact in told))


def fact_of(rng: random.Random, part: Part, relation: Relation, thing: str) -> Fact:
    if relation == "action":
        return Fact("action", rng.choice(VILLAGE.people), "found", thing)
    row = words.PLACES if relation == "place" else words.COLOURS
    return Fact(relation, thing, rng.choice(part.deciding(row)))


def said(fact: Fact) -> str:
    if fact.relation == "action":
        return f"{fact.subject} found {the(fact.other)}"
    return f"{the(fact.subject)} was {'in the ' if fact.relation == 'place' else ''}{fact.value}"


def question(rng: random.Random, fact: Fact) -> tuple[str, str]:
    """A question about the fact and the word that answers it."""
    if fact.relation == "place":
        return rng.choice((f"where was {the(fact.subject)}?", f"in which place was {the(fact.subject)}?")), fact.value
    if fact.relation == "colour":
        wordings = (f"what colour was {the(fact.subject)}?", f"which colour did {the(fact.subject)} have?")
        return rng.choice(wordings), fact.value
    return rng.choice((f"who found {the(fact.other)}?", f"by whom was {the(fact.other)} found?")), fact.subject


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
