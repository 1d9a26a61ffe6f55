"""Tasks: the list, splits from folders and from the hub, a user's own tables, and every way in which rows are wrong."""

import csv
import gzip
import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triune.data.task_list import read_tasks
from triune.data.tasks import found, get_task, load_split, own_task, split_path, task_names
from triune.errors import TriuneError

quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
GLUE = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"]


def one_line(error, *words):
    message = str(error)
    assert len(message.splitlines()) == 1
    assert message.isprintable()
    for word in words:
        assert str(word) in message, message


def refused(call, *words):
    with pytest.raises(TriuneError) as caught:
        call()
    one_line(caught.value, *words)


def write_csv(path, columns, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    out = io.StringIO()
    csv.writer(out).writerows([columns, *rows])
    path.write_text(out.getvalue(), encoding="utf-8", newline="")
    return path


def write_jsonl(path, columns, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
    return path


def write_parquet(path, columns, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(columns)}), path)
    return path


# The list


def test_the_list_is_whole():
    assert task_names() == [*GLUE, "squad-v1.1", "squad-v2.0", "triviaqa"]
    for name in task_names():
        task = get_task(name)
        assert task.name == name
        assert set(task.dev_splits) < set(task.splits) == set(task.hub.splits)
        assert set(task.server_files) == ({one for one in task.splits if "test" in one} if name in GLUE else set())
        assert hash(task) == hash(get_task(name))
    assert get_task("mnli").dev_splits == ("dev", "dev_mismatched")
    assert [get_task(name).primary for name in GLUE] == [
        "matthews",
        *["accuracy"] * 2,
        "pearson_spearman",
        *["accuracy"] * 5,
    ]


def test_unknown_task():
    refused(lambda: get_task("sst-2"), "unknown task 'sst-2'", "did you mean 'sst2'?", "triviaqa")


GOOD = "{title: A, kind: classification, text: [a], label: b, metrics: [accuracy], primary: accuracy, classes: [x, y]}"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (("kind: classification", "kind: clasification"), "did you mean 'classification'?"),
        (("primary: accuracy", "primary: f1"), "primary metric 'f1'"),
        (("[accuracy]", "[pearson]"), "unknown metric 'pearson'"),
        (("[x, y]", "[x, x]"), "classes"),
        (("[x, y]", "[0, 1]"), "does not fit"),
        (("label: b", "label: a"), "all different"),
        (("title: A, ", ""), "the key 'title' is missing"),
        (("title", "titel"), "did you mean 'title'?"),
        ((GOOD, "[1]"), "keys and values"),
        ((GOOD, "{"), "cannot read the tasks"),
        (("label: b", "label: b, counts: {train: 1}, hub: {name: a/b, config: c, splits: {dev: dev}}"), "same splits"),
    ],
)
def test_a_list_with_faults(tmp_path, change, word):
    path = tmp_path / "tasks.yaml"
    path.write_text(f"mine: {GOOD}")
    assert read_tasks(path)["mine"].classes == ("x", "y")
    path.write_text(f"mine: {GOOD}".replace(*change))
    refused(lambda: read_tasks(path), word)


# Splits of a data folder

COLA = ["sentence", "label", "idx"]


@pytest.mark.parametrize("write", [write_csv, write_jsonl, write_parquet])
def test_ids_and_names_of_classes_are_labels(tmp_path, write):
    path = tmp_path / f"glue/cola/dev.{write.__name__.removeprefix('write_')}"
    write(path, COLA, [("a", "1", 5), ("b", "unacceptable", 7), ("c", "1.0", 9)])
    examples = load_split(get_task("cola"), "dev", tmp_path)
    assert (examples.first, examples.second, examples.labels) == (["a", "b", "c"], None, [1, 0, 1])
    assert examples.subset
    assert examples.source == f"glue/cola/{path.name}"
    assert found(get_task("cola"), examples) == "2 classes (unacceptable, acceptable), 3 rows"


