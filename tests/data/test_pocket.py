"""The pocket benchmark: the same bytes for the same seed, the real data's shapes, labels that follow from the world."""

import errno
import hashlib
import json
import random
import re
import subprocess
import sys
from collections import Counter

import pytest

from triune.data.pocket import facts, phrases, sentences, stories, words, write, write_pocket
from triune.data.pocket.facts import Fact, verdict
from triune.errors import TriuneError

pq = pytest.importorskip("pyarrow.parquet")

GLUE_TEXTS = {
    "cola": ["sentence"],
    "sst2": ["sentence"],
    "mrpc": ["sentence1", "sentence2"],
    "stsb": ["sentence1", "sentence2"],
    "qqp": ["question1", "question2"],
    "mnli": ["premise", "hypothesis"],
    "qnli": ["question", "sentence"],
    "rte": ["sentence1", "sentence2"],
}
GLUE_FILES = [(task, split) for task in GLUE_TEXTS for split in ("train", "dev")] + [("mnli", "dev_mismatched")]
SQUAD_FILES = [(version, split) for version in ("v1.1", "v2.0") for split in ("train", "dev")]


@pytest.fixture(scope="module")
def pocket(tmp_path_factory):
    out = tmp_path_factory.mktemp("pocket")
    write_pocket(out, seed=3, corpus_documents=400)
    return out


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(write, "ROWS", {"train": 40, "dev": 20})


def table(pocket, task, split):
    return pq.read_table(pocket / "glue" / task / f"{split}.parquet")


def questions(pocket, version, split):
    content = json.loads((pocket / "squad" / version / f"{split}.json").read_text())
    for article in content["data"]:
        assert set(article) == {"title", "paragraphs"}
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                yield paragraph["context"], asked


