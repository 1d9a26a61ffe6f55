"""SQuAD's figures, equal to those of the official scripts for v1.1 and v2.0.

The scripts differ in one thing: gold answers of which normalisation leaves nothing ("the", "?"). For v1.1 they count,
and can be matched exactly but never for F1; for v2.0 they are dropped, and a question left without gold wants "".
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from triune.data.squad import Question
from triune.errors import TriuneError
from triune.evaluation.spans import Answer, predictions

Version = Literal["v1.1", "v2.0"]

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:an?|the)\b")


@dataclass(frozen=True)
class Threshold:
    """Where "no answer" begins: a question gets "" if its null score is above its score by more than this.

    `exact` and `f1` are what `evaluate` says of the predictions at `threshold`. The `best_…` figures are those of the
    official script, which takes questions of equal margin one by one and counts "the" for an unanswerable question as
    wrong; so they can differ a little from what the threshold reaches.
    """

    threshold: float  # that of the best F1
    exact: float
    f1: float
    best_f1: float
    best_exact: float
    best_exact_threshold: float


def normalize(text: str) -> str:
    """In lower case, without ASCII punctuation, articles and surplus white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> float:
    return float(normalize(prediction) == normalize(gold))


def token_f1(prediction: str, gold: str, version: Version = "v2.0") -> float:
    """The harmonic mean of precision and recall over words."""
    said, wanted = normalize(prediction).split(), normalize(gold).split()
    if version == "v2.0" and not (said and wanted):
        return float(said == wanted)
    shared = (Counter(said) & Counter(wanted)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(said), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def per_question(
    predictions: Mapping[str, str], questions: Sequence[Question], version: Version = "v2.0"
) -> dict[str, list[float]]:
    """Exact match and F1 of each question, from 0 to 1, in the order of the questions."""
    scores: dict[str, list[float]] = {"exact": [], "f1": []}
    for question in questions:
        if question.id not in predictions:
            raise TriuneError(f"there is no prediction for question '{question.id}'; predict every question")
        prediction, golds = predictions[question.id], _golds(question, version)
        scores["exact"].append(max(exact_match(prediction, gold) for gold in golds))
        scores["f1"].append(max(token_f1(prediction, gold, version) for gold in golds))
    return scores


def _golds(question: Question, version: Version) -> list[str]:
    texts = [text for text, _ in question.answers]
    if version == "v2.0":
        return [text for text in texts if normalize(text)] or [""]
    if not texts:
        raise TriuneError(f"question '{question.id}' has no answer, which v1.1 does not know; evaluate it as v2.0")
    return texts


def evaluate(
    predictions: Mapping[str, str], questions: Sequence[Question], version: Version = "v2.0"
) -> dict[str, float]:
    """exact, f1 (in percent) and total: of all questions, of those with (HasAns_) and without an answer (NoAns_).

    As in the official script, a group without questions has no keys. v1.1's `exact_match` is `exact`.
    """
    if not questions:
        raise TriuneError("there are no questions to evaluate")
    scores = per_question(predictions, questions, version)
    groups = {"": lambda question: True, "HasAns_": lambda question: question.answers, "NoAns_": _unanswerable}
    figures: dict[str, float] = {}
    for prefix, belongs in groups.items():
        members = [number for number, question in enumerate(questions) if belongs(question)]
        if members:
            for name in ("exact", "f1"):
                figures[prefix + name] = 100.0 * sum(scores[name][number] for number in members) / len(members)
            figures[f"{prefix}total"] = len(members)
    return figures


def _unanswerable(question: Question) -> bool:
    return not question.answers


def best_threshold(answers: Sequence[Answer], questions: Sequence[Question]) -> Threshold:
    """The threshold with the best F1 on these questions, as the official script for v2.0 chooses it.

    It must be chosen on other questions than those that it is reported for, or be reported as the best possible.
    """
    if not questions:
        raise TriuneError("there are no questions to choose a threshold on")
    texts = predictions(answers, None)
    scores = per_question(texts, questions)
    best_exact, exact_threshold = _sweep(answers, texts, questions, scores["exact"])
    best_f1, threshold = _sweep(answers, texts, questions, scores["f1"])
    reached = evaluate(predictions(answers, threshold), questions)
    return Threshold(threshold, reached["exact"], reached["f1"], best_f1, best_exact, exact_threshold)


def _sweep(
    answers: Sequence[Answer], texts: Mapping[str, str], questions: Sequence[Question], scores: list[float]
) -> tuple[float, float]:
    """(best score in percent, threshold): from no question answered to all, the surest first."""
    gain: dict[str, float] = {}  # what answering a question changes, against giving ""
    for question, score in zip(questions, scores, strict=True):
        gain[question.id] = score if question.answers else -float(bool(texts[question.id]))
    current = best = float(sum(map(_unanswerable, questions)))
    threshold = 0.0
    for answer in sorted(answers, key=_margin):
        current += gain.get(answer.id, 0.0)
        if current > best:
            best, threshold = current, _margin(answer)
    return 100.0 * best / len(questions), threshold


def _margin(answer: Answer) -> float:
    return answer.null_score - answer.score
