"""`triune predict`: rows in, answers out, in their order; from files, from a stream, to a file that is whole or not."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import pipeline

from tests.samples import glue_arguments, own_arguments
from triune.data.encoded import encode_pairs, from_lists
from triune.data.tokenizer import load_tokenizer
from triune.errors import TriuneError
from triune.evaluation import predicting
from triune.evaluation.predict import Predictor, input_rows
from triune.evaluation.predicting import predict_logits
from triune.files import text_in_place


@pytest.fixture(scope="module")
def model(samples, command, tmp_path_factory):
    """Fine-tuned on reviews well enough to tell bad from good."""
    out = tmp_path_factory.mktemp("reviews") / "out"
    result = command(*own_arguments(samples, out, "training.epochs=16", "model.classifier_pooling=mean"))
    assert result.returncode == 0, result.stderr
    return out / "own/shared/seed-1/model"


@pytest.fixture(scope="module")
def others(samples, command, tmp_path_factory):
    out = tmp_path_factory.mktemp("others") / "out"
    arguments = glue_arguments(samples, out, task="stsb,rte,squad-v1.1,squad-v2.0")
    assert command(*arguments, "--workers", "1").returncode == 0
    return out


def answers(result):
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def one_line(result, *words):
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("triune: error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert str(word) in result.stderr


def texts_of(path):
    with path.open(newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


def test_a_table_is_answered_row_by_row(model, samples, command):
    found = answers(command("predict", model, samples.dev))
    assert [answer["row"] for answer in found] == list(range(2, 18))  # lines of the file; the first is the header
    labels = [answer["label"] for answer in found]
    dev = json.loads((model.parent / "dev.json").read_text())
    assert [["bad", "good"].index(label) for label in labels] == dev["predictions"]
    assert len(set(labels)) == 2
    assert all(0.5 <= answer["score"] <= 1 for answer in found)


def test_answers_are_those_of_transformers_pipeline(model, samples, command):
    found = answers(command("predict", model, samples.dev))
    theirs = pipeline("text-classification", model=str(model), device="cpu")(texts_of(samples.dev))
    assert [answer["label"] for answer in found] == [answer["label"] for answer in theirs]
    assert [answer["score"] for answer in found] == pytest.approx([answer["score"] for answer in theirs], abs=1e-4)


def test_lines_and_tables_and_streams_are_answered_alike(model, samples, command, tmp_path):
    texts = texts_of(samples.dev)
    expected = [(one["label"], one["score"]) for one in answers(command("predict", model, samples.dev))]
    lines = "".join(f"{text}\n" for text in texts)
    objects = "".join(json.dumps({"text": text, "other": None}) + "\n" for text in texts)
    (tmp_path / "texts.txt").write_text(lines)
    (tmp_path / "texts.jsonl").write_text(objects)
    for result in (
        command("predict", model, tmp_path / "texts.txt"),
        command("predict", model, tmp_path / "texts.jsonl"),
        command("predict", model, stdin=lines),
        command("predict", model, "-", stdin=lines.replace("\n", "\r\n")),
        command("predict", model, "-", "--kind", "jsonl", stdin=objects),
        command("predict", model, "-", "--kind", "csv", stdin=samples.dev.read_text()),
    ):
        found = answers(result)
        assert [one["label"] for one in found] == [label for label, _ in expected]
        assert [one["score"] for one in found] == pytest.approx([score for _, score in expected], abs=1e-5)


@pytest.mark.parametrize("batch", [1, 3, 5, 100])
def test_the_order_stays_for_any_batch(batch, model, samples, command):
    expected = answers(command("predict", model, samples.dev))
    found = answers(command("predict", model, samples.dev, "--batch", batch))
    assert [(one["row"], one["label"]) for one in found] == [(one["row"], one["label"]) for one in expected]
    assert [one["score"] for one in found] == pytest.approx([one["score"] for one in expected], abs=1e-5)


def test_answers_come_as_rows_come(model):
    """A batch is answered before the next one is read."""
    read = []

    def rows():
        for number in range(6):
            read.append(number)
            yield number, {"text": "the cat was good"}

    found = Predictor(str(model)).answers(rows(), ["text"], batch=2)
    next(found)
    assert read == [0, 1]


def test_another_column_can_be_named(model, command):
    found = answers(command("predict", model, "-", "--kind", "csv", "--text", "said", stdin="said,text\nbad,good\n"))
    assert found == [one | {"row": 2} for one in answers(command("predict", model, "-", stdin="bad\n"))]


def test_an_empty_stream_has_no_answers(model, command):
    assert answers(command("predict", model, stdin="")) == []


def test_a_file_appears_whole(model, samples, command, tmp_path):
    result = command("predict", model, samples.dev, "--out", tmp_path / "new" / "answers.jsonl")
    assert result.returncode == 0
    assert result.stdout == ""
    assert (tmp_path / "new" / "answers.jsonl").read_text() == command("predict", model, samples.dev).stdout


@pytest.mark.parametrize("there", [None, "former answers"])
def test_a_mistake_in_the_middle_leaves_no_half_a_file(there, model, command, tmp_path):
    rows = [json.dumps({"text": "good"})] * 5 + ['{"text": '] + [json.dumps({"text": "bad"})] * 5
    (tmp_path / "in.jsonl").write_text("\n".join(rows))
    out = tmp_path / "answers.jsonl"
    if there:
        out.write_text(there)
    result = command("predict", model, tmp_path / "in.jsonl", "--out", out, "--batch", "2")
    one_line(result, "in.jsonl", "line 6")
    assert sorted(path.name for path in tmp_path.iterdir()) == [*(["answers.jsonl"] if there else []), "in.jsonl"]
    assert not there or out.read_text() == there


@pytest.mark.parametrize("cell", ["null", "3", "[]"])
def test_a_cell_that_is_no_text_is_not_answered(cell, model, command):
    """None is not the text "None"."""
    result = command("predict", model, "-", "--kind", "jsonl", stdin=f'{{"text": {cell}}}\n')
    one_line(result, "line 1", "text")


def test_text_that_is_not_utf8_is_one_line(model, command, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"good\nb\xe4d\n")
    one_line(command("predict", model, tmp_path / "in.txt"), "in.txt", "line 2", "UTF-8")


def test_a_missing_column_is_one_line(model, command):
    one_line(command("predict", model, "-", "--kind", "csv", stdin="txt\ngood\n"), "no column 'text'")


@pytest.mark.parametrize("source", ["nowhere.txt", "nowhere.csv", "texts.doc", "."])
def test_a_source_that_cannot_be_read_is_one_line(source, model, command):
    one_line(command("predict", model, source), source)


def test_a_source_that_fails_while_it_is_read_is_not_what_cannot_be_written(model, command, tmp_path):
    """/proc/self/mem can be opened, and gives no byte."""
    given = [model, "/proc/self/mem", "--kind", "lines"]
    one_line(command("predict", *given, "--out", tmp_path / "answers"), "cannot read '/proc/self/mem'")
    one_line(command("predict", *given), "cannot read '/proc/self/mem'")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("verb", "unbuffered"), [("predict", ""), ("predict", "1"), ("tasks", "")])
def test_a_full_standard_output_is_one_line(verb, unbuffered, model, samples):
    given = [verb, model, samples.dev] if verb == "predict" else [verb]
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "triune.cli", *given],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    one_line(result, "cannot write to standard output: No space left on device")


def test_a_column_of_lines_is_one_line(model, command, tmp_path):
    """A table on standard input that is not called one would be read as lines, its header too."""
    (tmp_path / "in.txt").write_text("good\n")
    for source, kind in (("-", ()), (tmp_path / "in.txt", ()), ("-", ("--kind", "lines"))):
        result = command("predict", model, source, *kind, "--text", "review", stdin="review,stars\ngood,5\n")
        one_line(result, "lines of text have none", "--kind csv")


def test_lines_of_json_in_a_file_that_says_it_is_a_table_are_refused(model, command, tmp_path):
    (tmp_path / "mine.csv").write_text("precious")
    one_line(command("predict", model, "--out", tmp_path / "mine.csv", stdin="good\n"), "ends in .jsonl")
    assert (tmp_path / "mine.csv").read_text() == "precious"


def test_an_unknown_kind_is_one_line(model, command):
    one_line(command("predict", model, "-", "--kind", "xml", stdin="x"), "unknown kind 'xml'")
    one_line(command("predict", model, "-", "--kind", "line", stdin="x"), "did you mean 'lines'?")


def test_a_model_that_was_not_fine_tuned_is_one_line(samples, command):
    one_line(command("predict", samples.shared, "-", stdin="good\n"), "TriuneForMaskedLM", "fine-tuned")


def test_a_folder_without_a_model_is_one_line(command, tmp_path):
    one_line(command("predict", tmp_path, "-", stdin="good\n"), "holds no model")


def test_models_far_below_a_folder_are_not_looked_for(model, command, tmp_path):
    """Nobody waits while a whole disk is searched."""
    shutil.copytree(model, tmp_path / "a/b/c/d/model")
    result = command("predict", tmp_path, "-", stdin="good\n")
    one_line(result, "holds no model")
    assert "below it does" not in result.stderr
    one_line(command("predict", tmp_path / "a", "-", stdin="good\n"), f"'{tmp_path / 'a/b/c/d'}' below it does")


def test_models_below_a_folder_are_named(model, command):
    seed = model.parent
    for folder in (seed.parent, seed.parent.parent):
        one_line(command("predict", folder, "-", stdin="good\n"), "holds no model", f"'{seed}' below it does")


@pytest.mark.parametrize("about", ["{", "[]"])
def test_a_damaged_task_file_is_one_line(about, model, command, tmp_path):
    folder = shutil.copytree(model, tmp_path / "model")
    (folder / "task.json").write_text(about)
    one_line(command("predict", folder, "-", stdin="good\n"), folder / "task.json")


def test_a_model_from_elsewhere_reads_the_column_text(model, command, tmp_path):
    folder = shutil.copytree(model, tmp_path / "model")
    (folder / "task.json").unlink()
    given = 'text\n"the cat, was good"\n'
    found = answers(command("predict", folder, "-", "--kind", "csv", stdin=given))
    assert found == answers(command("predict", model, "-", "--kind", "csv", stdin=given))


def test_a_folded_model_answers_as_before(model, samples, command, tmp_path):
    """Longer texts than it was fine-tuned on are cut at the same place, and columns have the names they had."""
    assert command("fold", model, tmp_path / "folded").returncode == 0
    longer = "said,other\n" + "".join(f"the cat was good{' indeed bad' * times},x\n" for times in (0, 12, 20, 40))
    (tmp_path / "longer.csv").write_text(longer)
    for more in ([samples.dev], [tmp_path / "longer.csv", "--text", "said"]):
        _same_answers(command("predict", tmp_path / "folded", *more), command("predict", model, *more))


@pytest.mark.parametrize("task", ["rte", "squad-v2.0"])
def test_a_folded_model_keeps_its_columns_and_its_threshold(task, others, samples, command, tmp_path):
    model = others / task / "shared/seed-1/model"
    assert command("fold", model, tmp_path / "folded").returncode == 0
    if task == "rte":
        given = [samples.data / "glue/rte/dev.parquet"]
    else:
        given = [tmp_path / "questions.csv"]
        given[0].write_text("question,context\nhow was the cat?,the cat was good\nhow was it?,so it goes\n")
    _same_answers(command("predict", tmp_path / "folded", *given), command("predict", model, *given))


def _same_answers(result, expected):
    """Folding rounds otherwise, so that numbers agree to some digits only."""
    found, before = answers(result), answers(expected)
    assert before
    for one, other in zip(found, before, strict=True):
        assert one == {
            key: pytest.approx(value, abs=1e-4) if isinstance(value, float) else value for key, value in other.items()
        }


def test_regression_gives_a_number(others, command, samples):
    folder = others / "stsb/shared/seed-1"
    found = answers(command("predict", folder / "model", samples.data / "glue/stsb/dev.parquet"))
    expected = json.loads((folder / "dev.json").read_text())["predictions"]
    assert [one["value"] for one in found] == pytest.approx(expected, abs=1e-4)


def test_two_texts_are_read_as_a_pair(others, command, samples):
    folder = others / "rte/standard/seed-1"
    found = answers(command("predict", folder / "model", samples.data / "glue/rte/dev.parquet"))
    dev = json.loads((folder / "dev.json").read_text())
    assert [["entailment", "not_entailment"].index(one["label"]) for one in found] == dev["predictions"]


def test_lines_are_too_little_for_a_pair(others, command):
    one_line(
        command("predict", others / "rte/shared/seed-1/model", stdin="one\n"), "sentence1 and sentence2", "give a table"
    )


@pytest.mark.parametrize("version", ["v1.1", "v2.0"])
def test_questions_are_answered_from_their_context(version, others, samples, command):
    """The same answers as in fine-tuning, empty where the threshold says so."""
    folder = others / f"squad-{version}/shared/seed-1"
    data = json.loads((samples.data / "squad" / version / "dev.json").read_text())["data"][0]["paragraphs"]
    rows = [{"question": one["qas"][0]["question"], "context": one["context"]} for one in data]
    given = "".join(json.dumps(row) + "\n" for row in rows)
    found = answers(command("predict", folder / "model", "-", "--kind", "jsonl", "--batch", "5", stdin=given))
    assert all(one["answer"] in row["context"] for one, row in zip(found, rows, strict=True))
    expected = json.loads((folder / "dev-predictions.json").read_text())
    assert [one["answer"] for one in found] == list(expected.values())
    assert version == "v2.0" or all(one["answer"] for one in found)


def test_what_is_read_is_not_written_over(model, samples, command, tmp_path):
    given = tmp_path / "dev.csv"
    before = samples.dev.read_text()
    given.write_text(before)
    one_line(command("predict", model, given, "--out", given), "is the file that is read")
    assert given.read_text() == before


def test_the_model_is_not_written_over(model, samples, command):
    before = (model / "config.json").read_bytes()
    one_line(command("predict", model, samples.dev, "--out", model / "config.json"), "is a file of the model")
    assert (model / "config.json").read_bytes() == before


def test_empty_texts_are_named(model, command):
    """They are answered, so that lines stay lines; whoever reads the answers alone sees nothing of it."""
    result = command("predict", model, stdin="good\n\n  \nbad\n")
    assert [answer["row"] for answer in answers(result)] == [1, 2, 3, 4]
    said = "warning: a text is empty in 2 of the rows (2, 3), whose predictions say nothing"
    assert said in result.stderr.splitlines()
    many = command("predict", model, stdin="\n" * 9)
    assert "in 9 of the rows (1, 2, 3, 4, 5, …)" in many.stderr
    assert "warning" not in command("predict", model, stdin="good\n").stderr


def test_weights_that_may_not_be_read_are_not_said_to_be_missing(model, command, monkeypatch):
    may = Path.open

    def may_not(self, *rest, **more):
        if self.suffix == ".safetensors":
            raise PermissionError(13, "Permission denied")
        return may(self, *rest, **more)

    monkeypatch.setattr(Path, "open", may_not)
    one_line(command("predict", model, stdin="good\n"), "cannot read the weights of", "Permission denied")


def test_a_second_text_for_a_model_of_one_is_one_line(model, samples, command):
    one_line(command("predict", model, samples.dev, "--text2", "label"), "one text a row", "--text2")


def test_answers_are_chosen_as_they_were_scored(samples, command, tmp_path):
    short = ["answers.max_answer_tokens=1", "answers.n_best=2", "data.stride=5"]
    result = command(*glue_arguments(samples, tmp_path / "out", *short, task="squad-v1.1"), "--workers", "1")
    assert result.returncode == 0, result.stderr
    folder = tmp_path / "out/squad-v1.1/shared/seed-1"
    about = json.loads((folder / "model/task.json").read_text())
    assert (about["max_answer_tokens"], about["n_best"], about["stride"]) == (1, 2, 5)
    data = json.loads((samples.data / "squad/v1.1/dev.json").read_text())["data"][0]["paragraphs"]
    rows = [{"question": one["qas"][0]["question"], "context": one["context"]} for one in data]
    given = "".join(json.dumps(row) + "\n" for row in rows)
    found = answers(command("predict", folder / "model", "-", "--kind", "jsonl", stdin=given))
    expected = json.loads((folder / "dev-predictions.json").read_text())
    assert [one["answer"] for one in found] == list(expected.values())
    (folder / "model/task.json").write_text(json.dumps({**about, "stride": "far"}))
    one_line(command("predict", folder / "model", "-", "--kind", "jsonl", stdin=given), "stride", '"far"')


def test_a_question_that_leaves_no_room_is_named_by_its_row(others, command):
    rows = [{"question": "how?", "context": "good"}, {"question": "how " * 64, "context": "good"}]
    given = "".join(json.dumps(row) + "\n" for row in rows)
    model = others / "squad-v1.1/shared/seed-1/model"
    one_line(command("predict", model, "-", "--kind", "jsonl", stdin=given), "question '2'", "no room")


# The pieces


@settings(max_examples=25, deadline=None)
@given(lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1), max_size=6))
def test_every_line_is_a_row(lines):
    stream = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    found = list(input_rows("-", stream, None, ["text"]))
    # A mark at the very beginning says how the file is written, and is no text.
    expected = [line.removeprefix("\ufeff") if not i else line for i, line in enumerate(lines)]
    assert found == [(number, {"text": line}) for number, line in enumerate(expected, start=1)]


def test_logits_come_in_the_order_of_the_examples(model, samples, monkeypatch):
    """Batches are made by length; what comes out is not."""
    predictor, texts = Predictor(str(model)), texts_of(samples.dev)
    encoded = encode_pairs(load_tokenizer(model), texts, None, None, 32)
    device = torch.device("cpu")
    found = []
    for tokens in (8, 100, 2048):
        monkeypatch.setitem(predicting.TOKENS_A_BATCH, "cpu", tokens)
        found.append(predict_logits(predictor.model, encoded, "classification", 0, 32, device))
    with torch.no_grad():
        alone = [predictor.model(**predictor.tokenizer(text, return_tensors="pt")).logits[0].numpy() for text in texts]
    for logits in found:
        np.testing.assert_allclose(logits, np.stack(alone), atol=1e-5)


def test_logits_of_spans_are_as_long_as_their_windows(others):
    predictor = Predictor(str(others / "squad-v1.1/shared/seed-1/model"))
    rows = [[2, 7, 3, 8, 3], [2, 7, 3, 8, 9, 10, 11, 3], [2, 3, 3]]
    encoded = from_lists(rows, [3, 3, 2], np.zeros((3, 2), dtype=np.int64))
    starts, ends = predict_logits(predictor.model, encoded, "span", 0, 32, torch.device("cpu"))
    assert [len(one) for one in starts] == [len(one) for one in ends] == [5, 8, 3]


def test_no_examples_have_no_logits(model):
    encoded = from_lists([], [], None)
    assert len(predict_logits(Predictor(str(model)).model, encoded, "classification", 0, 32, torch.device("cpu"))) == 0


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(TriuneError, match="cannot write"), text_in_place(tmp_path / "file" / "inside") as write:
        write("x")
    assert (tmp_path / "file").read_text() == "precious"


def write_and_stop(path, error):
    with text_in_place(path) as write:
        write("half")
        raise error


def write_lines(path, count):
    with text_in_place(path) as write:
        for _ in range(count):
            write("new\n")


@pytest.mark.parametrize("lines", [1, 100_000])  # found at the end, and while there is more to write
def test_a_full_disk_leaves_what_was_there(lines, tmp_path, monkeypatch):
    path = tmp_path / "answers"
    path.write_text("before")
    mkstemp = tempfile.mkstemp

    def on_a_full_disk(**where):
        handle, beside = mkstemp(**where)
        os.dup2(os.open("/dev/full", os.O_WRONLY), handle)
        return handle, beside

    monkeypatch.setattr(tempfile, "mkstemp", on_a_full_disk)
    with pytest.raises(TriuneError, match="No space left on device; nothing was changed"):
        write_lines(path, lines)
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["answers"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError, PermissionError])
def test_an_interruption_leaves_nothing(stop, tmp_path):
    with pytest.raises(stop):
        write_and_stop(tmp_path / "answers", stop())
    assert not list(tmp_path.iterdir())
