"""Mistakes of users of `triune finetune`: one line, exit status 2, and nothing left behind."""

import json
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.samples import glue_arguments, own_arguments, sets, write_csv
from triune.commands import finetuning
from triune.errors import TriuneError
from triune.training import matrix as under_test
from triune.training.finetune_recipe import load_finetune_recipe
from triune.training.task_data import TaskData, load


def one_line(result, *words):
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    said = [line for line in result.stderr.splitlines() if line.startswith("triune: error: ")]
    assert len(said) == 1
    assert result.stderr.endswith(f"{said[0]}\n")
    for word in words:
        assert str(word) in said[0], said[0]


def replaced(arguments, **changes):
    """The arguments with other values for some options."""
    arguments = list(map(str, arguments))
    for option, value in changes.items():
        arguments[arguments.index(f"--{option}") + 1] = str(value)
    return arguments


TASK_MISTAKES = {
    "unknown task": (["--task", "rt"], "unknown task 'rt' (did you mean 'rte'?)"),
    "unknown task among others": (["--task", "rte,mnlii"], "unknown task 'mnlii'"),
    "keep": (["--keep", "some"], "--keep is all, first or none, not 'some'"),
    "recipe": (["--recipe", "weak"], "unknown recipe 'weak'"),
    "recipe key": (["--set", "training.epoch=1"], "unknown key 'training.epoch' (did you mean 'epochs'?)"),
    "recipe misspelt": (["--recipe", "quik"], "unknown recipe 'quik' (did you mean 'quick'?): there are"),
    "no part": (["--set", "nonsense"], "'nonsense' is not PART.KEY=VALUE: parts are model, data"),
    "choice": (
        ["--set", "model.classifier_pooling=max"],
        "model: classifier_pooling must be one of cls, mean or nothing (null), not 'max'",
    ),
    "recipe part": (["--set", "trainer.epochs=1"], "unknown part 'trainer'"),
    "no seeds": (["--seeds", "0"], "--seeds"),
    "no workers": (["--workers", "0"], "--workers"),
    "split missing": (["--task", "cola"], "no split 'train' of CoLA"),
    "data folder": (["--data-dir", "/nowhere"], "--data-dir '/nowhere' is not a folder"),
    "task and train": (["--train", "x.csv"], "not both"),
    "task and columns": (["--text", "a", "--label", "b"], "--text and --label describe your own data: give it as"),
    "task and kind": (["--kind", "regression"], "--kind describes your own data: give it as --train and --dev"),
    "reference": (["--reference", "standrad"], "there is no model 'standrad' to compare with"),
    "server files": (["--test-files", "--task", "squad-v1.1"], "no test-server file for SQuAD v1.1"),
    "attention": (["--set", "training.attention=fast"], "fast"),
}


@pytest.mark.parametrize("mistake", TASK_MISTAKES)
def test_a_mistake_with_a_task_is_one_line(mistake, samples, command, tmp_path):
    more, word = TASK_MISTAKES[mistake]
    result = command(*glue_arguments(samples, tmp_path / "out", task="rte")[:3], *_rest(samples, tmp_path, more))
    one_line(result, word)
    assert not (tmp_path / "out").exists()


def _rest(samples, tmp_path, more):
    given = {"--task": "rte", "--data-dir": samples.data, "--out": tmp_path / "out", "--workers": "1"}
    rest = [part for option, value in given.items() if option not in more for part in (option, value)]
    return [*rest, *sets(), *more]


def test_scores_of_somebody_else_are_not_replaced(samples, command, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "scores.json").write_text("mine")
    result = command(*glue_arguments(samples, tmp_path / "out", task="rte"))
    one_line(result, tmp_path / "out", "holds a 'scores.json' that is not ours")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["scores.json"]


def test_a_folder_of_somebody_else_is_not_replaced_by_a_model(samples, command, tmp_path):
    mine = tmp_path / "out/rte/shared/seed-1/model/mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("precious")
    one_line(command(*glue_arguments(samples, tmp_path / "out", task="rte")), "holds something else")
    assert mine.read_text() == "precious"
    assert not list((tmp_path / "out").rglob("record.json"))  # said before the training, not after it