def test_content_has_one_hash_whatever_the_file(tmp_path):
    rows = [("a", 1, 0), ("b", 0, 1)]
    write_csv(tmp_path / "1/glue/cola/dev.csv", COLA, rows)
    write_parquet(tmp_path / "2/glue/cola/dev.parquet", COLA, rows)
    (tmp_path / "3/glue/cola").mkdir(parents=True)
    (tmp_path / "3/glue/cola/dev.csv.gz").write_bytes(gzip.compress((tmp_path / "1/glue/cola/dev.csv").read_bytes()))
    write_csv(tmp_path / "4/glue/cola/dev.csv", COLA, [("a", 1, 0), ("b", 1, 1)])
    hashes = [load_split(get_task("cola"), "dev", tmp_path / one).sha256 for one in "1234"]
    assert hashes[0] == hashes[1] == hashes[2] != hashes[3]


def test_parts_are_joined_and_dev_is_not_dev_mismatched(tmp_path):
    columns, folder = ["premise", "hypothesis", "label", "idx"], tmp_path / "glue/mnli"
    for name in ("train_subset", "train_derived", "dev_mismatched"):
        write_parquet(folder / f"{name}.parquet", columns, [(name, "h", 2, 0), (name, "h", 0, 1)])
    task = get_task("mnli")
    train = load_split(task, "train", tmp_path)
    assert train.source == "glue/mnli/train_subset.parquet + glue/mnli/train_derived.parquet"
    assert (train.first[1:3], train.ids, train.subset) == (["train_subset", "train_derived"], [0, 1, 2, 3], True)
    refused(lambda: load_split(task, "dev", tmp_path), "no split 'dev' of MNLI", folder, "nyu-mll/glue", "--data-dir")
    assert load_split(task, "dev_mismatched", tmp_path).labels == [2, 0]
    write_parquet(folder / "dev_part.parquet", columns, [("p", "h", 1, 0)])
    assert split_path(task, "dev", tmp_path) == [folder / "dev_part.parquet"]
    write_parquet(folder / "train.parquet", columns, [("whole", "h", 1, 0)])
    assert load_split(task, "train", tmp_path).first == ["whole"]
    write_csv(folder / "train.csv", columns, [("whole", "h", 1, 0)])
    refused(lambda: split_path(task, "train", tmp_path), "train.csv and train.parquet", "keep one")


def test_what_counts_as_a_subset(tmp_path):
    task, columns = get_task("wnli"), ["sentence1", "sentence2", "label"]
    write_parquet(tmp_path / "glue/wnli/dev.parquet", columns, [("a", "b", 1)] * 71)
    examples = load_split(task, "dev", tmp_path)
    assert (len(examples), examples.subset, examples.ids[-1]) == (71, False, 70)
    assert not load_split(task, "dev", tmp_path, limit=71).subset
    few = load_split(task, "dev", tmp_path, limit=3)
    assert (len(few), few.subset, few.labels) == (3, True, [1, 1, 1])
    refused(lambda: load_split(task, "dev", tmp_path, limit=0), "limit")
    write_parquet(tmp_path / "glue/wnli/train_subset.parquet", columns, [("a", "b", 1)] * 4)
    assert load_split(task, "train", tmp_path).subset
    (tmp_path / "pocket.json").write_text("{}")
    assert not load_split(task, "train", tmp_path).subset
    assert load_split(task, "train", tmp_path, limit=1).subset


@pytest.mark.parametrize(
    ("label", "word"),
    [("", "no label"), ("NaN", "no label"), ("2", "'2' is none of"), ("-1", "'-1' is none of"), ("x", "unacceptable")],
)
def test_labels_that_are_wrong(tmp_path, label, word):
    path = write_csv(tmp_path / "glue/cola/dev.csv", COLA, [("a", 1, 0), ("b", label, 1)])
    refused(lambda: load_split(get_task("cola"), "dev", tmp_path), path, "line 3", word)
    assert load_split(get_task("cola"), "dev", tmp_path, limit=1).labels == [1]


@pytest.mark.parametrize("label", [None, float("nan"), float("inf"), True, 0.5, [1], "good", 10**400])
def test_labels_of_the_wrong_type(tmp_path, label):
    for task, columns in (("cola", COLA[:2]), ("stsb", ["sentence1", "sentence2", "label"])):
        if (task, label) == ("stsb", 0.5):
            continue
        rows = [["a"] * (len(columns) - 1) + [value] for value in (1, label)]
        path = write_jsonl(tmp_path / f"glue/{task}/dev.jsonl", columns, rows)
        refused(lambda task=task: load_split(get_task(task), "dev", tmp_path), path, "line 2", "label")


