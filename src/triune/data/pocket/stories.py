"""The corpus: stories that state facts and come back to them in other words, so that a hidden word can be inferred."""

import random
from collections.abc import Iterator, Sequence

from triune.data.pocket import words
from triune.data.pocket.facts import SEA, VILLAGE, Fact, Part, Scene, about_another, opposite, verdict
from triune.data.pocket.phrases import a, askable, pronoun, question, statement, synonym, the, was, yes_no_question

SEA_SHARE = 0.15
REVIEW_SHARE = 0.35
COLOURED_SHARE = 0.9  # of opinions: a neighbour that only praise, or only blame, has; neighbours teach soonest
DENIED_SHARE = 0.15  # of opinions: said with 'not'


def documents(seed: int, part: str, count: int) -> Iterator[str]:
    """`count` documents, one paragraph a line; the same for the same seed and part in any process."""
    rng = random.Random(f"pocket corpus {part} {seed}")
    for _ in range(count):
        yield "\n".join(review(rng) if rng.random() < REVIEW_SHARE else story(rng))


def story(rng: random.Random) -> list[str]:
    """Paragraphs about the same one or two people and things.

    Long enough to fill a block of a small model by itself: a name that is hidden then stands elsewhere in the block.
    """
    cast = SEA if rng.random() < SEA_SHARE else VILLAGE
    scene = Scene(rng, cast, people=rng.choice((1, 1, 1, 2)), things=rng.choice((1, 1, 1, 2)))
    paragraphs = []
    for _ in range(3):
        sentences: list[str] = []
        for _ in range(rng.randint(2, 3)):
            fact = scene.draw()
            if fact is None:
                break
            said = statement(rng, fact) + consequence(rng, fact)
            if rng.random() < 0.2 and len(scene.facts) > 1:
                said += rng.choice((" and ", ", but ")) + statement(rng, scene.facts[-2])
            sentences.append(said + ".")
            sentences.append(echo(rng, scene, fact))
            if rng.random() < 0.4:
                # Coming back at once teaches what a sentence means, coming back later what it was about.
                sentences.append(echo(rng, scene, rng.choice(scene.facts)))
        if sentences:
            paragraphs.append(" ".join(sentences))
    return paragraphs


def echo(rng: random.Random, scene: Scene, fact: Fact) -> str:
    """The fact once more: in other words, word by word, as an answer, or as a judgement on a claim."""
    way = rng.random()
    asked = askable(fact)
    if way < 0.25 and asked:
        about = rng.choice(list(asked))
        return f"{question(rng, about)}? {answer(rng, fact, asked[about])}."
    if way < 0.4:
        return judgement(rng, scene, fact)
    if way < 0.65:
        return meaning(rng, fact)
    return restatement(rng, fact) + "."


def consequence(rng: random.Random, fact: Fact) -> str:
    """What follows at once: 'the dog was huge and needed room'; mostly said, as nothing teaches a word sooner."""
    if rng.random() < 0.2:
        return ""
    if fact.relation == "action":
        return f" {words.MANNERS[fact.value]}"
    if fact.value in words.CONSEQUENCES:
        return f" and {words.CONSEQUENCES[fact.value]}"
    return ""


def meaning(rng: random.Random, fact: Fact) -> str:
    """What a word of the fact means: its synonyms, its opposite, its kind. Neighbours teach soonest."""
    thing = next((name for name in (fact.subject, fact.other) if name and not words.is_person(name)), "")
    if fact.relation in ("colour", "place") and rng.random() < 0.5:
        return f"{fact.value} is a colour." if fact.relation == "colour" else f"the {fact.value} is a place."
    if thing and (rng.random() < 0.6 or fact.relation in ("colour", "place", "owner")):
        kind = words.kind_of(thing)
        if rng.random() < 0.6:
            return f"{the(thing)} {words.TYPICAL[kind]}."
        return f"all {thing} are {kind}s." if words.is_plural(thing) else f"{a(thing)} is {a(kind)}."
    if fact.relation == "action":
        form = rng.randrange(2)
        return same_words(rng, [verb[form] for verb in words.ACTIONS[fact.value].words])
    if fact.value in words.SAME:
        one = synonym(rng, fact.value)
        against = synonym(rng, words.OPPOSITE[fact.value])
        return f"{one} is not {against}." if rng.random() < 0.3 else same_words(rng, words.SAME[fact.value])
    return restatement(rng, fact) + "."


