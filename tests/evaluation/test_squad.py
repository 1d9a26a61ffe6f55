"""Answers from logits, and SQuAD's figures: by hand, and against numbers that the official scripts gave."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triune.data.squad import Question, read_squad
from triune.data.tokenizer import load_tokenizer, train_tokenizer
from triune.data.windows import windows
from triune.errors import TriuneError
from triune.evaluation.spans import Answer, best_answers, predictions
from triune.evaluation.squad import (
    best_threshold,
    evaluate,
    exact_match,
    normalize,
    per_question,
    token_f1,
)

TEXT = "The small cat sat on the mat in Köln, and Zoë's café – opened 1998 – saw 2,000 dogs. 東京 naïve."
quiet = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "text.txt").write_text("\n\n".join([TEXT] * 3), encoding="utf-8")
    return load_tokenizer(train_tokenizer(folder / "text.txt", 200, folder / "out"))


def question(id, *golds):
    return Question(id, "?", "context", tuple((gold, 0) for gold in golds))


# --- figures


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  Cat's\tpyjamas!", "cats pyjamas"),
        ("an apple a day", "apple day"),
        ("theatre, ana, A.", "theatre ana"),
        ("U.S.A. a-the", "usa athe"),  # punctuation goes first, so articles joined by it stay
        ("“Über” – naïve", "“über” – naïve"),  # only ASCII punctuation
        ("The… a\u00a0b", "… b"),
        ("the", ""),
        ("", ""),
    ],
)
def test_normalisation(text, plain):
    assert normalize(text) == plain


@pytest.mark.parametrize(
    ("prediction", "gold", "exact", "f1"),
    [
        ("the Cat", "cat", 1, 1),
        ("black cat", "the black cat sat", 0, 0.8),
        ("cat cat dog", "cat dog dog", 0, 2 / 3),
        ("dog", "cat", 0, 0),
        ("", "cat", 0, 0),
        ("cat", "", 0, 0),
        ("", "", 1, 1),
        ("the", "", 1, 1),
    ],
)
def test_exact_match_and_f1(prediction, gold, exact, f1):
    assert exact_match(prediction, gold) == exact
    assert token_f1(prediction, gold) == pytest.approx(f1)


def test_evaluation_by_hand():
    questions = [question("a", "cat", "the black cat"), question("b"), question("c"), question("d", "1998")]
    given = {"a": "black cat", "b": "", "c": "dog", "d": "in 1998", "unknown": "x"}
    figures = evaluate(given, questions)
    assert list(figures) == [
        *["exact", "f1", "total", "HasAns_exact", "HasAns_f1", "HasAns_total"],
        *["NoAns_exact", "NoAns_f1", "NoAns_total"],
    ]
    assert figures == pytest.approx(
        {
            **{"exact": 50, "f1": 100 * (1 + 1 + 0 + 2 / 3) / 4, "total": 4},
            **{"HasAns_exact": 50, "HasAns_f1": 100 * (1 + 2 / 3) / 2, "HasAns_total": 2},
            **{"NoAns_exact": 50, "NoAns_f1": 50, "NoAns_total": 2},
        }
    )
    assert per_question(given, questions) == {"exact": [1, 1, 0, 0], "f1": [1, 1, 0, pytest.approx(2 / 3)]}
    assert set(evaluate(given, questions[:1])) == {"exact", "f1", "total", "HasAns_exact", "HasAns_f1", "HasAns_total"}
    assert set(evaluate(given, questions[1:2])) == {"exact", "f1", "total", "NoAns_exact", "NoAns_f1", "NoAns_total"}


@pytest.mark.parametrize(
    ("golds", "prediction", "v11", "v20"),
    [
        (["the"], "a", (1, 0), (1, 1)),
        (["the"], "", (1, 0), (1, 1)),
        (["the"], "cat", (0, 0), (0, 0)),
        (["?", "cat"], "!", (1, 0), (0, 0)),
        (["?", "cat"], "cat", (1, 1), (1, 1)),
    ],
)
def test_where_the_versions_differ(golds, prediction, v11, v20):
    asked = [question("a", *golds)]
    for version, (exact, f1) in (("v1.1", v11), ("v2.0", v20)):
        assert per_question({"a": prediction}, asked, version) == {"exact": [exact], "f1": [f1]}


PARTS = [
    *["the", "The", "a", "An", "an", "cat", "Cat", "dog", "Über", "naïve", "東京", "U.S.", "don't", "2,000", "–"],
    *["?", "...", "İstanbul", "ǅ", "théâtre", "a-b", "the.", "«x»", "\u00a0", "  ", "\t", "$5", "co-op", "_", "ß"],
]


def some_text(draw, least, most):
    return " ".join(draw.choice(PARTS) for _ in range(draw.randint(least, most)))


def random_case(seed, count, answerable):
    """(questions, predictions, margins): near misses, several golds, golds that normalise to nothing, no golds."""
    draw = random.Random(seed)
    questions, texts, margins = [], {}, {}
    for number in range(count):
        given = [some_text(draw, 1, 4) for _ in range(draw.randint(0 if not answerable else 1, 4))]
        given = [gold for gold in given if gold.strip()] or ([] if not answerable else ["cat"])
        kind = draw.random()
        if given and kind < 0.4:
            words = draw.choice(given).split(" ")
            if draw.random() < 0.5:
                words.insert(draw.randint(0, len(words)), draw.choice(PARTS))
            if draw.random() < 0.3:
                words.pop(draw.randrange(len(words)))
            text = " ".join(words)
        else:
            text = "" if kind > 0.85 else some_text(draw, 0, 4)
        questions.append(question(f"q{number}", *given))
        texts[f"q{number}"] = text
        margins[f"q{number}"] = round(draw.gauss(-1.0 if given else 1.0, 2.0), 1)
    return questions, texts, margins


def test_the_numbers_of_the_official_script_for_v20():
    questions, texts, margins = random_case(7, 300, answerable=False)
    assert evaluate(texts, questions) == pytest.approx(
        {
            **{"exact": 25.333333333333332, "f1": 37.544708994709, "total": 300},
            **{"HasAns_exact": 23.10924369747899, "HasAns_f1": 38.501734026944106, "HasAns_total": 238},
            **{"NoAns_exact": 33.87096774193548, "NoAns_f1": 33.87096774193548, "NoAns_total": 62},
        },
        abs=1e-9,
    )
    answers = [Answer(asked.id, texts[asked.id], 0.0, margins[asked.id], []) for asked in questions]
    best = best_threshold(answers, questions)
    assert (best.best_exact, best.best_exact_threshold) == (pytest.approx(30.0, abs=1e-9), 0.8)
    assert (best.best_f1, best.threshold) == (pytest.approx(41.03730158730162, abs=1e-9), 0.8)
    reached = evaluate(predictions(answers, best.threshold), questions)
    assert (best.exact, best.f1) == (reached["exact"], reached["f1"])


def test_the_numbers_of_the_official_script_for_v11():
    questions, texts, _ = random_case(8, 300, answerable=True)
    figures = evaluate(texts, questions, "v1.1")
    assert figures["exact"] == pytest.approx(33.333333333333336, abs=1e-9)
    assert figures["f1"] == pytest.approx(33.01058201058202, abs=1e-9)
    assert evaluate(texts, questions)["f1"] == pytest.approx(35.34391534391536, abs=1e-9)


def test_a_threshold_by_hand():
    questions = [question("a", "cat"), question("b"), question("c", "dog"), question("d")]
    # Margins -3, -2, -1 and 2: answering a and c is right, b and d wrong.
    answers = [
        Answer(asked.id, text, 0.0, margin, [])
        for asked, text, margin in zip(questions, ["cat", "x", "black dog", "y"], [-3, -2, -1, 2], strict=True)
    ]
    best = best_threshold(answers, questions)
    # F1 after each answer: 2 -> 3 -> 2 -> 2.67 -> 1.67 of 4
    assert (best.threshold, best.exact, best.f1) == (-3, 75, 75)
    assert (best.best_f1, best.best_exact, best.best_exact_threshold) == (75, 75, -3)
    assert predictions(answers, -3) == {"a": "cat", "b": "", "c": "", "d": ""}
    assert predictions(answers, None) == {"a": "cat", "b": "x", "c": "black dog", "d": "y"}
    # Where no threshold helps, the official one is 0.
    assert best_threshold([Answer("b", "x", 0.0, -5.0, [])], questions[1:2]).threshold == 0.0


def test_mistakes_name_the_question(tmp_path):
    with pytest.raises(TriuneError, match="no prediction for question 'b'"):
        evaluate({"a": "x"}, [question("a"), question("b")])
    with pytest.raises(TriuneError, match="question 'a' has no answer"):
        evaluate({"a": "x"}, [question("a")], "v1.1")
    with pytest.raises(TriuneError, match="no questions"):
        evaluate({}, [])
    with pytest.raises(TriuneError, match="no questions"):
        best_threshold([], [])
    with pytest.raises(TriuneError, match="no prediction for question 'a'"):
        best_threshold([], [question("a")])


# --- answers from logits


def flat(made, value=0.0):
    return [np.full(len(ids), value) for ids in made.input_ids]


def test_the_best_span_by_hand(tokenizer):
    asked = [Question("a", "dog", "the cat sat on a mat", ()), Question("b", "dog", "one small dog", ())]
    made = windows(asked, tokenizer, max_length=8, stride=2)  # room for 4: two windows for a, one for b
    assert made.question_index.tolist() == [0, 0, 1]
    start, end = flat(made), flat(made)
    start[0][0], end[0][0] = 1.0, 2.0
    start[1][0], end[1][0] = 0.5, 1.0
    start[1][3], end[1][5] = 4.0, 3.0  # "sat on a" in the second window
    end[1][2] = end[1][6 + 1] = 50.0  # [SEP] is no answer
    start[0][1] = 50.0  # nor is the question
    start[2][5], end[2][3] = 9.0, 9.0  # an end before its start is no answer
    first, second = best_answers(start, end, made, asked)
    assert (first.id, first.text, first.score, first.null_score) == ("a", "sat on a", 7.0, 1.5)
    assert first.n_best[0]["text"] == "sat on a"
    assert first.n_best[1]["score"] == 4.0
    assert len({row["text"] for row in first.n_best}) == len(first.n_best) <= 20
    assert sum(row["probability"] for row in first.n_best) == pytest.approx(1)
    assert first.n_best[0]["probability"] / first.n_best[1]["probability"] == pytest.approx(np.exp(3))
    assert (second.text, second.score) == ("one", 9.0)  # of equal scores the earlier one
    json.dumps(first.n_best)
    (shorter, _) = best_answers(start, end, made, asked, n_best=3, max_answer_tokens=2)
    assert (shorter.text, shorter.score) == ("sat", 4.0)
    assert len(shorter.n_best) == 3
    assert predictions([first], -5.5) == {"a": "sat on a"}  # equal to the threshold is not above it
    assert predictions([first], -5.6) == {"a": ""}


@quiet
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 9), st.integers(1, 60))
def test_the_best_spans_are_those_of_all_pairs(pieces, seed, longest, n_best, tokens):
    draw = np.random.default_rng(seed)
    asked = [Question("a", "?", " ".join(TEXT.split()[:tokens]), ())]
    made = windows(asked, pieces, max_length=40, stride=7)
    start, end = ([draw.normal(size=len(ids)) for ids in made.input_ids] for _ in range(2))
    (answer,) = best_answers(start, end, made, asked, n_best, longest)
    best = {}
    for number, ids in enumerate(made.input_ids):
        for i in range(made.first_length[number], len(ids) - 1):
            for j in range(i, min(i + longest, len(ids) - 1)):
                text = asked[0].context[made.offsets[number][i, 0] : made.offsets[number][j, 1]]
                best[text] = max(best.get(text, -np.inf), start[number][i] + end[number][j])
    ranked = sorted(best.items(), key=lambda item: -item[1])
    assert (answer.text, answer.score) == ranked[0]
    listed = [(row["text"], row["score"]) for row in answer.n_best]
    assert listed == ranked[: len(listed)]
    assert answer.null_score == min(s[0] + e[0] for s, e in zip(start, end, strict=True))


@quiet
@given(st.data(), st.integers(20, 60), st.integers(1, 50))
def test_peaks_at_the_gold_tokens_give_the_answer(pieces, data, max_length, stride):
    context = " ".join(data.draw(st.lists(st.sampled_from(TEXT.split()), min_size=1, max_size=40)))
    begins = [0, *(place + 1 for place, c in enumerate(context) if c == " ")]
    first = data.draw(st.sampled_from(begins))
    answer = " ".join(context[first:].split()[: data.draw(st.integers(1, 3))])
    asked = [Question("a", "why?", context, ((answer, first),))]
    made = windows(asked, pieces, max_length, stride)
    start, end = flat(made), flat(made)
    for number in range(len(made)):
        start[number][made.start[number]] += 10
        end[number][made.end[number]] += 10
    (found,) = best_answers(start, end, made, asked)
    if made.start.any() and (made.end - made.start).max() < 30:
        assert found.text == answer
        assert predictions([found], 0.0) == {"a": answer}
        assert evaluate(predictions([found], None), asked)["exact"] == 100


def test_a_context_without_tokens(tokenizer):
    asked = [Question("a", "dog", "\u200b", ())]
    made = windows(asked, tokenizer)
    (answer,) = best_answers(flat(made, 2.0), flat(made, 1.0), made, asked)
    assert answer == Answer("a", "", 3.0, 3.0, [])


def test_logits_that_do_not_fit(tokenizer):
    asked = [Question("a", "dog", "the cat", ())]
    made = windows(asked, tokenizer)
    with pytest.raises(TriuneError, match="1 and 0 logits for 1 windows"):
        best_answers(flat(made), [], made, asked)
    with pytest.raises(TriuneError, match="window 0 has 6 tokens"):
        best_answers(flat(made), [np.zeros(7)], made, asked)
    with pytest.raises(TriuneError, match="question 'a' are not finite"):
        best_answers(flat(made, np.nan), flat(made), made, asked)
    with pytest.raises(TriuneError, match="question 'b' has no window"):
        best_answers(flat(made), flat(made), made, [*asked, question("b")])
    with pytest.raises(TriuneError, match="n_best=0"):
        best_answers(flat(made), flat(made), made, asked, n_best=0)


@pytest.mark.skipif("TRIUNE_DATA_DIR" not in os.environ, reason="TRIUNE_DATA_DIR is not set")
def test_the_real_files():
    folder = Path(os.environ["TRIUNE_DATA_DIR"])
    tokenizer = load_tokenizer(folder / "bert-base-uncased-vocab")
    questions = read_squad(folder / "squad" / "v2.0" / "dev.json.zst")[::20]
    made = windows(questions, tokenizer)
    start, end = flat(made), flat(made)
    for number in range(len(made)):
        start[number][made.start[number]] += 10
        end[number][made.end[number]] += 10
    answers = best_answers(start, end, made, questions)
    figures = evaluate(predictions(answers, 0.0), questions)
    assert figures["HasAns_exact"] > 99  # a few answers are shorter than their tokens
    assert figures["NoAns_exact"] == 100
