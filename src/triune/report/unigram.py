"""The level that a model must get below to know more than how often words occur."""

from collections.abc import Sequence
from typing import Any

Record = dict[str, Any]


def unigram_of(record: Record) -> float:
    """On the text that is scored; earlier records know it for the training text only."""
    known = record.get("unigram_loss")
    return float(record["unigram_entropy"] if known is None else known)


def unigram_note(records: Sequence[Record]) -> str:
    levels = " or ".join(dict.fromkeys(f"{unigram_of(one):.3f}" for one in records))
    if all(one.get("unigram_loss") is not None for one in records):
        return f"Word frequencies of the training text alone give {levels} nats on the scored text (unigram)."
    return (
        f"Unigram entropy of the training text: {levels} nats. On the scored text, which may be of another kind, word "
        "frequencies alone may give more or less."
    )