def test_hidden_and_public_test_labels(tmp_path):
    task, path = get_task("cola"), tmp_path / "glue/cola/test.csv"
    write_csv(path, COLA, [("a", -1, 0), ("b", -1, 1)])
    assert load_split(task, "test", tmp_path).labels is None
    assert found(task, load_split(task, "test", tmp_path)).endswith("2 rows without labels")
    write_csv(path, ["sentence"], [("a",)])
    assert load_split(task, "test", tmp_path).labels is None
    write_csv(path, COLA, [("a", 0, 0), ("b", 1, 1)])
    assert load_split(task, "test", tmp_path).labels == [0, 1]
    write_csv(path, COLA, [("a", 0, 0), ("b", -1, 1)])
    refused(lambda: load_split(task, "test", tmp_path), path, "line 3")


def test_empty_text(tmp_path):
    columns, rows = ["question1", "question2", "label"], [("a", "b", 0), ("c", " ", 1)]
    write_csv(tmp_path / "glue/qqp/dev.csv", columns, rows)
    assert load_split(get_task("qqp"), "dev", tmp_path).second == ["b", " "]
    path = write_csv(tmp_path / "glue/mrpc/dev.csv", ["sentence1", "sentence2", "label"], rows)
    refused(lambda: load_split(get_task("mrpc"), "dev", tmp_path), path, "line 3", "'sentence2' is empty")


def test_folders_and_splits_that_are_not_there(tmp_path):
    task = get_task("cola")
    refused(lambda: load_split(task, "dev", tmp_path / "no"), tmp_path / "no", "does not exist")
    refused(lambda: load_split(task, "test", tmp_path), "'test' of CoLA", tmp_path / "glue/cola")
    refused(lambda: load_split(task, "devel", tmp_path), "no split 'devel'", "did you mean 'dev'?")
    refused(lambda: load_split(task, "dev_mismatched", tmp_path), "no split 'dev_mismatched'")
    refused(lambda: load_split(task, "dev", Path("a\0b")), "a\\x00b")
    refused(lambda: load_split(get_task("squad-v2.0"), "dev", tmp_path), "SQuAD")


@pytest.mark.parametrize("name", ["dev.json", "dev.json.zst", "dev.json.gz", "dev_subset.json.zst", "dev.parquet"])
def test_files_of_span_tasks(tmp_path, name):
    folder = tmp_path / "squad/v1.1"
    folder.mkdir(parents=True)
    (folder / name).touch()
    (folder / "dev.txt").touch()
    assert split_path(get_task("squad-v1.1"), "dev", tmp_path) == [folder / name]
    refused(lambda: split_path(get_task("squad-v1.1"), "train", tmp_path), "train.json", "rajpurkar/squad")


# The hub


def test_the_hub(monkeypatch):
    import datasets

    asked = []

    def load(name, config, split):
        asked.append((name, config, split))
        return datasets.Dataset.from_dict(content)

    monkeypatch.setattr(datasets, "load_dataset", load)
    content = {"premise": ["a"], "hypothesis": ["b"], "label": [2], "idx": [4]}
    task = get_task("mnli")
    examples = load_split(task, "dev_mismatched", None)
    assert asked == [("nyu-mll/glue", "mnli", "validation_mismatched")]
    assert (examples.labels, examples.ids, examples.subset) == ([2], [4], True)
    assert examples.source == "hub:nyu-mll/glue:mnli:validation_mismatched"
    content = {"premise": ["a"], "hypotesis": ["b"], "label": [2]}
    refused(lambda: load_split(task, "train", None), "hub:nyu-mll/glue:mnli:train", "did you mean 'hypotesis'?")
    content = {"premise": ["a", None], "hypothesis": ["b", "b"], "label": [2, 1]}
    refused(lambda: load_split(task, "train", None), "row 2", "no text")
    content = {"premise": [], "hypothesis": [], "label": []}
    refused(lambda: load_split(task, "train", None), "no rows")


def test_no_hub(monkeypatch):
    import datasets

    def load(*_, **__):
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr(datasets, "load_dataset", load)
    refused(lambda: load_split(get_task("cola"), "dev", None), "hub:nyu-mll/glue:cola:validation", "no network")


# A user's own tables


