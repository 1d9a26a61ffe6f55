"""Tasks on one text: is it good English in this world (CoLA), and does its writer approve (SST-2)."""

import random
from collections.abc import Callable

from triune.data.pocket import words
from triune.data.pocket.facts import VILLAGE, Fact, Part, Scene, several
from triune.data.pocket.phrases import participle, statement, the, was
from triune.data.pocket.stories import opinion_sentence

Row = dict[str, str | int | float]
Fault = Callable[[random.Random, Scene, list[str]], list[str] | None]

ACCEPTABLE_SHARE = 0.65
TURNED_SHARE = 0.25  # of SST-2's rows: somebody thought otherwise; what it was counts


def cola(rng: random.Random, part: Part) -> Row:
    """A statement; where unacceptable, one fault of grammar or meaning in it."""
    scene = several(rng, VILLAGE, part.allows, 1)
    said = statement(rng, scene.facts[0]).split()
    label = int(rng.random() < ACCEPTABLE_SHARE)
    faulty = None
    while not label and faulty is None:
        faulty = rng.choice(FAULTS)(rng, scene, said)
    return {"sentence": " ".join(faulty or said) + ".", "label": label}


def wrong_number(rng: random.Random, scene: Scene, said: list[str]) -> list[str] | None:
    """The dogs was big; tom were in the barn."""
    other = {"was": "were", "were": "was"}
    return [other.get(word, word) for word in said] if set(other) & set(said) else None


def wrong_form(rng: random.Random, scene: Scene, said: list[str]) -> list[str] | None:
    """Did not found; was saw by; found in its base form."""
    if "did" not in said and "by" not in said and any(words.is_plural(word) for word in said):
        return None  # 'the dogs see amy' is good English
    forms = [form for action in words.ACTIONS.values() for form in action.words] + [*words.BASE_FORM.items()]
    base_of = dict(forms) | {participle(past): base for past, base in forms}
    past_of = {base: past for past, base in forms}
    if "did" in said:
        changed = [past_of.get(word, word) for word in said]
    else:
        changed = [base_of.get(word, word) for word in said]
    return changed if changed != said else None


def missing_word(rng: random.Random, scene: Scene, said: list[str]) -> list[str] | None:
    """Without one of the small words that the sentence needs."""
    small = ("the", "was", "were", "by", "in", "did", "to")
    places = [i for i, word in enumerate(said) if word in small]
    # 'dogs were big' needs no article.
    places = [i for i in places if said[i] != "the" or not words.is_plural(said[i + 1])]
    where = rng.choice(places) if places else None
    return None if where is None else said[:where] + said[where + 1 :]


def wrong_order(rng: random.Random, scene: Scene, said: list[str]) -> list[str] | None:
    """A small word after the one it belongs before: dog the, barn in the."""
    places = [i for i, word in enumerate(said[:-1]) if word in ("the", "by", "not", "in")]
    if not places:
        return None
    where = rng.choice(places)
    return [*said[:where], said[where + 1], said[where], *said[where + 2 :]]


def wrong_actor(rng: random.Random, scene: Scene, said: list[str]) -> list[str] | None:
    """What cannot act, acts: the cart chased tom; the kite took the plum."""
    actor = rng.choice([noun for noun in VILLAGE.things if not words.is_living(noun)])
    verb = rng.choice(list(words.ACTIONS))
    patient = rng.choice([name for name in (*VILLAGE.people, *VILLAGE.things) if name != actor])
    return statement(rng, Fact("action", actor, verb, patient)).split()


def wrong_object(rng: random.Random, scene: Scene, said: list[str]) -> list[str] | None:
    """An action on what it cannot be done to: amy fixed the plum; tom chased the plum."""
    verb = rng.choice(("chased", "took", "fixed"))
    patient = rng.choice([noun for noun in VILLAGE.things if words.kind_of(noun) not in words.ACTIONS[verb].objects])
    return statement(rng, Fact("action", rng.choice(scene.people), verb, patient)).split()


def wrong_slot(rng: random.Random, scene: Scene, said: list[str]) -> list[str] | None:
    """A word of the wrong class: in the red; was barn; taller the dog."""
    name = rng.choice([*scene.people, *scene.things])
    colour, place = rng.choice(words.COLOURS), rng.choice(words.PLACES)
    feeling = rng.choice(words.SAME[rng.choice(rng.choice(words.MOODS))[0]])
    things = [thing for thing in VILLAGE.things if not words.is_living(thing)]
    thing = rng.choice(things)
    return rng.choice(
        (
            f"{the(name)} {was(name)} in the {colour}",
            f"{the(name)} {was(name)} {place}",
            f"the {thing} {was(thing)} {feeling}",
        )
    ).split()


FAULTS: tuple[Fault, ...] = (
    wrong_number,
    wrong_form,
    missing_word,
    wrong_order,
    wrong_actor,
    wrong_object,
    wrong_slot,
)


def sst2(rng: random.Random, part: Part) -> Row:
    """Praise or blame of an event, in words of praise and blame that training and development rows do not share."""
    label = rng.randrange(2)
    name, event = rng.choice(VILLAGE.people), rng.choice(words.EVENTS)
    if rng.random() < TURNED_SHARE:
        thought, truth = (rng.choice(part.deciding(row)) for row in (words.PRAISE, words.BLAME)[:: 1 - 2 * label])
        said = rng.choice(
            (
                f"{name} thought the {event} was {thought}, but it was {truth}",
                f"the {event} was {truth}, but {name} thought it was {thought}",
            )
        )
    else:
        said = opinion_sentence(rng, name, event, bool(label), part)
    return {"sentence": said + ".", "label": label}
