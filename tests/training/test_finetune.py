"""Fine-tuning through the command: tasks, one's own data, questions; what is kept, and what is not run again."""

import csv
import json
import shutil

import numpy as np
import pytest
from transformers import pipeline

from tests.samples import QUICK, glue_arguments, own_arguments, sets
from triune.data.squad import read_squad
from triune.data.tokenizer import load_tokenizer
from triune.data.windows import windows
from triune.evaluation import squad
from triune.evaluation.metrics import score
from triune.models.locate import locate_model
from triune.training.finetune_recipe import load_finetune_recipe
from triune.training.task_data import TaskData, load, problem_for

MORE = ["training.epochs=6", "model.classifier_pooling=mean"]
TIMES = ("train_seconds", "cell_seconds", "history")


def record_of(folder):
    return json.loads((folder / "record.json").read_text())


def without_times(record):
    kept = {key: value for key, value in record.items() if key not in TIMES}
    history = [{key: value for key, value in epoch.items() if key != "seconds"} for epoch in record["history"]]
    return {**kept, "history": history}


def all_records(out):
    return {str(path.relative_to(out)): without_times(record_of(path.parent)) for path in out.rglob("record.json")}


@pytest.fixture(scope="module")
def matrix(samples, command, tmp_path_factory):
    """Two models, two seeds, one task."""
    out = tmp_path_factory.mktemp("matrix") / "out"
    arguments = [*glue_arguments(samples, out), "--seeds", "2", "--workers", "1"]
    result = command(*arguments)
    assert result.returncode == 0, result.stderr
    return out, arguments, result


def test_a_matrix_keeps_a_record_of_every_run(matrix):
    out, _, _ = matrix
    assert sorted(all_records(out)) == [
        f"rte/{model}/seed-{seed}/record.json" for model in ("shared", "standard") for seed in (1, 2)
    ]
    record = record_of(out / "rte/shared/seed-2")
    assert (record["model"], record["operator"], record["task"], record["seed"]) == ("shared", "shared", "rte", 2)
    assert (record["train_rows"], record["dev_rows"], record["subset"]) == (32, 12, True)
    assert record["recipe"]["training"]["batch"] == 8
    assert [epoch["epoch"] for epoch in record["history"]] == [1, 2]
    best = max(record["history"], key=lambda epoch: epoch["accuracy"])
    assert record["best_epoch"] == best["epoch"]
    assert record["primary"] == best["accuracy"] == record["scores"]["accuracy"]


def test_the_predictions_kept_give_the_score_recorded(matrix):
    out, _, _ = matrix
    for model in ("standard", "shared"):
        folder = out / "rte" / model / "seed-1"
        dev = json.loads((folder / "dev.json").read_text())
        assert dev["ids"] == list(range(12))
        assert dev["labels"] == [number % 2 for number in range(12)]
        assert score("accuracy", dev["predictions"], dev["labels"]) == record_of(folder)["primary"]


def test_scores_are_shown_and_written(matrix):
    out, _, result = matrix
    assert "RTE, accuracy (subset)" in result.stdout
    assert "standard, shared" in result.stdout
    scores = json.loads((out / "scores.json").read_text())
    assert [(record["model"], record["seed"]) for record in scores["records"]] == [
        ("standard", 1),
        ("standard", 2),
        ("shared", 1),
        ("shared", 2),
    ]
    assert len(scores["comparisons"]) == 1
    assert "RTE" in (out / "scores.md").read_text()


def test_only_the_first_seeds_models_are_kept_unless_asked(matrix):
    out, _, _ = matrix
    kept = sorted(str(path.relative_to(out)) for path in out.rglob("model.safetensors"))
    assert kept == [f"rte/{model}/seed-1/model/model.safetensors" for model in ("shared", "standard")]


def test_what_is_finished_is_not_run_again(matrix, command):
    out, arguments, first = matrix
    before = {path: path.stat().st_mtime_ns for path in out.rglob("record.json")}
    again = command(*arguments)
    assert again.returncode == 0
    assert "4 of 4 finished already" in again.stderr
    assert again.stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in out.rglob("record.json")} == before