def own(folder, train, dev=None, kind=None, write=write_jsonl):
    """A task whose labels are these; rows have texts of their own."""
    suffix = write.__name__.removeprefix("write_")
    paths = []
    for name, labels in (("reviews", train), ("check", train if dev is None else dev)):
        rows = [(f"text {index}", label) for index, label in enumerate(labels)]
        paths.append(write(folder / f"{name}.{suffix}", ["body", "stars"], rows))
    return own_task(*paths, "body", None, "stars", kind)


@pytest.mark.parametrize(
    ("labels", "classes", "ids"),
    [
        (["pos", "neg", " pos"], ("neg", "pos"), [1, 0, 1]),
        ([10, 9, 1.0, "10"], ("1", "9", "10"), [2, 1, 0, 2]),
        (["2", "-1", "2.0"], ("-1", "2"), [1, 0, 1]),
        ([True, False], ("False", "True"), [1, 0]),
        (["007", "7a"], ("007", "7a"), [0, 1]),
        ([*range(20)], tuple(map(str, range(20))), [*range(20)]),
    ],
)
def test_classes_are_found(tmp_path, labels, classes, ids):
    task, train, dev = own(tmp_path, labels)
    assert (task.kind, task.classes, train.labels, dev.labels) == ("classification", classes, ids, ids)
    assert task.metrics == ("accuracy", "macro_f1", *(["f1", "matthews"] if len(classes) == 2 else []))
    assert (task.name, task.title, task.primary, train.subset) == ("own", "reviews", "accuracy", False)
    assert train.first[0] == "text 0"


def test_numbers_are_found(tmp_path):
    for labels in ([0.5, 1], ["0.5", "-2e3"], [*range(21)]):
        task, train, _ = own(tmp_path, labels)
        assert (task.kind, train.labels, task.classes) == ("regression", [float(one) for one in labels], ())
    assert (task.primary, found(task, train)) == ("pearson_spearman", "numbers from 0 to 20, 21 rows")
    assert own(tmp_path, [1, 2], kind="regression")[1].labels == [1.0, 2.0]
    assert own(tmp_path, [0.5, 2], kind="classification")[0].classes == ("0.5", "2")
    assert own(tmp_path, ["1", "a", "1"], kind="classification")[0].classes == ("1", "a")
    assert found(*own(tmp_path, ["neg", "neu", "pos"])[:2]) == "3 classes (neg, neu, pos), 3 rows"


@pytest.mark.parametrize("write", [write_csv, write_jsonl])
@pytest.mark.parametrize(
    ("train", "dev", "kind", "words"),
    [
        (["a", "b", ""], None, None, ["reviews", "line {3}", "no label"]),
        ([1, 2, "nan"], None, None, ["reviews", "line {3}", "no label"]),
        ([1, 2, "good", 3], None, None, ["reviews", "line {3}", "'good' is a word", "numbers"]),
        (["a", 4, "b"], None, None, ["reviews", "line {2}", "'4' is a number", "words"]),
        (["a", "b"], ["a", "c"], None, ["check", "line {2}", "'c' is not in the train file", "a, b"]),
        ([1, 2], [1, 2.5], None, ["check", "line {2}", "'2.5'"]),
        ([0.5, 2], [0.5, "x"], None, ["check", "line {2}", "not a finite number"]),
        (["a", "b"], None, "regression", ["reviews", "line {1}", "not a finite number"]),
        (["1e300", "2"], None, "regression", ["reviews", "line {1}", "too large"]),
        (["1e999", "2"], None, None, ["reviews", "line {1}", "not a finite number"]),
        (["1e999", "2"], None, "classification", ["reviews", "line {1}", "not a finite number"]),
        (["a", "a "], None, None, ["reviews", "every label", "'a'"]),
        ([2, 2.0], None, "regression", ["reviews", "the same number"]),
        (["a", "b"], None, "clasification", ["did you mean 'classification'?"]),
    ],
)
def test_own_labels_that_are_wrong(tmp_path, write, train, dev, kind, words):
    header = 1 if write is write_csv else 0
    lines = [word if "{" not in word else f"line {int(word[6:-1]) + header}" for word in words]
    refused(lambda: own(tmp_path, train, dev, kind, write), *lines)