def bytes_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_same_seed_same_bytes_in_any_process(tmp_path, few_rows):
    write_pocket(tmp_path / "here", seed=5, corpus_documents=30)
    code = (
        "import pathlib, sys; from triune.data.pocket import write, write_pocket; "
        "write.ROWS = {'train': 40, 'dev': 20}; write_pocket(pathlib.Path(sys.argv[1]), seed=5, corpus_documents=30)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "there")], check=True, env={"PYTHONHASHSEED": "77"})
    assert bytes_of(tmp_path / "here") == bytes_of(tmp_path / "there")


def test_another_seed_gives_other_files(tmp_path, few_rows):
    write_pocket(tmp_path / "one", seed=1, corpus_documents=30)
    write_pocket(tmp_path / "two", seed=2, corpus_documents=30)
    one, two = bytes_of(tmp_path / "one"), bytes_of(tmp_path / "two")
    assert one.keys() == two.keys()
    assert all(one[name] != two[name] for name in one)


@pytest.mark.parametrize(("task", "split"), GLUE_FILES)
def test_columns_and_types_are_those_of_glue(pocket, task, split):
    got = table(pocket, task, split)
    label = "float" if task == "stsb" else "int64"
    expected = dict.fromkeys(GLUE_TEXTS[task], "large_string") | {"label": label, "idx": "int32"}
    assert {field.name: str(field.type) for field in got.schema} == expected
    assert list(expected) == got.schema.names
    assert got["idx"].to_pylist() == list(range(len(got)))
    assert 1000 <= len(got) <= 4000 if split == "train" else 400 <= len(got) <= 1000
    assert all(text and text == text.lower() for name in GLUE_TEXTS[task] for text in got[name].to_pylist())


@pytest.mark.parametrize("task", GLUE_TEXTS)
def test_no_development_row_is_a_training_row(pocket, task):
    def rows(split):
        got = table(pocket, task, split)
        return list(zip(*(got[name].to_pylist() for name in GLUE_TEXTS[task]), strict=True))

    train, dev = rows("train"), rows("dev")
    assert not set(train) & set(dev)
    assert len(set(train)) == len(train)
    assert len(set(dev)) == len(dev)


@pytest.mark.parametrize(("task", "split"), GLUE_FILES)
def test_classes_are_balanced_sensibly(pocket, task, split):
    labels = table(pocket, task, split)["label"].to_pylist()
    if task == "stsb":
        assert min(labels) == 0
        assert max(labels) == 5
        assert 1.5 < sum(labels) / len(labels) < 3.8
        assert len(set(labels)) >= 5  # graded, not two classes
        return
    counts = Counter(labels)
    assert sorted(counts) == ([0, 1, 2] if task == "mnli" else [0, 1])
    smallest = {"mnli": 0.27, "cola": 0.25}.get(task, 0.35)
    assert min(counts.values()) / len(labels) > smallest


def test_facts_of_training_and_development_are_apart():
    train, dev = facts.Part("train", 1).allows, facts.Part("dev", 1).allows
    rng = random.Random("apart")
    scenes = [facts.several(rng, facts.VILLAGE, train, 2) for _ in range(50)]
    assert not any(dev(fact) for scene in scenes for fact in scene.facts)


ROWS_OF_WORDS = [
    *words.SAME.values(),
    *words.KINDS.values(),
    words.COLOURS,
    words.PRAISE,
    words.BLAME,
    words.GOOD_REACTIONS,
    words.BAD_REACTIONS,
    *([verb[form] for verb in action.words] for action in words.ACTIONS.values() for form in (0, 1)),
]
NEVER_IN_TRAINING = {word for row in ROWS_OF_WORDS for word in words.held_out(row)} - {"loved", "hated"}
QUALITY_WORDS = {word for table in (words.QUALITIES, words.MOODS) for ends in table for row in ends for word in row}
# What decides the rows of a task. Only there are words held out: the frame around may have any.
DECIDED_BY = {
    "sst2": {*words.PRAISE, *words.BLAME, *words.GOOD_REACTIONS, *words.BAD_REACTIONS},
    "mrpc": {*words.PRAISE, *words.BLAME, *words.GOOD_REACTIONS},
    "stsb": QUALITY_WORDS | {*words.PRAISE, *words.BLAME},
    "qqp": QUALITY_WORDS | set(words.COLOURS),
    "mnli": QUALITY_WORDS | {*words.PRAISE, *words.BLAME},
    "rte": {*words.PRAISE, *words.BLAME, *words.GOOD_REACTIONS, *words.BAD_REACTIONS},
}


@pytest.mark.parametrize("task", DECIDED_BY)
def test_deciding_words_of_development_rows_are_not_in_training_rows(pocket, task):
    def deciding(row):
        said = {word for name in GLUE_TEXTS[task] for word in re.findall(r"\w+", row[name])}
        return said & DECIDED_BY[task]

    held_out = NEVER_IN_TRAINING & DECIDED_BY[task]
    assert held_out
    assert not any(deciding(row) & held_out for row in table(pocket, task, "train").to_pylist())
    for split in ("dev", "dev_mismatched") if task == "mnli" else ("dev",):
        rows = table(pocket, task, split).to_pylist()
        assert all(deciding(row) & held_out for row in rows)


def test_what_decides_qnli_is_held_out(pocket):
    seen = {}
    for split in ("train", "dev"):
        rows = table(pocket, "qnli", split).to_pylist()
        seen[split] = {row["sentence"].removesuffix(".").split()[-1] for row in rows}
    assert not seen["train"] & seen["dev"]


def test_qnli_labels_follow_from_the_kind(pocket):
    for split in ("train", "dev"):
        for row in table(pocket, "qnli", split).to_pylist():
            asked, told = row["question"].split()[1], row["sentence"].removesuffix(".").split()[-1]
            answers = told in words.COLOURS if asked == "colour" else words.kind_of(told) == asked
            assert row["label"] == int(not answers), row


@pytest.mark.parametrize(
    ("claim", "negated", "expected"),
    [
        (Fact("quality", "dog", "big"), False, "entailment"),
        (Fact("quality", "dog", "small"), False, "contradiction"),
        (Fact("quality", "dog", "small"), True, "entailment"),
        (Fact("quality", "cat", "big"), False, "neutral"),
        (Fact("quality", "dog", "old"), True, "neutral"),
        (Fact("action", "amy", "found", "dog"), False, "entailment"),
        (Fact("action", "amy", "found", "animal"), False, "entailment"),
        (Fact("action", "amy", "found", "tool"), False, "neutral"),
        (Fact("action", "dog", "found", "amy"), False, "neutral"),
        (Fact("action", "amy", "found", "dog"), True, "contradiction"),
        (Fact("place", "dog", "barn"), False, "entailment"),
        (Fact("place", "dog", "mill"), False, "contradiction"),
        (Fact("place", "dog", "mill"), True, "entailment"),
        (Fact("owner", "tom", "", "dog"), False, "contradiction"),
    ],
)
def test_what_follows(claim, negated, expected):
    known = [
        Fact("quality", "dog", "big"),
        Fact("action", "amy", "found", "dog"),
        Fact("place", "dog", "barn"),
        Fact("owner", "amy", "", "dog"),
    ]
    assert verdict(known, claim, negated) == expected


def test_mnli_and_rte_labels_follow_when_read_back(pocket):
    """Read praise and blame with a reader that shares no code with the writer."""
    splits = ("train", "dev", "dev_mismatched")
    rows = [("mnli", row) for split in splits for row in table(pocket, "mnli", split).to_pylist()]
    rows += [("rte", row) for split in ("train", "dev") for row in table(pocket, "rte", split).to_pylist()]
    for task, row in rows:
        told, claim = (row[name] for name in GLUE_TEXTS[task])
        # Where two disagree, the clause of the one whom the claim is about.
        clause = next(clause for clause in told.split(", but ") if clause.startswith(claim.split()[0]))
        said = set(re.findall(r"\w+", clause))
        good, bad = bool(said & set(words.PRAISE)), bool(said & set(words.BLAME))
        liked = None if good == bad else good != ("not" in said)
        if liked is not None and " disliked " in claim:
            liked = not liked
        expected = 1 if liked is None else 0 if liked else 2
        assert row["label"] == (expected if task == "mnli" else int(not liked)), row


def judged(text):
    """Praise, blame or neither, by rules of our own; 'not' turns it round."""
    said = set(re.findall(r"\w+", text))
    good, bad = bool(said & set(words.PRAISE)), bool(said & set(words.BLAME))
    return None if good == bad else good != ("not" in said)


@pytest.mark.parametrize("split", ["train", "dev"])
def test_paraphrases_are_those_of_praise(pocket, split):
    for row in table(pocket, "mrpc", split).to_pylist():
        name = row["sentence1"].split()[0]  # where two disagree, it is about this one
        clause = next(clause for clause in row["sentence2"].split(", but ") if clause.startswith(name))
        assert row["label"] == int(judged(clause)), row


@pytest.mark.parametrize("split", ["train", "dev"])
def test_duplicates_are_about_the_colour_of_the_same_thing(pocket, split):
    for row in table(pocket, "qqp", split).to_pylist():
        asked = set(re.findall(r"\w+", row["question1"])) & set(words.NOUNS)
        *_, word, thing = re.findall(r"\w+", row["question2"])
        assert row["label"] == int(word in words.COLOURS and {thing} == asked), row


@pytest.mark.parametrize("split", ["train", "dev"])
def test_similarity_is_graded_by_judgement_and_event(pocket, split):
    for row in table(pocket, "stsb", split).to_pylist():
        events = [set(re.findall(r"\w+", row[name])) & set(words.EVENTS) for name in ("sentence1", "sentence2")]
        points = {True: 4, None: 2, False: 0}[judged(row["sentence2"])]
        assert row["label"] == points + (events[0] == events[1]), row


def test_faults_change_the_sentence():
    rng = random.Random("faults")
    for fault in sentences.FAULTS:
        for _ in range(50):
            scene = facts.several(rng, facts.VILLAGE, facts.anything, 1)
            said = phrases.statement(rng, scene.facts[0]).split()
            assert fault(rng, scene, said) != said


def test_the_world_never_contradicts_itself():
    rng = random.Random("consistent")
    for _ in range(200):
        scene = facts.several(rng, facts.VILLAGE, facts.anything, 4)
        for fact in scene.facts:
            assert verdict(scene.facts, fact) == "entailment"
            other = facts.opposite(fact)
            assert other is None or verdict(scene.facts, other) == "contradiction"


def test_corpus_has_every_word_of_the_tasks_and_is_small(pocket, tmp_path):
    corpus = " ".join(" ".join(stories.documents(3, "pocket-00", 4000)).split())
    known = set(re.findall(r"\w+", corpus))
    assert 200 <= len(known) <= 400
    asked = {
        word
        for task, split in GLUE_FILES
        for name in GLUE_TEXTS[task]
        for text in table(pocket, task, split)[name].to_pylist()
        for word in re.findall(r"\w+", text)
    }
    assert asked <= known, asked - known


def test_corpus_format(pocket):
    text = (pocket / "corpus" / "pocket-00.txt").read_text(encoding="utf-8")
    documents = text.strip("\n").split("\n\n")
    assert len(documents) == 400
    assert all(line and line == line.strip() for document in documents for line in document.split("\n"))
    assert (pocket / "corpus" / "valid-pocket.txt").stat().st_size > 0


@pytest.mark.parametrize(("version", "split"), SQUAD_FILES)
def test_every_answer_stands_where_it_says(pocket, version, split):
    ids = []
    impossible = 0
    for context, asked in questions(pocket, version, split):
        ids.append(asked["id"])
        assert asked["question"].endswith("?")
        assert ("is_impossible" in asked) == (version == "v2.0")
        for answer in asked["answers"]:
            assert context[answer["answer_start"] :].startswith(answer["text"])
        if asked.get("is_impossible"):
            impossible += 1
            assert asked["answers"] == []
        else:
            assert len(asked["answers"]) == (1 if split == "train" else 3)
    assert len(set(ids)) == len(ids)
    assert (0.25 < impossible / len(ids) < 0.5) if version == "v2.0" else impossible == 0


@pytest.mark.parametrize("version", ["v1.1", "v2.0"])
def test_squad_contexts_are_apart(pocket, version):
    contexts = [{context for context, _ in questions(pocket, version, split)} for split in ("train", "dev")]
    assert not contexts[0] & contexts[1]


@pytest.mark.parametrize("split", ["train", "dev"])
def test_questions_are_answered_by_what_the_story_tells(pocket, split):
    """Read the stories with a reader of our own: one answer, or none where there is none."""
    checked = Counter()
    for context, asked in questions(pocket, "v2.0", split):
        thing = (set(re.findall(r"\w+", asked["question"])) & set(words.NOUNS)).pop()
        if "place" in asked["question"] or "where" in asked["question"]:
            told, row = re.findall(rf"the {thing} was in the (\w+)\.", context), words.PLACES
        elif "colour" in asked["question"]:
            told, row = re.findall(rf"the {thing} was (?!in )(\w+)\.", context), words.COLOURS
        else:
            told, row = re.findall(rf"(\w+) found the {thing}\.", context), ()
        assert told == [answer["text"].removeprefix("the ") for answer in asked["answers"][:1]], (context, asked)
        assert all((word in words.held_out(row)) == (split == "dev") for word in told if row)
        checked[len(told)] += 1
    assert checked[0] > 20
    assert checked[1] > 20


def test_a_second_call_reuses_and_a_damaged_file_is_written_again(tmp_path, few_rows):
    first = write_pocket(tmp_path, corpus_documents=30)
    assert first["reused"] is False
    for name, entry in first["files"].items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == entry["sha256"]
    before = bytes_of(tmp_path)
    again = write_pocket(tmp_path, corpus_documents=30)
    assert again == first | {"reused": True}
    (tmp_path / "glue" / "rte" / "dev.parquet").write_bytes(b"damaged")
    assert write_pocket(tmp_path, corpus_documents=30)["reused"] is False
    assert bytes_of(tmp_path) == before
    (tmp_path / "corpus" / "valid-pocket.txt").unlink()
    (tmp_path / "pocket.json").write_text("[")
    assert write_pocket(tmp_path, corpus_documents=30)["reused"] is False
    assert bytes_of(tmp_path) == before
    assert write_pocket(tmp_path, seed=2, corpus_documents=30)["reused"] is False


def test_a_smaller_corpus_leaves_nothing_of_a_larger_one(tmp_path, few_rows, monkeypatch):
    monkeypatch.setattr(write, "DOCUMENTS_A_FILE", 20)
    write_pocket(tmp_path / "out", corpus_documents=30)
    write_pocket(tmp_path / "out", corpus_documents=20)
    assert [path.name for path in sorted((tmp_path / "out/corpus").iterdir())] == ["pocket-00.txt", "valid-pocket.txt"]


@pytest.mark.parametrize("other", ["glue/rte/dev.parquet", "mine.txt", "corpus/pocket-00.txt"])
def test_a_folder_with_something_else_is_refused(tmp_path, few_rows, other):
    (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / other).write_bytes(b"precious")
    with pytest.raises(TriuneError, match="holds something else; give an empty or new folder"):
        write_pocket(tmp_path, corpus_documents=30)
    assert bytes_of(tmp_path) == {other: b"precious"}


@pytest.mark.parametrize("other", ["corpus/mine.txt", "mine.txt"])
def test_a_file_beside_the_pocket_data_is_kept(tmp_path, few_rows, other):
    write_pocket(tmp_path, corpus_documents=30)
    (tmp_path / other).write_bytes(b"precious")
    assert write_pocket(tmp_path, corpus_documents=30)["reused"] is True
    before = bytes_of(tmp_path)
    with pytest.raises(TriuneError, match="holds something else"):
        write_pocket(tmp_path, seed=2, corpus_documents=30)
    assert bytes_of(tmp_path) == before


@pytest.mark.parametrize("stage", ["write", "rename"])
def test_a_full_disk_leaves_nothing_half_written(tmp_path, few_rows, monkeypatch, stage):
    def full(*arguments, **settings):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr({"write": "os.fsync", "rename": "os.replace"}[stage], full)
    with pytest.raises(TriuneError, match="No space left on device") as caught:
        write_pocket(tmp_path, corpus_documents=30)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "pocket.json").exists()
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]
    monkeypatch.undo()
    monkeypatch.setattr(write, "ROWS", {"train": 40, "dev": 20})
    assert write_pocket(tmp_path, corpus_documents=30)["reused"] is False


def test_a_file_in_the_way_is_one_line(tmp_path):
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(TriuneError) as caught:
        write_pocket(tmp_path / "taken", corpus_documents=30)
    assert "\n" not in str(caught.value)
    with pytest.raises(TriuneError, match="at least one document"):
        write_pocket(tmp_path / "none", corpus_documents=0)
