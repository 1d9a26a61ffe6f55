"""SQuAD and TriviaQA: every layout and compression gives the same questions; a mistake is one line with its place."""

import copy
import gzip
import json
import lzma
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from triune.data.squad import Question, read_squad, read_squad_files, rows_to_questions, trivia_questions
from triune.errors import TriuneError

CONTEXT = "Zoë lives in Köln.\r\nHer café — 東京 — opened in 1998."
QUESTIONS = [
    Question("a", "Where does she live?", CONTEXT, (("Köln", 13), ("in Köln", 10))),
    Question("b", "Who closed it?", CONTEXT, ()),
    Question("c", "When?", "Opened 1998.", (("1998", 7),)),
]


def rows():
    return [
        {
            "id": question.id,
            "title": "t",
            "context": question.context,
            "question": question.question,
            "answers": {
                "text": [text for text, _ in question.answers],
                "answer_start": [start for _, start in question.answers],
            },
        }
        for question in QUESTIONS
    ]


def nested():
    def asked(question):
        answers = [{"text": text, "answer_start": start} for text, start in question.answers]
        return {"id": question.id, "question": question.question, "answers": answers, "is_impossible": not answers}

    first, second, third = map(asked, QUESTIONS)
    second["plausible_answers"] = [{"text": "Zoë", "answer_start": 0}]
    paragraphs = [{"context": CONTEXT, "qas": [first, second]}, {"context": "Opened 1998.", "qas": [third]}]
    return {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}


def compress(data, suffix):
    if suffix == ".zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()
    return {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix](data)


def content(kind):
    if kind == ".json":
        return json.dumps(nested(), ensure_ascii=False).encode()
    if kind == ".jsonl":
        return "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows()).encode() + b"\r\n\r\n"
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows()), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", [".json", ".jsonl", ".parquet"])
def test_every_layout_gives_the_same_questions(tmp_path, kind, compression):
    path = tmp_path / f"squad{kind}{compression}"
    path.write_bytes(compress(content(kind), compression))
    assert read_squad(path) == QUESTIONS