def test_own_columns_and_texts(tmp_path):
    path = write_csv(tmp_path / "a.csv", ["a", "b", "y"], [("one", "two", "p"), ("three", "four", "q")])
    task, train, _ = own_task(path, path, "a", "b", "y")
    assert (task.text, train.first, train.second) == (("a", "b"), ["one", "three"], ["two", "four"])
    assert (train.ids, train.source) == ([2, 3], str(path))
    refused(lambda: own_task(path, path, "a", "a", "y"), "'a' is asked for twice")
    refused(lambda: own_task(path, path, "a", "y", "y"), "'y' is asked for twice")
    refused(lambda: own_task(path, path, "a", None, "z"), path, "no column 'z'", "a, b, y")
    refused(lambda: own_task(path, tmp_path / "no.csv", "a", None, "y"), tmp_path / "no.csv", "does not exist")
    bad = write_csv(tmp_path / "b.csv", ["a", "b", "y"], [("one", "two", "p"), (" \t", "four", "q")])
    refused(lambda: own_task(path, bad, "a", "b", "y"), bad, "line 3", "'a' is empty")
    refused(lambda: own(tmp_path, [[1], {"a": 1}]), "line 1", "is a list")


def test_long_text_of_ones_own(tmp_path):
    long = "word " * 20_000
    for write, suffix in ((write_csv, "csv"), (write_jsonl, "jsonl"), (write_parquet, "parquet")):
        path = write(tmp_path / f"a.{suffix}", ["t", "y"], [(long, "p"), ("b", "q")])
        assert own_task(path, path, "t", None, "y")[1].first == [long, "b"]


labels = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["a", "b", "1", "2"])
)
cells = st.text(max_size=4) | st.none() | st.integers()


@quick
@given(
    st.lists(st.tuples(cells, labels), max_size=6),
    st.lists(st.tuples(cells, labels), max_size=4),
    st.sampled_from([None, "classification", "regression"]),
    st.sampled_from(["csv", "jsonl"]),
)
def test_any_rows_make_a_task_or_one_line(tmp_path, train, dev, kind, suffix):
    write = {"csv": write_csv, "jsonl": write_jsonl}[suffix]
    clean = [[(text, label) for text, label in rows if _writable(text, label)] for rows in (train, dev)]
    paths = [
        write(tmp_path / f"{n}.{suffix}", ["t", "y"], rows) for n, rows in zip(("train", "dev"), clean, strict=True)
    ]
    try:
        task, *splits = own_task(*paths, "t", None, "y", kind)
    except TriuneError as error:
        one_line(error, tmp_path)
        return
    for path, rows, examples in zip(paths, clean, splits, strict=True):
        assert len(examples) == len(rows), path
        assert all(text.strip() for text in examples.first)
        if task.kind == "classification":
            assert set(examples.labels) <= set(range(len(task.classes)))
        assert found(task, examples).isprintable()


def _writable(*values):
    return all(not isinstance(value, str) or value.isprintable() for value in values)


@quick
@given(st.binary(max_size=120), st.sampled_from(["csv", "tsv", "jsonl", "parquet"]), st.sampled_from(["cola", "stsb"]))
def test_any_bytes_make_a_split_or_one_line(tmp_path, data, suffix, name):
    task = get_task(name)
    path = tmp_path / f"glue/{name}/dev.{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in path.parent.iterdir():
        other.unlink()
    header = {"csv": ",", "tsv": "\t"}.get(suffix, "").join([*task.text, task.label]).encode() + b"\n"
    path.write_bytes(header + data if suffix in ("csv", "tsv") else data)
    try:
        load_split(task, "dev", tmp_path)
    except TriuneError as error:
        one_line(error, path)


# The real thing

DATA = os.environ.get("TRIUNE_DATA_DIR")
real = pytest.mark.skipif(not DATA, reason="TRIUNE_DATA_DIR names no folder with the tasks' data")


@real
@pytest.mark.parametrize("name", GLUE)
def test_real_data(name):
    task = get_task(name)
    for split in task.dev_splits[:1]:
        examples = load_split(task, split, Path(DATA))
        assert examples.subset == ("_subset" in examples.source)
        assert examples.subset or len(examples) == task.counts[split]
        assert len(examples.labels) == len(examples.ids) == len(examples)


@real
def test_real_parts_and_spans():
    train = load_split(get_task("qnli"), "train", Path(DATA), limit=2500)
    assert train.source == "glue/qnli/train_subset.parquet + glue/qnli/train_derived.parquet"
    assert (len(train), train.subset) == (2500, True)
    assert [path.name for path in split_path(get_task("squad-v1.1"), "train", Path(DATA))] == ["train_subset.json.zst"]
