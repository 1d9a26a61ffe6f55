"""The one exception for what a user can put right, and what its messages are made of."""

import difflib
from collections.abc import Iterable
from typing import Any


class TriuneError(ValueError):
    """A user's mistake: one line that says what was wrong, where, and what to do. The command exits with 2."""


class MissingCheckpointError(TriuneError, OSError):
    """Also of the class that transformers has for it: code that tries one name after the other catches that."""


class DivergedError(TriuneError):
    """The loss was not a finite number: for a study that is an answer, for a run of its own a mistake."""

    def __init__(self, message: str, short: str | None = None) -> None:
        super().__init__(message, short)
        self.short = short or message  # what a record says, without folders

    def __str__(self) -> str:
        return str(self.args[0])


def one_line(error: BaseException) -> str:
    """The message of any exception, on one line: other libraries spread theirs over several."""
    return " ".join(str(error).split()) or type(error).__name__


def shown(value: Any, longest: int | None = 40) -> str:
    """Any value as part of a message: one line, visible characters only, cut."""
    text = str(value)
    text = text if longest is None or len(text) <= longest else text[:longest] + "..."
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: the nearest one, and all of them."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean '{shown(near[0])}'?)" if near else ""
    more = f", ... ({len(known):,} in all)" if len(known) > 20 else ""
    return f"{hint}: there are {', '.join(shown(one) for one in known[:20])}{more}" if known else ": there are none"
