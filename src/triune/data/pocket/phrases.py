"""Facts as English: statements in several wordings, their negations, questions, and what answers them."""

import random

from triune.data.pocket import words
from triune.data.pocket.facts import Fact


def the(name: str) -> str:
    return name if words.is_person(name) or name in ("it", "they", "he", "she", "him", "her", "them") else f"the {name}"


def a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def was(name: str) -> str:
    return "were" if words.is_plural(name) or name == "they" else "was"


def pronoun(name: str, subject: bool = True) -> str:
    if words.is_person(name):
        if words.is_woman(name):
            return "she" if subject else "her"
        return "he" if subject else "him"
    if words.is_plural(name):
        return "they" if subject else "them"
    return "it"


def synonym(rng: random.Random, value: str) -> str:
    return rng.choice(words.SAME[value])


def participle(past: str) -> str:
    return {"took": "taken"}.get(past, past)


def statement(rng: random.Random, fact: Fact, negated: bool = False, subject: str = "", other: str = "") -> str:
    """The fact in one of its wordings, without the full stop. `subject` and `other` replace the noun phrases.

    A negated fact is said with 'not'; a fact with two ends is at times said by negating the other end.
    """
    who, whom = subject or the(fact.subject), other or (the(fact.other) if fact.other else "")
    be = was(subject or fact.subject)
    swap = rng.random() < 0.05
    if fact.relation in ("quality", "mood"):
        value = words.OPPOSITE[fact.value] if swap else fact.value
        return f"{who} {be} {'not ' if swap != negated else ''}{synonym(rng, value)}"
    if fact.relation == "colour":
        return f"{who} {be} {'not ' if negated else ''}{fact.value}"
    if fact.relation == "place":
        if negated:
            return f"{who} {be} not in the {fact.value}"
        return f"in the {fact.value} {be} {who}" if rng.random() < 0.2 else f"{who} {be} in the {fact.value}"
    if fact.relation == "owner":
        if negated:
            return rng.choice((f"{who} did not own {whom}", f"{whom} did not belong to {who}"))
        return rng.choice((f"{who} owned {whom}", f"{whom} belonged to {who}"))
    if fact.relation == "opinion":
        value = synonym(rng, words.OPPOSITE[fact.value] if swap else fact.value)
        return f"{who} did not {words.BASE_FORM[value]} {whom}" if swap != negated else f"{who} {value} {whom}"
    past, base = rng.choice(words.ACTIONS[fact.value].words)
    if rng.random() < 0.25:
        be = was(other or fact.other)
        return f"{whom} {be} {'not ' if negated else ''}{participle(past)} by {who}"
    return f"{who} did not {base} {whom}" if negated else f"{who} {past} {whom}"


About = tuple[str, ...]


def _asking_for(name: str) -> str:
    """'whom', or 'which tool' of a thing: the kind in the question is what tells it from another."""
    return "whom" if words.is_person(name) else f"which {words.kind_of(name)}"


def askable(fact: Fact) -> dict[About, str]:
    """What can be asked about the fact, with the one word that answers it. Equal keys are the same question."""
    if fact.relation in ("place", "colour"):
        return {(fact.relation, fact.subject): fact.value}
    if fact.relation == "owner":
        return {("owner", fact.other): fact.subject}
    if fact.relation == "opinion":
        return {("opinion", fact.value, fact.subject): fact.other}
    if fact.relation == "action":
        return {
            ("agent", fact.value, fact.other, "who" if words.is_person(fact.subject) else "what"): fact.subject,
            ("patient", fact.value, fact.subject, _asking_for(fact.other)): fact.other,
        }
    return {}


def question(rng: random.Random, about: About) -> str:
    """A question in one of its wordings, without the question mark."""
    relation, *rest = about
    if relation == "place":
        name = rest[0]
        return rng.choice((f"where {was(name)} {the(name)}", f"in which place {was(name)} {the(name)}"))
    if relation == "colour":
        name = rest[0]
        return rng.choice((f"what colour {was(name)} {the(name)}", f"which colour did {the(name)} have"))
    if relation == "owner":
        return rng.choice((f"who owned {the(rest[0])}", f"to whom did {the(rest[0])} belong"))
    if relation == "opinion":
        return f"what did {rest[1]} {words.BASE_FORM[synonym(rng, rest[0])]}"
    verb, name, asked = rest
    past, base = rng.choice(words.ACTIONS[verb].words)
    if relation == "agent":
        by = "by whom" if asked == "who" else "by what"
        return rng.choice((f"{asked} {past} {the(name)}", f"{by} {was(name)} {the(name)} {participle(past)}"))
    return rng.choice((f"{asked} did {the(name)} {base}", f"{asked} was {participle(past)} by {the(name)}"))


def yes_no_question(rng: random.Random, fact: Fact) -> str:
    """A statement turned into a question, in the plain wording."""
    who, whom = the(fact.subject), the(fact.other) if fact.other else ""
    if fact.relation in ("quality", "mood"):
        return f"{was(fact.subject)} {who} {synonym(rng, fact.value)}"
    if fact.relation == "colour":
        return f"{was(fact.subject)} {who} {fact.value}"
    if fact.relation == "place":
        return f"{was(fact.subject)} {who} in the {fact.value}"
    if fact.relation == "owner":
        return f"did {who} own {whom}"
    if fact.relation == "opinion":
        return f"did {who} {words.BASE_FORM[synonym(rng, fact.value)]} {whom}"
    return f"did {who} {rng.choice(words.ACTIONS[fact.value].words)[1]} {whom}"
