"""Windows: every token of the context, offsets into the text, and answers that are whole or not there."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triune.data.squad import Question, read_squad
from triune.data.tokenizer import load_tokenizer, train_tokenizer
from triune.data.windows import LONGEST_QUESTION, windows
from triune.errors import TriuneError

TEXT = "The small cat sat on the mat in Köln, and Zoë's café – opened 1998 – saw 2,000 dogs. 東京 [SEP] 각 naïve."
quiet = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "text.txt").write_text("\n\n".join([TEXT] * 3), encoding="utf-8")
    return load_tokenizer(train_tokenizer(folder / "text.txt", 200, folder / "out"))


def asked(context, answer=None, question="Where is it?", id="q"):
    return Question(id, question, context, () if answer is None else ((answer, context.index(answer)),))


def cut(made, number, context, first, last):
    return context[made.offsets[number][first, 0] : made.offsets[number][last, 1]]


def check(made, questions, tokenizer, max_length):
    """What holds of all windows; whether the answer of each question is in one of them."""
    held = [False] * len(questions)
    assert len(made) == len(made.offsets) == len(made.is_context) == len(made.question_index) == len(made.start)
    for number, index in enumerate(made.question_index):
        ids, first, context = made.input_ids[number], int(made.first_length[number]), questions[index].context
        assert len(ids) <= max_length
        assert (ids[0], ids[first - 1], ids[-1]) == (tokenizer.cls_token_id, *[tokenizer.sep_token_id] * 2)
        assert tokenizer.sep_token_id not in ids[1 : first - 1] + ids[first:-1]
        assert len(made.offsets[number]) == len(made.is_context[number]) == len(ids)
        inside = made.offsets[number][first:-1]
        assert made.is_context[number].tolist() == [first <= place < len(ids) - 1 for place in range(len(ids))]
        assert (made.offsets[number][~made.is_context[number]] == -1).all()
        assert (inside[:, 0] < inside[:, 1]).all()
        assert (np.diff(inside, axis=0) >= 0).all()
        start, end = int(made.start[number]), int(made.end[number])
        assert (start == 0) == (end == 0)
        if start:
            assert first <= start <= end < len(ids) - 1
            text, at = questions[index].answers[0]
            assert made.offsets[number][start, 0] <= at
            assert made.offsets[number][end, 1] >= at + len(text)
            assert text in cut(made, number, context, start, end)
            held[index] = True
    return held


def test_one_window_by_hand(tokenizer):
    made = windows([asked("the small dog ran home", "small dog", question="a cat?")], tokenizer)
    words = ["[CLS]", "a", "cat", "[UNK]", "[SEP]", "the", "small", "dog", "ran", "home", "[SEP]"]
    assert tokenizer.convert_ids_to_tokens(made.input_ids[0]) == words
    assert made.first_length.tolist() == [5]
    assert (made.start.tolist(), made.end.tolist()) == ([6], [7])
    assert made.offsets[0].tolist() == [[-1, -1]] * 5 + [[0, 3], [4, 9], [10, 13], [14, 17], [18, 22], [-1, -1]]


def test_windows_begin_a_stride_apart_and_stop_at_the_end(tokenizer):
    context = "the cat sat on a mat and saw one small red dog"
    # 3 special tokens and 1 of the question leave room for 5.
    made = windows([asked(context, "a mat and", question="dog")], tokenizer, max_length=9, stride=3)
    assert [cut(made, n, context, 3, len(made.input_ids[n]) - 2) for n in range(len(made))] == [
        "the cat sat on a",
        "on a mat and saw",
        "and saw one small red",
        "small red dog",
    ]
    assert made.start.tolist() == [0, 4, 0, 0]  # "a" in the first and "and" in the third are parts of the answer
    assert made.end.tolist() == [0, 6, 0, 0]
    # A stride that would leave out tokens becomes the room; a window that fits exactly has no neighbour.
    assert len(windows([asked(context, question="dog")], tokenizer, max_length=9, stride=100)) == 3
    assert len(windows([asked(context, question="dog")], tokenizer, max_length=4 + 12, stride=1)) == 1
    assert len(windows([asked(context, question="dog")], tokenizer, max_length=4 + 11, stride=1)) == 2


@pytest.mark.parametrize("answer", ["on a mat", "the", "dog", "saw"])
def test_answers_at_the_edges(tokenizer, answer):
    context = "the cat sat on a mat and saw one small red dog"
    questions = [asked(context, answer, question="dog")]
    made = windows(questions, tokenizer, max_length=9, stride=3)
    assert check(made, questions, tokenizer, 9) == [True]
    spans = [cut(made, n, context, made.start[n], made.end[n]) for n in np.flatnonzero(made.start)]
    assert set(spans) == {answer}


@pytest.mark.parametrize(
    ("context", "answer", "covered"),
    [
        ("in the 1990sxyz, then", "1990s", "1990sxyz"),  # an answer inside a token, here [UNK]
        ("the cafe\u0301 is", "cafe\u0301", "cafe\u0301"),  # the accent is dropped by the tokenizer
        ("at \u200bzoo\u200b now", "\u200bzoo\u200b", "zoo"),  # an invisible character is no part of it
        ("\ufeffthe cat", "\ufeffthe", "the"),
        ("a 東京 b", "京", "京"),
        ("a 각 b", "각", "각"),
        ("a cat ran", " cat ", "cat"),
    ],
)
def test_characters_that_tokens_do_not_show(tokenizer, context, answer, covered):
    made = windows([asked(context, answer)], tokenizer)
    assert cut(made, 0, context, made.start[0], made.end[0]) == covered


def test_nothing_to_find(tokenizer):
    made = windows([asked("the cat"), asked("a \u200b cat", "\u200b"), asked("\u200b")], tokenizer)
    assert made.start.tolist() == made.end.tolist() == [0, 0, 0]
    assert made.is_context[2].sum() == 0


def test_long_questions_lose_their_end_and_special_tokens_are_text(tokenizer):
    made = windows([asked("the [SEP] cat [MASK]", "cat", question="dog [CLS] " * 100)], tokenizer, max_length=80)
    assert made.first_length.tolist() == [LONGEST_QUESTION + 2] * len(made)
    assert sum(ids.count(tokenizer.sep_token_id) for ids in made.input_ids) == 2 * len(made)
    assert sum(ids.count(tokenizer.cls_token_id) for ids in made.input_ids) == len(made)
    assert all(tokenizer.mask_token_id not in ids for ids in made.input_ids)
    assert made.start.any()


def test_no_questions_and_mistakes(tokenizer):
    assert len(windows([], tokenizer)) == 0
    with pytest.raises(TriuneError, match=r"question 'q' takes 20 tokens.*max_length=23"):
        windows([asked("the cat", question="cat " * 20)], tokenizer, max_length=23)
    with pytest.raises(TriuneError, match="stride=0"):
        windows([], tokenizer, stride=0)


alphabet = st.sampled_from(
    [*"abcdeKLÖöéñ,.–'$19 \n\t", " ", " ", "cat", "mat ", "the ", "東", "각", "e\u0301", "İ", "ß", "\u200b", "x" * 120]
)


@st.composite
def contexts_with_answers(draw):
    context = "".join(draw(st.lists(alphabet, min_size=1, max_size=60))) + "."
    visible = [place for place, c in enumerate(context) if not c.isspace() and c != "\u200b"]
    first = draw(st.sampled_from(visible))
    last = draw(st.sampled_from([place for place in visible if first <= place < first + 25]))
    return Question("q", "why?", context, ((context[first : last + 1], first),))


@quiet
@given(st.lists(contexts_with_answers(), min_size=1, max_size=3), st.integers(12, 50), st.integers(1, 60))
def test_gold_tokens_cover_the_answer(pieces, questions, max_length, stride):
    made = windows(questions, pieces, max_length, stride)
    check(made, questions, pieces, max_length)
    # A window that holds everything holds every answer, and the windows together hold every token.
    whole = windows(questions, pieces, max_length=10_000)
    assert len(whole) == len(questions)
    assert check(whole, questions, pieces, 10_000) == [True] * len(questions)
    for index in range(len(questions)):
        mine = np.flatnonzero(made.question_index == index)
        tokens = {tuple(row) for number in mine for row in made.offsets[number][made.is_context[number]].tolist()}
        assert tokens == {tuple(row) for row in whole.offsets[index][whole.is_context[index]].tolist()}


def test_a_very_long_context_is_quick(pieces):
    context = (TEXT + " ") * 1000  # over 100 kB
    questions = [Question(f"q{n}", "why?", context, ((TEXT[4:9], 4 + n * (len(TEXT) + 1)),)) for n in (0, 500, 999)]
    began = time.perf_counter()
    made = windows(questions, pieces)
    assert time.perf_counter() - began < 10
    assert check(made, questions, pieces, 384) == [True] * 3


@pytest.mark.skipif("TRIUNE_DATA_DIR" not in os.environ, reason="TRIUNE_DATA_DIR is not set")
def test_the_real_files():
    folder = Path(os.environ["TRIUNE_DATA_DIR"])
    tokenizer = load_tokenizer(folder / "bert-base-uncased-vocab")
    questions = read_squad(folder / "squad" / "v1.1" / "dev.json.zst")[::10]
    assert all(check(windows(questions, tokenizer), questions, tokenizer, 384))