def test_a_record_that_is_missing_is_made_again_and_no_other(matrix, command, tmp_path):
    out = shutil.copytree(matrix[0], tmp_path / "out")
    arguments = [str(out) if one == str(matrix[0]) else one for one in matrix[1]]
    before, times = all_records(out), {path: path.stat().st_mtime_ns for path in out.rglob("record.json")}
    gone = out / "rte/shared/seed-1"
    shutil.rmtree(gone)
    assert command(*arguments).returncode == 0
    assert all_records(out) == before
    changed = [path for path, time in times.items() if path.stat().st_mtime_ns != time]
    assert changed == [gone / "record.json"]
    assert (gone / "model" / "model.safetensors").read_bytes() == (
        matrix[0] / "rte/shared/seed-1/model/model.safetensors"
    ).read_bytes()


def test_another_seed_is_added_to_what_is_there(matrix, command, tmp_path):
    out = shutil.copytree(matrix[0], tmp_path / "out")
    arguments = [str(out) if one == str(matrix[0]) else one for one in matrix[1]]
    before = all_records(out)
    assert command(*arguments, "--seeds", "3").returncode == 0
    after = all_records(out)
    assert len(after) == 6
    assert {name: after[name] for name in before} == before


def test_rows_seen_may_be_limited(samples, command, tmp_path):
    limited = ("training.epochs=5", "data.rows=20", "training.most_rows=45")
    assert command(*glue_arguments(samples, tmp_path / "out", *limited, task="rte")).returncode == 0
    for record in all_records(tmp_path / "out").values():
        assert (record["epochs"], len(record["history"])) == (2, 2)


@pytest.mark.parametrize(
    "change", [["--set", "training.epochs=3"], ["--set", "data.rows=20"], ["--recipe", "paper-glue"]]
)
def test_a_record_of_another_recipe_is_not_taken(change, matrix, command):
    result = command(*matrix[1], *change)
    assert result.returncode == 2
    assert "is of another recipe, model or data" in result.stderr
    assert "Traceback" not in result.stderr


def test_models_asked_for_later_are_made_later(samples, command, tmp_path):
    """`--keep none` first, then `--keep first`: the record says finished, but the model is not there."""
    arguments = own_arguments(samples, tmp_path / "out")
    assert command(*arguments, "--keep", "none").returncode == 0
    folder = tmp_path / "out/own/shared/seed-1"
    assert not (folder / "model").exists()
    before = without_times(record_of(folder))
    assert command(*arguments).returncode == 0
    assert (folder / "model" / "model.safetensors").is_file()
    assert without_times(record_of(folder)) == before


def test_predictions_that_are_missing_are_made_again(samples, command, tmp_path):
    """As the message of `triune compare` says."""
    arguments = [*glue_arguments(samples, tmp_path / "out"), "--workers", "1", "--keep", "none"]
    assert command(*arguments).returncode == 0
    gone = tmp_path / "out/rte/shared/seed-1/dev.json"
    before = gone.read_text()
    gone.unlink()
    assert command("compare", tmp_path / "out").returncode == 2
    assert command(*arguments).returncode == 0
    assert gone.read_text() == before


def test_scores_that_cannot_be_written_are_shown(samples, command, tmp_path):
    assert command(*glue_arguments(samples, tmp_path / "out"), "--workers", "1").returncode == 0
    (tmp_path / "out/scores.json").unlink()
    (tmp_path / "out/scores.json").mkdir()
    result = command("compare", tmp_path / "out")
    assert result.returncode == 2
    assert "cannot write" in result.stderr
    assert "RTE" in result.stdout


def test_a_record_of_another_recipe_is_found_before_rates_are_searched(matrix, command):
    """A search takes several runs a model, and its rate says which recipe the record should be of."""
    there = sorted(matrix[0].rglob("*"))
    result = command(*matrix[1], "--set", "search.learning_rates=[1e-3,2e-3]", "--set", "training.epochs=3")
    assert result.returncode == 2
    assert "is of another recipe, model or data" in result.stderr
    assert sorted(matrix[0].rglob("*")) == there


