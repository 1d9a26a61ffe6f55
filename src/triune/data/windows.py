"""Questions and contexts as token windows: overlapping, with the place of every token in the text.

A context is tokenised once, whole, however many questions ask about it; windows are slices of its tokens. So a word is
never cut by the edge of a window, and a token stands for the same characters in all of its windows.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from triune.data.squad import Question
from triune.errors import TriuneError

LONGEST_QUESTION = 64  # tokens; as in BERT's own runs, what is longer loses its end
SPECIALS = 3  # [CLS] question [SEP] context [SEP]
BATCH = 256  # contexts tokenised at a time


@dataclass
class Windows:
    """One entry for each window, in the order of the questions; nothing is padded.

    `offsets` holds where each token begins and ends in the context, (-1, -1) for tokens outside of it. `start` and
    `end` are the token positions of the first answer, both inclusive; 0, which is [CLS], where the window does not
    hold the whole answer.
    """

    input_ids: list[list[int]] = field(default_factory=list)
    offsets: list[np.ndarray] = field(default_factory=list)  # int32, tokens × 2
    is_context: list[np.ndarray] = field(default_factory=list)  # bool
    first_length: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))  # [CLS], question and [SEP]
    question_index: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    start: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    end: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass
class _Tokens:
    """A tokenised context."""

    ids: list[int]
    offsets: np.ndarray


def windows(questions: Sequence[Question], tokenizer: Any, max_length: int = 384, stride: int = 128) -> Windows:
    """Each question with its context, cut into windows of at most `max_length` tokens.

    A window begins `stride` tokens of context after the one before it, as BERT's `doc_stride` has it. (The argument
    `stride` of Hugging Face tokenizers is the overlap instead.)
    """
    if stride < 1:
        raise TriuneError(f"stride={stride} is not possible; a window must begin at least 1 token after the last one")
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())  # a copy: its settings are ours to change
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True  # text that spells [SEP] is text
    asked = backend.encode_batch([question.question for question in questions], add_special_tokens=False)
    contexts = _tokenize(backend, list(dict.fromkeys(question.context for question in questions)))
    made = Windows()
    numbers: list[tuple[int, int, int, int]] = []
    for index, (question, encoded) in enumerate(zip(questions, asked, strict=True)):
        first = [tokenizer.cls_token_id, *encoded.ids[:LONGEST_QUESTION], tokenizer.sep_token_id]
        room = max_length - len(first) - 1
        if room < 1:
            raise TriuneError(
                f"question '{question.id}' takes {len(first) - 2} tokens, which with {SPECIALS} special tokens leaves "
                f"no room for its context in max_length={max_length}; make max_length larger"
            )
        tokens = contexts[question.context]
        answer = _answer_tokens(question, tokens.offsets)
        for begin in _begins(len(tokens.ids), room, min(stride, room)):
            ids = tokens.ids[begin : begin + room]
            made.input_ids.append([*first, *ids, tokenizer.sep_token_id])
            offsets = np.full((len(first) + len(ids) + 1, 2), -1, dtype=np.int32)
            offsets[len(first) : -1] = tokens.offsets[begin : begin + room]
            made.offsets.append(offsets)
            made.is_context.append(offsets[:, 0] >= 0)
            shift = len(first) - begin
            whole = answer is not None and begin <= answer[0] and answer[1] < begin + len(ids)
            start, end = (answer[0] + shift, answer[1] + shift) if whole and answer is not None else (0, 0)
            numbers.append((len(first), index, start, end))
    columns = np.array(numbers, dtype=np.int32).reshape(-1, 4).T
    made.first_length, made.question_index, made.start, made.end = (column.copy() for column in columns)
    return made


def _begins(tokens: int, room: int, step: int) -> range:
    """Where windows begin: the last one is the first that reaches the end."""
    return range(0, max(tokens - room, 0) + step, step)


def _tokenize(backend: Tokenizer, contexts: list[str]) -> dict[str, _Tokens]:
    tokenized = {}
    for first in range(0, len(contexts), BATCH):
        batch = contexts[first : first + BATCH]
        for context, encoded in zip(batch, backend.encode_batch(batch, add_special_tokens=False), strict=True):
            offsets = np.array(encoded.offsets, dtype=np.int32).reshape(-1, 2)
            tokenized[context] = _Tokens(encoded.ids, _with_accents(context, offsets))
    return tokenized


def _with_accents(context: str, offsets: np.ndarray) -> np.ndarray:
    """Offsets that take in accents written as characters of their own, which the tokenizer drops.

    They belong to no token, so a word cut from the text would lose the accent of its last letter. Other characters that
    it drops, such as zero-width spaces, stay outside: they are no part of a word, and would make an answer wrong.
    """
    following = np.append(offsets[1:, 0], len(context))
    for token in np.flatnonzero(following > offsets[:, 1]).tolist():
        end = int(offsets[token, 1])
        while end < following[token] and unicodedata.category(context[end]).startswith("M"):
            end += 1
        offsets[token, 1] = end
    return offsets


def _answer_tokens(question: Question, offsets: np.ndarray) -> tuple[int, int] | None:
    """The first and the last token that hold characters of the first answer."""
    if not question.answers:
        return None
    text, start = question.answers[0]
    end = start + len(text.rstrip())
    start += len(text) - len(text.lstrip())
    first = int(np.searchsorted(offsets[:, 1], start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else None
