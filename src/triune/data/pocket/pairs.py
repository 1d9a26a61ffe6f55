"""Tasks on two texts: paraphrase (MRPC, QQP), similarity (STS-B), entailment (MNLI, RTE), does it answer (QNLI)."""

import random
from dataclasses import replace

from triune.data.pocket import words
from triune.data.pocket.facts import VILLAGE, Allowed, Cast, Fact, Scene, altered, normal, opposite, several, verdict
from triune.data.pocket.phrases import a, askable, question, statement, yes_no_question
from triune.data.pocket.sentences import Row

JOINS = (" and ", ". ", ", but ")
MNLI_LABELS = {"entailment": 0, "neutral": 1, "contradiction": 2}


def text(rng: random.Random, facts: list[Fact]) -> str:
    """The facts in any order and wording."""
    first, *rest = [statement(rng, fact) for fact in rng.sample(facts, len(facts))]
    return first + "".join(rng.choice(JOINS) + said for said in rest) + "."


def changed(rng: random.Random, scene: Scene, fact: Fact) -> Fact:
    """Another fact in nearly the same words; a new one where the world has no such."""
    for _ in range(20):
        other = altered(rng, scene, fact)
        if other:
            return other
    # A fact that `draw` adds is about a topic that the scene did not have.
    return scene.draw() or several(rng, VILLAGE, scene.allowed, 1).facts[0]


def mrpc(rng: random.Random, allowed: Allowed) -> Row:
    """One or two facts in both; a paraphrase where they are the same."""
    scene = several(rng, VILLAGE, allowed, rng.choice((1, 1, 2)))
    label = int(rng.random() < 0.55)
    first, second = list(scene.facts), list(scene.facts)
    if not label:
        where = rng.randrange(len(second))
        second[where] = changed(rng, scene, second[where])
    return {"sentence1": text(rng, first), "sentence2": text(rng, second), "label": label}


def similarity(one: list[Fact], two: list[Fact]) -> float:
    """0 to 5: the mean over the facts of both of 1 for the same fact in the other, 0.5 for a near one, else 0."""

    def nearness(fact: Fact, others: list[Fact]) -> float:
        if any(normal(fact) == normal(other) for other in others):
            return 1.0
        return 0.5 if any(is_near(fact, other) for other in others) else 0.0

    nearnesses = [nearness(fact, two) for fact in one] + [nearness(fact, one) for fact in two]
    return round(5 * sum(nearnesses) / len(nearnesses), 2)


def is_near(one: Fact, two: Fact) -> bool:
    """About the same thing, or the same said of another."""
    if one.topic == two.topic:
        return True
    same_word = one.relation == two.relation and one.value == two.value
    return same_word and bool({one.subject, one.other} & {two.subject, two.other} - {""} or not one.other)


def stsb(rng: random.Random, allowed: Allowed) -> Row:
    scene = several(rng, VILLAGE, allowed, rng.choice((1, 2)))
    first = list(scene.facts)
    second = []
    for fact in first:
        way = rng.random()
        fresh = scene.draw() if way < 0.3 else None
        second.append(fresh or (changed(rng, scene, fact) if way < 0.55 else fact))
    return {"sentence1": text(rng, first), "sentence2": text(rng, second), "label": similarity(first, second)}


def qqp(rng: random.Random, allowed: Allowed) -> Row:
    """Two questions; duplicates where they ask for the same, so that one answer fits both."""
    scene = several(rng, VILLAGE, allowed, 1)
    fact = scene.facts[0]
    label = int(rng.random() < 0.45)
    while True:
        other = fact if label else changed(rng, scene, fact)
        about, others = list(askable(fact)), list(askable(other))
        if about and rng.random() < 0.6:
            asked = rng.choice(about)
            # Both questions about an action, who did it and to whom, are also not the same question.
            choices = [asked] if label else [key for key in (*others, *about) if key != asked]
            if not choices:
                continue
            pair = question(rng, asked), question(rng, rng.choice(choices))
        else:
            pair = yes_no_question(rng, fact), yes_no_question(rng, other)
        if pair[0] != pair[1]:
            return {"question1": pair[0] + "?", "question2": pair[1] + "?", "label": label}


def claim_about(rng: random.Random, scene: Scene, wanted: str) -> tuple[Fact, bool] | None:
    """A claim of which the scene's facts say what is wanted; None where this draw does not give one."""
    fact = rng.choice(scene.facts)
    negated = False
    if wanted == "entailment":
        claim = fact
        if rng.random() < 0.1 and opposite(fact) is None and fact.relation != "action":
            claim, negated = scene.imagine(fact.relation) or fact, True
        elif rng.random() < 0.3 and fact.other and not words.is_person(fact.other) and not words.is_plural(fact.other):
            claim = replace(fact, other=words.kind_of(fact.other))
    elif wanted == "contradiction":
        claim = opposite(fact) or scene.imagine(fact.relation) or fact
        if rng.random() < 0.25:
            claim, negated = fact, True
    else:
        claim = altered(rng, scene, fact) or fact
        negated = rng.random() < 0.1
    return (claim, negated) if verdict(scene.facts, claim, negated) == wanted else None


def entailment(rng: random.Random, allowed: Allowed, cast: Cast, facts: int, wanted: str) -> tuple[str, str]:
    """Premise and hypothesis."""
    while True:
        scene = several(rng, cast, allowed, facts)
        for _ in range(10):
            found = claim_about(rng, scene, wanted)
            if found:
                claim, negated = found
                kind = a(claim.other) if claim.other in words.KINDS else ""
                return text(rng, scene.facts), statement(rng, claim, negated, other=kind) + "."


def mnli(rng: random.Random, allowed: Allowed, cast: Cast = VILLAGE) -> Row:
    wanted = rng.choice(list(MNLI_LABELS))
    premise, hypothesis = entailment(rng, allowed, cast, rng.choice((1, 1, 1, 2)), wanted)
    return {"premise": premise, "hypothesis": hypothesis, "label": MNLI_LABELS[wanted]}


def rte(rng: random.Random, allowed: Allowed) -> Row:
    """Longer premises than MNLI's, and two classes: 0 where the hypothesis follows."""
    wanted = rng.choice(("entailment", "entailment", "neutral", "contradiction"))
    premise, hypothesis = entailment(rng, allowed, VILLAGE, rng.choice((1, 2)), wanted)
    return {"sentence1": premise, "sentence2": hypothesis, "label": int(wanted != "entailment")}


def qnli(rng: random.Random, allowed: Allowed) -> Row:
    """A question and two facts, 0 where one of them answers it; otherwise they share most words with it."""
    label = rng.randrange(2)
    while True:
        scene = several(rng, VILLAGE, allowed, rng.choice((1, 2)))
        fact = rng.choice(scene.facts)
        known = {about for one in scene.facts for about in askable(one)}
        asked = list(askable(fact))
        if label:
            other = altered(rng, scene, fact) or scene.imagine(rng.choice(("place", "colour", "owner", "action")))
            other = other if other and scene.allowed(other) else None
            asked = [about for about in askable(other) if about not in known] if other else []
        if asked:
            return {
                "question": question(rng, rng.choice(asked)) + "?",
                "sentence": text(rng, scene.facts),
                "label": label,
            }