def test_renamed_classes_are_another_task(samples, command, tmp_path):
    """The numbers of the classes stay the same, what the model answers does not."""
    for name in ("train", "dev"):
        shutil.copy(getattr(samples, name), tmp_path / f"{name}.csv")
    files = ["--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv", "--text", "text", "--label", "label"]
    arguments = ["finetune", samples.shared, *files, "--out", tmp_path / "out", "--workers", "1", *sets()]
    assert command(*arguments).returncode == 0
    for name in ("train", "dev"):
        path = tmp_path / f"{name}.csv"
        path.write_text(path.read_text().replace(",good", ",yes").replace(",bad", ",no"))
    from triune.training.task_data import load

    load.cache_clear()  # another process would read the files again
    result = command(*arguments)
    assert result.returncode == 2
    assert "is of another recipe, model or data" in result.stderr


def test_it_learns_ones_own_data(samples, command, tmp_path):
    result = command(*own_arguments(samples, tmp_path, "training.epochs=16", "model.classifier_pooling=mean"))
    assert result.returncode == 0, result.stderr
    record = record_of(tmp_path / "own/shared/seed-1")
    assert record["primary"] > 90
    assert record["history"][-1]["train_loss"] < record["history"][0]["train_loss"] / 2
    assert set(record["scores"]) == {"accuracy", "macro_f1", "f1", "matthews"}
    assert record["subset"] is False


@pytest.fixture(scope="module")
def others(samples, command, tmp_path_factory):
    """A regression and both versions of SQuAD, with every model kept."""
    out = tmp_path_factory.mktemp("others") / "out"
    arguments = glue_arguments(samples, out, *MORE, task="stsb,squad-v1.1,squad-v2.0,mnli")
    result = command(*arguments, "--workers", "1")
    assert result.returncode == 0, result.stderr
    return out


def test_text_is_cut_into_windows_once_for_the_runs_of_a_task(samples, monkeypatch):
    """And again for other questions, another length, or another source of the same."""
    from triune.training import problems

    cut = []
    monkeypatch.setattr(problems, "_last_windows", {})
    monkeypatch.setattr(problems, "windows", lambda *given: cut.append(given[2]) or windows(*given))
    recipes = [load_finetune_recipe("strong", [*QUICK, f"data.max_length={length}"]) for length in (32, 24)]
    models = [locate_model(str(path)) for path in (samples.shared, samples.standard)]

    def problem(number, model, version="v1.1"):
        data = TaskData(f"squad-{version}", str(samples.data))
        return problem_for(data, models[model], recipes[number], None)

    first, second = problem(0, 0), problem(0, 1)
    assert cut == [32, 32]  # the training and the development split
    assert all(second.splits[name] is first.splits[name] for name in ("train", "dev"))
    problem(1, 1)
    assert cut == [32, 32, 24, 24]
    problem(1, 1, "v2.0")
    assert len(cut) == 6
    assert problem(1, 1).splits["dev"].source == first.splits["dev"].source
    assert len(cut) == 8


def test_a_question_that_moves_to_the_other_split_makes_other_data(samples, tmp_path):
    """What is trained on and scored is told apart, also where all questions together are the same."""
    folders = [tmp_path / "before" / "squad" / "v1.1", tmp_path / "after" / "squad" / "v1.1"]
    train, dev = (json.loads((samples.data / "squad/v1.1" / f"{name}.json").read_text()) for name in ("train", "dev"))
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "train.json").write_text(json.dumps(train))
        (folder / "dev.json").write_text(json.dumps(dev))
        dev["data"][0]["paragraphs"].insert(0, train["data"][-1]["paragraphs"].pop())
    before, after = (load(TaskData("squad-v1.1", str(folder.parents[1]))) for folder in folders)
    order = [[question.id for part in one.splits.values() for question in part[0]] for one in (before, after)]
    assert order[0] == order[1]
    assert before.sha256 != after.sha256


def test_regression_is_scored_by_correlation(others):
    folder = others / "stsb/standard/seed-1"
    record, dev = record_of(folder), json.loads((folder / "dev.json").read_text())
    assert set(record["scores"]) == {"pearson", "spearman", "pearson_spearman"}
    pearson = 100 * np.corrcoef(dev["predictions"], dev["labels"])[0, 1]
    assert record["scores"]["pearson"] == pytest.approx(pearson, abs=0.01)