def test_a_folder_without_a_model_is_one_line(samples, command, tmp_path):
    (tmp_path / "empty").mkdir()
    arguments = glue_arguments(samples, tmp_path / "out")
    arguments[1] = str(tmp_path / "empty")
    one_line(command(*arguments), "holds no model", tmp_path / "empty")
    assert not (tmp_path / "out").exists()


def test_two_models_of_one_label_are_one_line(samples, command, tmp_path):
    arguments = glue_arguments(samples, tmp_path / "out")
    arguments[1:3] = [f"a={samples.shared}", f"a={samples.standard}"]
    one_line(command(*arguments), "two models would be called 'a'")
    assert not (tmp_path / "out").exists()


def test_no_data_at_all_is_one_line(samples, command, tmp_path):
    one_line(command("finetune", samples.shared, "--out", tmp_path / "out"), "say what to train on")


def test_a_tokenizer_that_is_missing_is_one_line(samples, command, tmp_path):
    model = shutil.copytree(samples.shared, tmp_path / "model")
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (model / file).unlink(missing_ok=True)
    arguments = own_arguments(samples, tmp_path / "out")
    arguments[1] = str(model)
    one_line(command(*arguments), model)
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_of_another_model_is_one_line(samples, command, tmp_path):
    """More tokens than the model has embeddings: without a check, an index error deep inside, or worse on a GPU."""
    model = shutil.copytree(samples.shared, tmp_path / "model")
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["vocab"] |= {f"more{i}": len(tokenizer["model"]["vocab"]) + i for i in range(3)}
    path.write_text(json.dumps(tokenizer))
    arguments = own_arguments(samples, tmp_path / "out")
    arguments[1] = str(model)
    one_line(command(*arguments), model, "tokens")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damage", ["cut", "other"])
def test_damaged_weights_are_one_line(damage, samples, command, tmp_path):
    model = shutil.copytree(samples.shared, tmp_path / "model")
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-7] if damage == "cut" else b"not weights at all")
    arguments = own_arguments(samples, tmp_path / "out")
    arguments[1] = str(model)
    one_line(command(*arguments), model, "damaged or incomplete")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="it can run here")
@pytest.mark.parametrize(
    ("attention", "said"),
    [
        ("flash_attention_2", "attention 'flash_attention_2' cannot run here"),
        ("flex_attention", "attention 'flex_attention' cannot run here"),
        ("one_tensor", "'one_tensor' cannot run: no CUDA device"),
    ],
)
def test_an_attention_that_cannot_run_here_is_one_line(attention, said, samples, command, tmp_path):
    result = command(*own_arguments(samples, tmp_path / "out", f"training.attention={attention}"))
    one_line(result, said)
    assert not (tmp_path / "out").exists()


OWN_MISTAKES = {
    "text column": ({"text": "txt"}, ["no column 'txt'", "did you mean 'text'", "train.csv"]),
    "label column": ({"label": "class"}, ["no column 'class'", "train.csv"]),
    "no such file": ({"train": "nowhere.csv"}, ["'nowhere.csv' does not exist"]),
    "suffix": ({"dev": "dev.xls"}, ["dev.xls"]),
}


