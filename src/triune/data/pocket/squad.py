"""Question answering in SQuAD's shape: short stories, questions about their facts, and where the answers stand."""

import random
import re
from typing import Any

from triune.data.pocket import words
from triune.data.pocket.facts import VILLAGE, Allowed, Fact, Relation, Scene, altered
from triune.data.pocket.phrases import askable, question, statement

ASKED: tuple[Relation, ...] = ("place", "colour", "owner", "action", "opinion", "compare")
VERSIONS = {"v1.1": "1.1", "v2.0": "v2.0"}  # what the official files call themselves
PARAGRAPHS_A_TITLE = 10
QUESTIONS_A_PARAGRAPH = 3
UNANSWERABLE_SHARE = 0.5  # of what is tried; some facts leave nothing to ask that the story does not tell


def squad(
    rng: random.Random, allowed: Allowed, split: str, version: str, questions: int, taken: set[str]
) -> dict[str, Any]:
    """A whole file. `taken` holds the contexts used so far, and takes up the new ones."""
    articles: list[dict[str, Any]] = []
    paragraphs: list[dict[str, Any]] = []
    made = 0
    while made < questions:
        context, facts, scene = context_of(rng, allowed)
        if context in taken:
            continue
        qas = questions_on(rng, scene, context, facts, split, version)[: questions - made]
        if not qas:
            continue
        taken.add(context)
        for asked in qas:
            asked["id"] = f"pocket-{version}-{split}-{made:05d}"
            made += 1
        paragraphs.append({"context": context, "qas": qas})
        if len(paragraphs) == PARAGRAPHS_A_TITLE or made == questions:
            articles.append({"title": f"pocket_{split}_{len(articles)}", "paragraphs": paragraphs})
            paragraphs = []
    return {"version": VERSIONS[version], "data": articles}


def context_of(rng: random.Random, allowed: Allowed) -> tuple[str, list[tuple[Fact, int, str]], Scene]:
    """A paragraph, with the place and the wording of each fact in it.

    Two facts of each of three relations: for every answer there is another word that would fit the question's kind.
    """
    while True:
        scene = Scene(rng, VILLAGE, allowed, people=3, things=2)
        relations = [relation for relation in rng.sample(ASKED, 3) for _ in range(2)]
        if all(scene.draw(relation, tries=20) for relation in relations):
            break
    sentences: list[tuple[Fact, int, str]] = []
    context = ""
    for fact in rng.sample(scene.facts, len(scene.facts)):
        said = statement(rng, fact) + "."
        context += " " if context else ""
        sentences.append((fact, len(context), said))
        context += said
    return context, sentences, scene


def questions_on(
    rng: random.Random, scene: Scene, context: str, sentences: list[tuple[Fact, int, str]], split: str, version: str
) -> list[dict[str, Any]]:
    answers_to: dict[tuple[str, ...], list[tuple[str, int, str]]] = {}
    for fact, start, said in sentences:
        for about, answer in askable(fact).items():
            answers_to.setdefault(about, []).append((answer, start, said))
    asked: set[tuple[str, ...]] = set()
    qas: list[dict[str, Any]] = []
    for fact, _, _ in sentences:
        if len(qas) == QUESTIONS_A_PARAGRAPH:
            break
        impossible = version == "v2.0" and rng.random() < UNANSWERABLE_SHARE
        # A claim next to the fact that is not in the story; most draws give one.
        near = next(filter(None, (altered(rng, scene, fact) for _ in range(10))), None) if impossible else fact
        # Only questions with one answer, or, where it must have none, with nothing in the story that gives one.
        choices = (
            [about for about in askable(near) if len(answers_to.get(about, [])) == (not impossible)] if near else []
        )
        choices = [about for about in choices if about not in asked]
        if not choices:
            continue
        about = rng.choice(choices)
        asked.add(about)
        row: dict[str, Any] = {"id": "", "question": question(rng, about) + "?"}
        row["answers"] = [] if impossible else spans(*answers_to[about][0], several=split != "train")
        if version == "v2.0":
            row["is_impossible"] = impossible
        qas.append(row)
    return qas


def spans(answer: str, start: int, said: str, several: bool) -> list[dict[str, Any]]:
    """The answer in its sentence: with its article first, and for a development set the shorter and longer forms."""
    match = re.search(rf"\b{answer}\b", said)
    assert match is not None
    forms = [answer]
    if said[: match.start()].endswith("the "):
        forms = [f"the {answer}", answer]
        if said[: match.start()].endswith("in the ") and answer in words.PLACES:
            forms.append(f"in the {answer}")
    forms = (forms * 3)[:3] if several else forms[:1]
    return [{"text": form, "answer_start": start + match.end() - len(form)} for form in forms]