def test_the_other_development_set_is_scored_too(others):
    folder = others / "mnli/standard/seed-1"
    record, dev = record_of(folder), json.loads((folder / "dev_mismatched.json").read_text())
    assert len(dev["ids"]) == 9
    assert record["more_scores"]["dev_mismatched"]["accuracy"] == score("accuracy", dev["predictions"], dev["labels"])


@pytest.mark.parametrize("version", ["v1.1", "v2.0"])
def test_the_written_answers_give_the_scores_recorded(version, others, samples):
    folder = others / f"squad-{version}" / "shared" / "seed-1"
    record = record_of(folder)
    asked = read_squad(samples.data / "squad" / version / "dev.json")
    answers = json.loads((folder / "dev-predictions.json").read_text())
    assert list(answers) == [question.id for question in asked]
    assert all(answers[question.id] in question.context for question in asked)
    official = squad.evaluate(answers, asked, version)
    assert {name: record["scores"][name] for name in official} == official
    assert record["primary"] == official["f1"]
    dev = json.loads((folder / "dev.json").read_text())
    assert 100 * np.mean(dev["f1"]) == pytest.approx(official["f1"])
    best = json.loads((folder / "dev-n-best.json").read_text())
    assert list(best) == list(answers)


def test_a_threshold_belongs_to_questions_without_an_answer(others):
    with_null, without = (record_of(others / f"squad-{v}/shared/seed-1") for v in ("v2.0", "v1.1"))
    assert isinstance(with_null["scores"]["null_threshold"], float)
    assert "NoAns_f1" in with_null["scores"]
    assert "null_threshold" not in without["scores"]
    about = json.loads((others / "squad-v2.0/shared/seed-1/model/task.json").read_text())
    assert about["null_threshold"] == with_null["scores"]["null_threshold"]


def test_the_best_epoch_is_kept_also_where_it_is_the_first(samples, command, tmp_path, monkeypatch):
    """Scores that only fall: predictions and model are those after one epoch of three."""
    from triune.training.problems import TextProblem

    evaluate, falling = TextProblem.evaluate, iter([3.0, 2.0, 1.0])

    def worse(self, logits, split="dev"):
        result = evaluate(self, logits, split)
        result.primary = next(falling)
        return result

    arguments = ["--task", "stsb", "--data-dir", samples.data, "--workers", "1", "--out", tmp_path]
    with monkeypatch.context() as patch:
        patch.setattr(TextProblem, "evaluate", worse)
        assert command("finetune", samples.shared, *arguments, *sets("training.epochs=3")).returncode == 0
    folder = tmp_path / "stsb/shared/seed-1"
    assert (record_of(folder)["best_epoch"], record_of(folder)["primary"]) == (1, 3.0)
    answers = command("predict", folder / "model", samples.data / "glue/stsb/dev.parquet").stdout.splitlines()
    kept = json.loads((folder / "dev.json").read_text())["predictions"]
    assert [json.loads(answer)["value"] for answer in answers] == pytest.approx(kept, abs=1e-5)


def test_the_model_kept_gives_the_predictions_that_were_scored(matrix, samples):
    """Loaded by transformers."""
    import pyarrow.parquet as pq

    for model in ("standard", "shared"):
        folder = matrix[0] / "rte" / model / "seed-1"
        classify = pipeline("text-classification", model=str(folder / "model"), device="cpu")
        rows = pq.read_table(samples.data / "glue/rte/dev.parquet").to_pylist()
        answers = classify([{"text": row["sentence1"], "text_pair": row["sentence2"]} for row in rows])
        classes = ["entailment", "not_entailment"]
        dev = json.loads((folder / "dev.json").read_text())
        assert [classes.index(one["label"]) for one in answers] == dev["predictions"]
        assert classify("good " * 1000, truncation=True)  # cut to what the model takes


# Files for the GLUE test server


@pytest.fixture(scope="module")
def served(samples, command, tmp_path_factory):
    out = tmp_path_factory.mktemp("served") / "out"
    arguments = glue_arguments(samples, out, "training.epochs=1", task="rte,mnli,qnli,mrpc,stsb")
    assert command(*arguments, "--workers", "1", "--test-files").returncode == 0
    return out


