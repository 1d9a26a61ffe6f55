"""From the logits of windows to answers: the best spans of each question, cut from its context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from triune.data.squad import Question
from triune.data.windows import Windows
from triune.errors import TriuneError


@dataclass
class Answer:
    """The best span of a question and what else came close.

    `score` is the sum of its two logits. `null_score` is the same for [CLS], in the window where it is smallest: only
    if every window says that it holds no answer, there is none. `probability` in `n_best` is among the spans listed.
    """

    id: str
    text: str
    score: float
    null_score: float
    n_best: list[dict[str, Any]]  # text, score, probability; the best first


def best_answers(
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    windows: Windows,
    questions: Sequence[Question],
    n_best: int = 20,
    max_answer_tokens: int = 30,
) -> list[Answer]:
    """One answer for each question; the logits are one array for each window, as long as it."""
    if n_best < 1 or max_answer_tokens < 1:
        raise TriuneError(f"n_best={n_best} and max_answer_tokens={max_answer_tokens} must be at least 1")
    if not len(start_logits) == len(end_logits) == len(windows):
        raise TriuneError(f"{len(start_logits)} and {len(end_logits)} logits for {len(windows)} windows; give one each")
    null_scores = [np.inf] * len(questions)
    found: list[list[tuple[float, int, int]]] = [[] for _ in questions]  # score, first and last character
    for number, index in enumerate(windows.question_index.tolist()):
        start, end = (np.asarray(logits[number], dtype=np.float64) for logits in (start_logits, end_logits))
        tokens = len(windows.input_ids[number])
        if start.shape != (tokens,) or end.shape != (tokens,):
            raise TriuneError(f"window {number} has {tokens} tokens, its logits have shapes {start.shape}, {end.shape}")
        if not (np.isfinite(start).all() and np.isfinite(end).all()):
            raise TriuneError(
                f"the model's logits for question '{questions[index].id}' are not finite; did it diverge?"
            )
        null_scores[index] = min(null_scores[index], float(start[0] + end[0]))
        first = int(windows.first_length[number])
        scores, firsts, lasts = _best_spans(start[first:-1], end[first:-1], n_best, max_answer_tokens)
        offsets = windows.offsets[number][first:]
        found[index] += zip(scores.tolist(), offsets[firsts, 0].tolist(), offsets[lasts, 1].tolist(), strict=True)
    missing = next(
        (question.id for question, score in zip(questions, null_scores, strict=True) if score == np.inf), None
    )
    if missing is not None:
        raise TriuneError(f"question '{missing}' has no window; make windows and answers from the same questions")
    return [
        _answer(question, spans, null_score, n_best)
        for question, spans, null_score in zip(questions, found, null_scores, strict=True)
    ]


def _best_spans(start: np.ndarray, end: np.ndarray, n_best: int, longest: int) -> tuple[np.ndarray, ...]:
    """(scores, first tokens, last tokens) of the best spans of at most `longest` tokens, the best first."""
    if not len(start):
        return np.zeros(0), np.zeros(0, int), np.zeros(0, int)
    longest = min(longest, len(start))
    beyond = np.concatenate((end, np.full(longest - 1, -np.inf)))
    # Row i holds the spans that begin at token i: one column for each length.
    scores = (start[:, None] + sliding_window_view(beyond, longest)).ravel()
    kept = np.argpartition(-scores, n_best - 1)[:n_best] if len(scores) > n_best else np.arange(len(scores))
    kept = kept[scores[kept] > -np.inf]
    kept = kept[np.lexsort((kept, -scores[kept]))]  # of equal scores the earlier one
    firsts, lengths = np.divmod(kept, longest)
    return scores[kept], firsts, firsts + lengths


def _answer(question: Question, spans: list[tuple[float, int, int]], null_score: float, n_best: int) -> Answer:
    texts: dict[str, float] = {}
    for score, first, last in sorted(spans, key=lambda span: -span[0]):
        # Windows overlap and texts repeat: each text counts once, with its best score.
        texts.setdefault(question.context[first:last], score)
        if len(texts) == n_best:
            break
    if not texts:  # the context has no tokens
        return Answer(question.id, "", null_score, null_score, [])
    scores = np.array(list(texts.values()))
    weights = np.exp(scores - scores[0])
    listed = [
        {"text": text, "score": score, "probability": probability}
        for (text, score), probability in zip(texts.items(), (weights / weights.sum()).tolist(), strict=True)
    ]
    return Answer(question.id, listed[0]["text"], listed[0]["score"], null_score, listed)


def predictions(answers: Sequence[Answer], threshold: float | None) -> dict[str, str]:
    """The text for each id; "" where no answer is better by more than the threshold. None: always a text."""
    return {
        answer.id: "" if threshold is not None and answer.null_score - answer.score > threshold else answer.text
        for answer in answers
    }