@pytest.mark.parametrize("mistake", OWN_MISTAKES)
def test_a_mistake_with_ones_own_data_is_one_line(mistake, samples, command, tmp_path):
    changes, words = OWN_MISTAKES[mistake]
    one_line(command(*replaced(own_arguments(samples, tmp_path / "out"), **changes)), *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("missing", ["--dev", "--text", "--label"])
def test_ones_own_data_needs_all_options(missing, samples, command, tmp_path):
    arguments = own_arguments(samples, tmp_path / "out")
    at = arguments.index(missing)
    one_line(command(*arguments[:at], *arguments[at + 2 :]), "--train, --dev, --text and --label")
    assert not (tmp_path / "out").exists()


def test_training_and_scoring_on_one_file_is_one_line(samples, command, tmp_path):
    (tmp_path / "same.csv").symlink_to(samples.train)
    arguments = replaced(own_arguments(samples, tmp_path / "out"), dev=tmp_path / "same.csv")
    one_line(command(*arguments), "same.csv' is both --train and --dev")
    assert not (tmp_path / "out").exists()


def test_rows_that_are_trained_on_and_scored_are_counted(samples, command, tmp_path):
    head, *trained = samples.train.read_text().splitlines()
    texts = {row.rsplit(",", 1)[0] for row in trained}
    unseen = [row for row in samples.dev.read_text().splitlines()[1:] if row.rsplit(",", 1)[0] not in texts]
    said = {}
    for seen in (0, 3):
        dev = tmp_path / f"dev-{seen}.csv"
        dev.write_text("\n".join([head, *unseen, *trained[:seen]]) + "\n")
        result = command(*replaced(own_arguments(samples, tmp_path / str(seen)), dev=dev))
        assert result.returncode == 0
        said[seen] = [line for line in result.stderr.splitlines() if "trained on too" in line]
    assert said[0] == []
    assert len(said[3]) == 1
    assert f"of {len(unseen) + 3} rows to score on, the texts of 3 were trained on too" in said[3][0]


def test_an_unknown_kind_is_one_line(samples, command, tmp_path):
    result = command(*own_arguments(samples, tmp_path / "out"), "--kind", "regresion")
    one_line(result, "unknown kind of task 'regresion'", "did you mean 'regression'")


def test_a_folder_of_tasks_beside_ones_own_data_is_one_line(samples, command, tmp_path):
    result = command(*own_arguments(samples, tmp_path / "out"), "--data-dir", samples.data)
    one_line(result, "--data-dir is for the tasks", "your own --train and --dev, not both")
    assert not (tmp_path / "out").exists()


def test_server_files_of_ones_own_data_are_one_line(samples, command, tmp_path):
    one_line(command(*own_arguments(samples, tmp_path / "out"), "--test-files"), "--test-files")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('"never closed,good', ["line 3", "never closed"]),
        ("one,two,good", ["line 3", "3 fields"]),
        (",good", ["line 3", "empty"]),
        ("some text,", ["line 3", "no label"]),
        ("some text,neither", ["line 3", "'neither' is not in the train file"]),
    ],
)
def test_a_malformed_row_is_named(row, words, samples, command, tmp_path):
    dev = tmp_path / "dev.csv"
    dev.write_text(f"text,label\nfine,good\n{row}\n")
    one_line(command(*replaced(own_arguments(samples, tmp_path / "out"), dev=dev)), dev, *words)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_one_line(samples, command, tmp_path):
    (tmp_path / "file").write_text("precious")
    result = command(*own_arguments(samples, tmp_path / "file"))
    one_line(result, "cannot write", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"


def test_a_second_development_set_that_is_damaged_is_not_passed_over(samples, command, tmp_path):
    data = shutil.copytree(samples.data / "glue" / "mnli", tmp_path / "data/glue/mnli").parents[1]
    arguments = [*replaced(glue_arguments(samples, tmp_path / "out", task="mnli"), **{"data-dir": data})]
    (data / "glue/mnli/dev_mismatched.parquet").write_bytes(b"damaged")
    one_line(command(*arguments), "dev_mismatched.parquet")
    (data / "glue/mnli/dev_mismatched.parquet").unlink()
    load.cache_clear()
    result = command(*arguments, "--workers", "1")
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "out/mnli/shared/seed-1/record.json").read_text())["more_scores"] == {}


@pytest.mark.parametrize("content", ["{", "[]", "null", "{}"])
def test_a_record_that_is_none_is_one_line(content, samples, command, tmp_path):
    path = tmp_path / "out/own/shared/seed-1/record.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    one_line(command(*own_arguments(samples, tmp_path / "out")), path)
    assert path.read_text() == content


def test_a_loss_that_is_no_number_is_one_line(samples, command, tmp_path):
    overrides = ["optimizer.learning_rates=[1e30]", "optimizer.clip=0"]
    result = command(*own_arguments(samples, tmp_path / "out", *overrides))
    one_line(result, "not a finite number", "lower optimizer.learning_rates")
    assert not list((tmp_path / "out").rglob("record.json"))