@pytest.mark.parametrize(
    ("task", "file", "rows", "values"),
    [
        ("rte", "RTE.tsv", 7, {"entailment", "not_entailment"}),
        ("qnli", "QNLI.tsv", 7, {"entailment", "not_entailment"}),
        ("mnli", "MNLI-m.tsv", 7, {"entailment", "neutral", "contradiction"}),
        ("mnli", "MNLI-mm.tsv", 6, {"entailment", "neutral", "contradiction"}),
        ("mrpc", "MRPC.tsv", 7, {"0", "1"}),
    ],
)
def test_server_files_hold_a_line_for_each_example(task, file, rows, values, served):
    for model in ("standard", "shared"):
        lines = (served / task / model / "seed-1" / file).read_text().splitlines()
        assert lines[0] == "index\tprediction"
        cells = [line.split("\t") for line in lines[1:]]
        assert [index for index, _ in cells] == [str(number) for number in range(rows)]
        assert {value for _, value in cells} <= values


def test_server_values_of_a_regression_stay_on_the_scale():
    from triune.data.tasks import get_task
    from triune.training.problems import TextProblem

    problem = object.__new__(TextProblem)
    problem.task, problem.kind = get_task("stsb"), "regression"
    assert [problem._server_value(x) for x in (-0.3, 0.0, 2.34567, 5.0, 7.1)] == [
        "0.000",
        "0.000",
        "2.346",
        "5.000",
        "5.000",
    ]


def test_server_values_of_stsb_are_numbers(served):
    lines = (served / "stsb/shared/seed-1/STS-B.tsv").read_text().splitlines()
    assert len(lines) == 8
    assert all(0 <= float(line.split("\t")[1]) <= 5 for line in lines[1:])


def test_server_files_can_be_asked_for_later(samples, command, tmp_path):
    arguments = [*glue_arguments(samples, tmp_path / "out"), "--workers", "1"]
    assert command(*arguments).returncode == 0
    folder = tmp_path / "out/rte/shared/seed-1"
    before = without_times(record_of(folder))
    result = command(*arguments, "--test-files")
    assert result.returncode == 0, result.stderr
    assert (folder / "RTE.tsv").is_file()
    assert without_times(record_of(folder)) == before


# Search


def test_the_search_takes_the_best_rate(samples, command, tmp_path):
    overrides = ["search.learning_rates=[1e-7, 1e-2]", "training.epochs=8", "model.classifier_pooling=mean"]
    result = command(*own_arguments(samples, tmp_path, *overrides), "--seeds", "2")
    assert result.returncode == 0, result.stderr
    folder = tmp_path / "own" / "shared"
    searched = {path.name: record_of(path) for path in folder.glob("search-*")}
    assert sorted(searched) == ["search-0.01", "search-1e-07"]
    best = max(searched.values(), key=lambda record: record["primary"])["recipe"]["optimizer"]["learning_rates"]
    assert best == [0.01]  # at 1e-7 nothing is learnt
    for seed in (1, 2):
        assert record_of(folder / f"seed-{seed}")["recipe"]["optimizer"]["learning_rates"] == best
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert [record["seed"] for record in scores["records"]] == [1, 2]  # the search is not among the results
    assert not any((path / "model").exists() for path in folder.glob("search-*"))


def test_a_rate_that_diverges_loses_the_search(samples, command, tmp_path):
    """A clip of zero and a rate beyond all reason; a run of its own with it is a mistake."""
    wild = ["search.learning_rates=[1e30, 1e-2]", "optimizer.clip=0", "optimizer.weight_decay=0"]
    arguments = glue_arguments(samples, tmp_path / "out", *wild)
    result = command(*arguments)
    assert result.returncode == 0, result.stderr
    assert "the loss is not a finite number" in result.stderr
    assert record_of(tmp_path / "out/rte/shared/seed-1")["recipe"]["optimizer"]["learning_rates"] == [1e-2]
    again = command(*arguments)
    assert "6 of 6 finished already" in again.stderr
    alone = ["search.learning_rates=[]", "optimizer.learning_rates=[1e30]", "optimizer.clip=0"]
    result = command(*glue_arguments(samples, tmp_path / "alone", *alone))
    assert result.returncode == 2
    assert "lower optimizer.learning_rates" in result.stderr