@pytest.mark.parametrize("kind", [".json", ".jsonl", ".parquet"])
@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
def test_a_truncated_file_is_one_line(tmp_path, kind, compression):
    path = tmp_path / f"squad{kind}{compression}"
    data = compress(content(kind), compression)
    path.write_bytes(data[: len(data) * 2 // 3])
    said(path, "squad")


def said(path, *parts):
    with pytest.raises(TriuneError) as error:
        read_squad(path)
    message = str(error.value)
    assert "\n" not in message
    assert str(path) in message
    for part in parts:
        assert part in message


def test_a_byte_order_mark_and_crlf_are_fine(tmp_path):
    path = tmp_path / "squad.json"
    text = json.dumps(nested(), indent=1).replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_squad(path) == QUESTIONS
    (tmp_path / "squad.jsonl").write_bytes(b"\xef\xbb\xbf" + content(".jsonl"))
    assert read_squad(tmp_path / "squad.jsonl") == QUESTIONS


def test_rows_of_the_hub_and_a_plain_string_as_path(tmp_path):
    assert rows_to_questions(rows(), "hub:squad") == QUESTIONS
    (tmp_path / "a.json").write_bytes(content(".json"))
    assert read_squad(str(tmp_path / "a.json")) == QUESTIONS


def test_impossible_wins_over_answers(tmp_path):
    changed = nested()
    changed["data"][0]["paragraphs"][0]["qas"][0]["is_impossible"] = True
    (tmp_path / "a.json").write_text(json.dumps(changed))
    assert read_squad(tmp_path / "a.json")[0].answers == ()
    flat = [{**rows()[0], "is_impossible": True}]
    assert flat[0]["answers"]["text"]
    pq.write_table(pa.Table.from_pylist(flat), tmp_path / "a.parquet")
    assert read_squad(tmp_path / "a.parquet")[0].answers == ()


def test_an_id_in_two_files_of_a_split_is_an_error(tmp_path):
    """Answers go by id: one question would be scored with the answer to the other."""
    for name in ("dev_a.json", "dev_b.json"):
        (tmp_path / name).write_bytes(content(".json"))
    assert read_squad_files([tmp_path / "dev_a.json"]) == QUESTIONS
    with pytest.raises(TriuneError, match=r"dev_b\.json': id 'a' is in '.*dev_a\.json' too"):
        read_squad_files([tmp_path / "dev_a.json", tmp_path / "dev_b.json"])


def question_of(content):
    return content["data"][0]["paragraphs"][0]["qas"][0]


MISTAKES = {
    "no data": (lambda c: c.pop("data"), "no 'data'", "version"),
    "data is text": (lambda c: c.update(data="x"), "'data' is str; it must be a list"),
    "an article is a list": (lambda c: c["data"].append([]), "article 2", "found list"),
    "no paragraphs": (lambda c: c["data"][0].pop("paragraphs"), "article 1", "no 'paragraphs'"),
    "no context": (lambda c: c["data"][0]["paragraphs"][1].pop("context"), "paragraph 2", "no 'context'"),
    "empty context": (lambda c: c["data"][0]["paragraphs"][1].update(context=" \n"), "paragraph 2", "empty"),
    "empty question": (lambda c: question_of(c).update(question=""), "question 1 (id 'a')", "'question' is empty"),
    "no id": (lambda c: question_of(c).pop("id"), "paragraph 1, question 1: no 'id'"),
    "id is a number": (lambda c: question_of(c).update(id=7), "'id' is int; it must be text"),
    "same ids": (
        lambda c: question_of(c).update(id="c"),
        "paragraph 2",
        "id 'c'",
        "article 1, paragraph 1, question 1",
    ),
    "a question is text": (lambda c: c["data"][0]["paragraphs"][0]["qas"].append("q"), "question 3", "found str"),
    "no answers": (lambda c: question_of(c).pop("answers"), "id 'a'", "no 'answers'"),
    "answers is None": (lambda c: question_of(c).update(answers=None), "'answers' is NoneType"),
    "wrong start": (lambda c: question_of(c)["answers"][1].update(answer_start=11), "answer 2", "it is at 10"),
    "negative start": (lambda c: question_of(c)["answers"][0].update(answer_start=-4), "answer_start=-4"),
    "start far out": (lambda c: question_of(c)["answers"][0].update(answer_start=10**9), "id 'a'"),
    "start is text": (lambda c: question_of(c)["answers"][0].update(answer_start="13"), "must be a whole number"),
    "start is true": (lambda c: question_of(c)["answers"][0].update(answer_start=True), "must be a whole number"),
    "text is elsewhere": (lambda c: question_of(c)["answers"][0].update(text="Bonn"), "the context does not hold it"),
    "empty answer": (lambda c: question_of(c)["answers"][0].update(text=""), "answer 1", "empty"),
    "impossible is text": (lambda c: question_of(c).update(is_impossible="no"), "must be true or false"),
    "half a pair": (lambda c: question_of(c).update(question="x\ud800"), "id 'a'", "surrogate"),
    "no questions": (lambda c: c.update(data=[]), "holds no questions"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_name_the_file_and_the_place(tmp_path, name):
    change, *parts = MISTAKES[name]
    changed = copy.deepcopy(nested())
    change(changed)
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(changed))
    said(path, *parts)


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        ("a.json", b"", ["not JSON"]),
        ("a.json", b"[" * 100_000, ["not JSON"]),
        ("a.json", b"[1]", ["found list"]),
        ("a.json", "{}".encode("utf-16"), ["UTF-16"]),
        ("a.json", b'{"data": "\xff"}', ["cannot read"]),
        ("a.jsonl", b'\n{"id": "a"}\n', ["line 2", "no 'context'"]),
        ("a.jsonl", b'{"id"\n', ["line 1", "not JSON"]),
        ("a.jsonl", b"\n\n", ["holds no questions"]),
        ("a.parquet", b"PAR1", ["cannot read"]),
        ("a.csv", b"", ["suffix"]),
        ("a.json.gz", b"not gzip", ["cannot read"]),
    ],
)
def test_what_is_no_such_file(tmp_path, name, data, parts):
    (tmp_path / name).write_bytes(data)
    said(tmp_path / name, *parts)


def test_missing_files_and_folders(tmp_path):
    said(tmp_path / "none.json", "No such file")
    (tmp_path / "folder.json").mkdir()
    said(tmp_path / "folder.json", "directory")


def test_columns_and_lengths_of_flat_rows(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": ["a"], "context": ["c"]}), path)
    said(path, "no column 'question'", "id, context")
    uneven = rows()
    uneven[2]["answers"]["answer_start"] = []
    with pytest.raises(TriuneError, match=r"hub:x, row 3 \(id 'c'\): 1 answer texts but 0"):
        rows_to_questions(uneven, "hub:x")
    with pytest.raises(TriuneError, match="hub:x holds no questions"):
        rows_to_questions([], "hub:x")


def trivia(page, value="Paris", aliases=("The", "paname"), id="t1"):
    return {
        "question": "Which city?",
        "question_id": id,
        "entity_pages": {"title": ["A", "B"], "wiki_context": ["Nothing here.", page]},
        "answer": {"value": value, "aliases": list(aliases), "normalized_aliases": []},
    }


def test_trivia_takes_the_first_occurrence_as_whole_words():
    made, left_out = trivia_questions([trivia("İ The Parisians call PARIS home; Paname or Paris.")])
    assert left_out == 0
    assert made[0].context == "İ The Parisians call PARIS home; Paname or Paris."
    assert made[0].answers == (("PARIS", 21), ("Paname", 33))
    assert made[0].id == "t1"


def test_trivia_counts_what_it_leaves_out():
    made = trivia_questions([trivia("Only Parisians."), trivia("In Paris.", id="t2")])
    assert (len(made.questions), made.left_out) == (1, 1)
    with pytest.raises(TriuneError, match="none of 1 questions"):
        trivia_questions([trivia("Lyon")])
    with pytest.raises(TriuneError, match=r"TriviaQA, row 1 \(id 't1'\): no 'value'"):
        trivia_questions([trivia("Lyon") | {"answer": {}}])
    with pytest.raises(TriuneError, match="a page in 'wiki_context' is int"):
        trivia_questions([trivia(3)])


def test_trivia_passages_are_short_hold_the_answer_and_differ_in_its_place():
    page = "word " * 5000 + "In Paris. " + "more " * 5000
    places = []
    for number in range(50):
        ((made,), _) = trivia_questions([trivia(page, id=f"t{number}")], longest_context_chars=500)
        ((text, start),) = made.answers
        assert len(made.context) <= 500
        assert made.context[start : start + len(text)] == text == "Paris"
        assert set(made.context.split()) <= {"word", "In", "Paris.", "Paris", "more"}  # whole words
        places.append(start)
    assert min(places) < 100
    assert max(places) > 380


@pytest.mark.skipif("TRIUNE_DATA_DIR" not in os.environ, reason="TRIUNE_DATA_DIR is not set")
@pytest.mark.parametrize(
    ("name", "total", "unanswerable"),
    [("v1.1/dev", 10_570, 0), ("v1.1/train_subset", 18_174, 0), ("v2.0/dev", 11_873, 5_945)],
)
def test_the_real_files(name, total, unanswerable):
    questions = read_squad(Path(os.environ["TRIUNE_DATA_DIR"]) / "squad" / f"{name}.json.zst")
    assert len(questions) == total
    assert sum(not question.answers for question in questions) == unanswerable