# Any bytes for a table


CSV = "text,label\n" + "".join(f"the {word} cat,{label}\n" for word, label in zip("abcdef", "xyxyxy", strict=True))
JSONL = "".join(json.dumps({"text": f"the {word}", "label": i % 2}) + "\n" for i, word in enumerate("abcdef"))
mutations = st.lists(
    st.tuples(
        st.integers(0, 200), st.integers(0, 4), st.binary(max_size=4) | st.sampled_from([b'"', b"\n", b",", b"{"])
    ),
    max_size=4,
)


def mutated(text, changes):
    content = text.encode()
    for at, removed, added in changes:
        content = content[:at] + added + content[at + removed :]
    return content


class TrainedError(Exception):
    """Raised in the place of the training: it got that far."""


@pytest.fixture(scope="module")
def fuzzed(samples, tmp_path_factory):
    """A call like the command's, up to the training itself."""
    folder = tmp_path_factory.mktemp("fuzz")
    models = under_test.label_models([str(samples.shared)])
    recipe = load_finetune_recipe("strong", ["search.learning_rates=[]", "training.precision=float32"])

    def training(job, problem, recipe, out, device):
        assert len(problem.train)
        assert len(problem.dev)
        assert problem.head_settings()["num_labels"] >= 1
        assert set(problem.dev.labels.tolist()) <= set(range(99)) or problem.kind == "regression"
        raise TrainedError

    def run(train, dev, suffix):
        paths = [folder / f"{name}{suffix}" for name in ("train", "dev")]
        for path, content in zip(paths, (train, dev), strict=True):
            path.write_bytes(content)
        load.cache_clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(under_test, "finetune", training)
            patch.setattr(finetuning, "_show_scores", lambda *ignored: None)
            data = TaskData("own", None, (str(paths[0]), str(paths[1]), "text", None, "label", None))
            matrix = under_test.Matrix(models, {"own": data}, recipe, [1], folder / "out")

            try:
                finetuning._say_found(matrix)
                under_test.run_matrix(matrix, lambda *ignored: None)
            except TrainedError:
                return
            except TriuneError as error:
                message = str(error)
                assert len(message.splitlines()) == 1
                assert any(str(path) in message for path in paths), message

    return run


quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(changes=mutations, other=mutations)
def test_any_csv_trains_or_is_refused_by_name(changes, other, fuzzed):
    fuzzed(mutated(CSV, changes), mutated(CSV, other), ".csv")


@quick
@given(changes=mutations, other=mutations)
def test_any_jsonl_trains_or_is_refused_by_name(changes, other, fuzzed):
    fuzzed(mutated(JSONL, changes), mutated(JSONL, other), ".jsonl")


@quick
@given(texts=st.lists(st.text(min_size=1), min_size=2, max_size=5))
def test_any_text_trains_or_is_refused_by_name(texts, fuzzed):
    rows = "".join(json.dumps({"text": text, "label": i % 2}) + "\n" for i, text in enumerate(texts)).encode()
    fuzzed(rows, rows, ".jsonl")


def test_the_fuzzed_call_does_train(fuzzed, monkeypatch):
    """Unchanged tables get as far as the training; otherwise the tests above would test nothing."""
    seen = []
    before = under_test.problem_for

    def counted(*arguments):
        seen.append(1)
        return before(*arguments)

    monkeypatch.setattr(under_test, "problem_for", counted)
    fuzzed(CSV.encode(), CSV.encode(), ".csv")
    fuzzed(JSONL.encode(), JSONL.encode(), ".jsonl")
    assert len(seen) == 2


def test_a_quoted_text_with_line_ends_is_one_row(samples, command, tmp_path):
    rows = [["text", "label"], ["the cat,\nthe dog", "x"], ['the "song"', "y"]] * 1
    train, dev = (write_csv(tmp_path / f"{name}.csv", [*rows, *rows[1:] * 3]) for name in ("train", "dev"))
    result = command(*replaced(own_arguments(samples, tmp_path / "out"), train=train, dev=dev))
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "out/own/shared/seed-1/record.json").read_text())["dev_rows"] == 8