@pytest.mark.parametrize("task", ["rte", "stsb", "squad-v1.1"])
def test_weights_that_the_last_step_broke_have_no_score(task, samples, command, tmp_path):
    """The loss of the only step is that before it; classes would be all the first, and some of them right."""
    wild = ["optimizer.learning_rates=[1e30]", "optimizer.warmup=0", "training.batch=512", "training.epochs=1"]
    result = command(*glue_arguments(samples, tmp_path / "out", *wild, task=task))
    assert result.returncode == 2, result.stderr
    assert "the weights give no finite numbers in epoch 1; lower optimizer.learning_rates" in result.stderr
    assert not list((tmp_path / "out").rglob("record.json"))


def test_a_title_with_brackets_is_shown_as_it_is(samples, command, tmp_path):
    """File names and labels are not the terminal's markup."""
    train = shutil.copy(samples.train, tmp_path / "[bold]my[ data.csv")
    files = ["--train", train, "--dev", samples.dev, "--text", "text", "--label", "label"]
    model = f"[red]mine[={samples.shared}"
    result = command("finetune", model, *files, "--out", tmp_path / "out", "--workers", "1", *sets())
    assert result.returncode == 0, result.stderr
    assert "[bold]my[ data · [red]mine[ · seed 1" in result.stderr
    assert "[red]mine[" in result.stdout


def test_a_fine_tuned_model_can_go_on_with_another_task(samples, command, others, tmp_path):
    """Three classes, then a number, a span, two classes: each time with a head of its own."""
    model = others / "mnli/shared/seed-1/model"
    for number, task in enumerate(("squad-v1.1", "stsb", "squad-v2.0", "mnli", "rte")):
        out = tmp_path / str(number)
        data = ["--task", task, "--data-dir", samples.data, "--workers", "1"]
        result = command("finetune", model, *data, "--out", out, *sets())
        assert result.returncode == 0, result.stderr
        model = out / task / "shared" / "seed-1" / "model"
    config = json.loads((model / "config.json").read_text())
    assert config["id2label"] == {"0": "entailment", "1": "not_entailment"}
    assert config["problem_type"] == "single_label_classification"
    assert config["classifier_pooling"] == "mean"  # as the model that this began with


@pytest.mark.parametrize(
    ("override", "name", "value"),
    [
        ("training.attention=eager", "attention", "reference"),
        ("training.precision=bfloat16", "attention", "sdpa"),
        ("data.max_length=200", "max_length", 64),  # the model has no more positions
    ],
)
def test_settings_are_recorded_as_they_are_used(override, name, value, samples, command, tmp_path):
    result = command(*own_arguments(samples, tmp_path, override, "model.classifier_pooling=mean"))
    assert result.returncode == 0, result.stderr
    assert record_of(tmp_path / "own/shared/seed-1")[name] == value


def test_rows_that_lost_tokens_are_recorded(samples, command, tmp_path):
    assert command(*own_arguments(samples, tmp_path, "data.max_length=8")).returncode == 0
    tokenizer = load_tokenizer(samples.tokenizer)
    with samples.train.open(newline="") as file:
        lengths = [len(tokenizer(row["text"]).input_ids) for row in csv.DictReader(file)]
    longer = sum(length > 8 for length in lengths)
    assert 0 < longer < 48
    assert record_of(tmp_path / "own/shared/seed-1")["truncated"] == longer


def test_rows_are_a_limit_of_the_training_split(samples, command, tmp_path):
    assert command(*own_arguments(samples, tmp_path, "data.rows=10")).returncode == 0
    record = record_of(tmp_path / "own/shared/seed-1")
    assert (record["train_rows"], record["dev_rows"], record["subset"]) == (10, 16, True)


def test_dropout_of_the_recipe_is_that_of_the_model(samples, command, tmp_path):
    dropouts = ["model.hidden_dropout=0.3", "model.attention_dropout=0", "model.classifier_dropout=0.4"]
    assert command(*own_arguments(samples, tmp_path, *dropouts)).returncode == 0
    config = json.loads((tmp_path / "own/shared/seed-1/model/config.json").read_text())
    assert config["hidden_dropout_prob"] == 0.3
    assert config["attention_probs_dropout_prob"] == 0
    assert config["classifier_dropout"] == 0.4
