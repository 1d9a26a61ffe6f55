"""The one exception for what a user can put right."""


class TriuneError(ValueError):
    """A user's mistake: one line that says what was wrong, where, and what to do. The command exits with 2."""


def one_line(error: BaseException) -> str:
    """The message of any exception, on one line: other libraries spread theirs over several."""
    return " ".join(str(error).split()) or type(error).__name__