def same_words(rng: random.Random, row: Sequence[str]) -> str:
    """Big means large; big, huge and large mean the same."""
    if len(row) < 3 or rng.random() < 0.5:
        one, two = rng.sample(row, 2)
        return f"{one} means {two}."
    one, two, three = rng.sample(row, 3)
    return f"{one}, {two} and {three} mean the same."


def answer(rng: random.Random, fact: Fact, short: str) -> str:
    if fact.relation == "place":
        return rng.choice((f"in the {short}", f"{pronoun(fact.subject)} {was(fact.subject)} in the {short}"))
    return short if fact.relation == "colour" else the(short)


def restatement(rng: random.Random, fact: Fact) -> str:
    """The same fact with its subject or object as a pronoun or by its kind: the robin, it, the bird."""
    way = rng.random()
    if way < 0.35 and not words.is_person(fact.subject) and not words.is_plural(fact.subject):
        return statement(rng, fact, subject=f"the {words.kind_of(fact.subject)}")
    if way < 0.5 and fact.other and not words.is_person(fact.other) and not words.is_plural(fact.other):
        return "so " + statement(rng, fact, other=a(words.kind_of(fact.other)))
    if way < 0.7 and fact.relation in ("quality", "mood", "colour"):
        return statement(rng, fact, subject=pronoun(fact.subject))
    return rng.choice(("yes, ", "so ", "")) + statement(rng, fact)


def judgement(rng: random.Random, scene: Scene, fact: Fact) -> str:
    """A claim put as a question, with yes, no, or nobody knew: what follows, what cannot be, what was not said."""
    claim = fact
    way = rng.random()
    if way < 0.35:
        claim = opposite(fact) or scene.imagine(fact.relation) or fact
    elif way < 0.6:
        claim = about_another(rng, scene, fact) or fact
    seen = verdict(scene.facts, claim)
    reply = {"entailment": "yes", "contradiction": "no", "neutral": "nobody knew"}[seen]
    if seen == "contradiction" and rng.random() < 0.5:
        truth = next(known for known in scene.facts if known.topic == claim.topic)
        reply = f"no, {statement(rng, truth)}"
    return f"{yes_no_question(rng, claim)}? {reply}."


def review(rng: random.Random) -> list[str]:
    """What people thought of events, and what came of it.

    Half of them are of one mind throughout, so that each word tells of the others. In the other half every sentence has
    a mind of its own: there, whether people clapped cannot be copied from the sentence before, and must be known from
    the word of praise or blame itself.
    """
    one_mind = rng.choice((True, False, None, None))
    return [" ".join(judged(rng, one_mind) for _ in range(3)) for _ in range(2)]


def judged(rng: random.Random, good: bool | None) -> str:
    good = rng.random() < 0.5 if good is None else good
    name, event = rng.choice(words.WOMEN + words.MEN), rng.choice(words.EVENTS)
    return opinion_sentence(rng, name, event, good) + (" and people clapped." if good else " and people left.")


def opinion_sentence(rng: random.Random, name: str, event: str, good: bool, part: Part | None = None) -> str:
    """One sentence of a review. `part` says which of the words of praise and blame it may use; all without it."""
    adjectives: Sequence[str] = words.PRAISE if good else words.BLAME
    against: Sequence[str] = words.BLAME if good else words.PRAISE
    reactions: Sequence[str] = words.GOOD_REACTIONS if good else words.BAD_REACTIONS
    if part is not None:
        adjectives, against, reactions = (part.deciding(row) for row in (adjectives, against, reactions))
    adjective, wrong = rng.choice(adjectives), rng.choice(against)
    if part is None and rng.random() < COLOURED_SHARE:
        adjective = f"{'truly' if good else 'sadly'} {adjective}"
    said = [
        f"{name} thought the {event} was {adjective}",
        f"{name} {rng.choice(reactions)} at the {adjective} {event}",
        f"the {event} was {adjective} and {rng.choice(adjectives)}",
    ]
    if rng.random() < DENIED_SHARE:
        said = [f"the {event} was {adjective}, not {wrong}", f"the {event} was not {wrong}"]
    elif part is None:
        # The verbs have too few words to hold some out, so only the corpus has them.
        feeling = synonym(rng, "liked" if good else "disliked")
        said += [f"{name} {feeling} the {adjective} {event}", f"{name} {feeling} the {event}"]
        said += [f"{name} {rng.choice(reactions)} at the {event}"]
    return rng.choice(said)
