"""A matrix of runs: labels of models, worker processes, plug-ins, and kills in the middle."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.operators.test_registry import PLUGIN
from tests.samples import QUICK, glue_arguments
from tests.training.test_finetune import all_records
from tests.training.test_pretrain import environment
from triune import TriuneError, cells, operators
from triune.budget import Budget
from triune.operators import registry
from triune.training import matrix
from triune.training.finetune_recipe import load_finetune_recipe
from triune.training.matrix import label_models
from triune.training.task_data import TaskData


def test_models_are_called_by_their_operators(samples):
    found = label_models([str(samples.standard), str(samples.shared)])
    assert {label: model.config.operator for label, model in found.items()} == {
        "standard": "standard",
        "shared": "shared",
    }


def test_models_of_one_operator_are_called_by_their_folders(samples, tmp_path):
    run = tmp_path / "second-run"
    shutil.copytree(samples.shared, run / "model")
    found = label_models([str(samples.shared), str(run), str(samples.standard)])
    assert list(found) == ["shared", "second-run", "standard"]


def test_labels_can_be_given(samples):
    found = label_models([f"ours={samples.shared}", f"theirs={samples.standard}", str(samples.shared)])
    assert [(label, model.config.operator) for label, model in found.items()] == [
        ("ours", "shared"),
        ("theirs", "standard"),
        ("shared", "shared"),
    ]


def test_an_equals_sign_in_a_path_is_no_label(samples, tmp_path):
    shutil.copytree(samples.shared, tmp_path / "rate=3")
    assert list(label_models([str(tmp_path / "rate=3")])) == ["shared"]


@pytest.mark.parametrize("label", [".", "..", ".hidden"])
def test_a_label_is_the_name_of_a_folder(label, samples):
    with pytest.raises(TriuneError, match=f"cannot be called '{label}'"):
        label_models([f"{label}={samples.shared}"])


def test_two_models_need_two_labels(samples):
    for given in (["same", "same"], ["shared", None]):
        models = [f"{label}={samples.shared}" if label else str(samples.shared) for label in given]
        with pytest.raises(TriuneError, match=r"two models would be called '(same|shared)'"):
            label_models(models)


@pytest.mark.parametrize(("attention", "first"), [("triune", "data"), ("eager", "data"), ("one_tensor", "device")])
def test_who_gives_out_work_takes_no_device_without_need(attention, first, samples, tmp_path, monkeypatch):
    """Workers have theirs; a process that waits for them would only keep memory of a GPU."""

    def reached(what):
        def stop(*_):
            raise InterruptedError(what)

        return stop

    monkeypatch.setattr(matrix, "worker_device", reached("device"))
    monkeypatch.setattr(matrix, "load", reached("data"))
    recipe = load_finetune_recipe("quick", [f"training.attention={attention}"])
    models, tasks = label_models([str(samples.shared)]), {"rte": TaskData("rte", str(samples.data))}
    with pytest.raises(InterruptedError, match=first):
        matrix.run_matrix(matrix.Matrix(models, tasks, recipe, [1], tmp_path / "out"), lambda *_: None)


def test_killed_in_the_middle_it_ends_the_same(samples, command, tmp_path):
    """SIGKILL after the first record; the rest is run afterwards, and nothing half-written is in the way."""
    arguments = [
        *glue_arguments(samples, tmp_path / "stopped-run", "training.epochs=8"),
        "--seeds",
        "2",
        "--workers",
        "1",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "triune.cli", *arguments],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    first = tmp_path / "stopped-run/rte/standard/seed-1/record.json"
    while not first.exists() and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    before = all_records(tmp_path / "stopped-run")
    assert 0 < len(before) < 4
    assert command(*arguments).returncode == 0
    undisturbed = [one.replace("stopped-run", "whole") for one in arguments]
    assert command(*undisturbed).returncode == 0
    after = all_records(tmp_path / "stopped-run")
    assert after == all_records(tmp_path / "whole")
    assert {name: after[name] for name in before} == before
    scores = [
        json.loads((tmp_path / name / "scores.json").read_text())["comparisons"] for name in ("stopped-run", "whole")
    ]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("moment", ["dev.json", ".model", "record.json"])
def test_an_interrupted_run_is_run_again(moment, samples, command, tmp_path, monkeypatch):
    """Stopped while a file of the run is written: there is no record, so the run counts as not there."""
    from triune.training import finetune
    from triune.training.problems import Problem

    arguments = [*glue_arguments(samples, tmp_path / "out"), "--workers", "1"]
    write_text, save = finetune.write_text, Problem.save

    def stopping(path, text):
        if path.name == moment and "shared" in path.parts:
            raise TriuneError("stopped")
        write_text(path, text)

    def stopping_save(self, model, folder, threshold=None):
        save(self, model, folder, threshold)
        if moment == ".model" and "shared" in folder.parts:
            raise TriuneError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(finetune, "write_text", stopping)
        patch.setattr(Problem, "save", stopping_save)
        assert command(*arguments).returncode == 2
    assert list(all_records(tmp_path / "out")) == ["rte/standard/seed-1/record.json"]
    assert command(*arguments).returncode == 0
    folder = tmp_path / "out/rte/shared/seed-1"
    assert sorted(path.name for path in folder.iterdir()) == ["dev.json", "model", "record.json"]


@pytest.fixture
def plugin(tmp_path):
    """A file that registers an operator; afterwards this process does not know it."""
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN.replace("rolled-test", "rolled-matrix"))
    yield path
    registry._OPERATORS.pop("rolled-matrix", None)
    registry._plugins.clear()


def test_workers_know_plugged_in_operators(samples, command, plugin, tmp_path, monkeypatch):
    """Two worker processes; and what they do is what one process does."""
    from triune import TriuneConfig, TriuneForMaskedLM

    operators.load_plugin(str(plugin))
    config = TriuneConfig.from_pretrained(samples.shared, operator="rolled-matrix")
    TriuneForMaskedLM(config).save_pretrained(tmp_path / "mine")
    for file in samples.tokenizer.iterdir():
        shutil.copy(file, tmp_path / "mine")
    registry._OPERATORS.pop("rolled-matrix")
    registry._plugins.clear()
    models = [str(samples.shared), str(tmp_path / "mine")]
    data = ["--task", "rte", "--data-dir", str(samples.data)]
    arguments = ["finetune", *models, *data, *glue_arguments(samples, tmp_path)[-12:]]
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # one thread a worker, as here: sums are rounded alike
    result = command("--plugin", plugin, *arguments, "--out", tmp_path / "two", "--workers", "2")
    assert result.returncode == 0, result.stderr
    assert command(*arguments, "--out", tmp_path / "one", "--workers", "1").returncode == 0
    two, one = all_records(tmp_path / "two"), all_records(tmp_path / "one")
    assert two["rte/rolled-matrix/seed-1/record.json"]["operator"] == "rolled-matrix"
    assert len(one) == 2
    assert two == one


def test_an_edited_operator_is_another_model(samples, command, plugin, tmp_path):
    from triune import TriuneConfig, TriuneForMaskedLM

    operators.load_plugin(str(plugin))
    config = TriuneConfig.from_pretrained(samples.shared, operator="rolled-matrix")
    TriuneForMaskedLM(config).save_pretrained(tmp_path / "mine")
    for file in samples.tokenizer.iterdir():
        shutil.copy(file, tmp_path / "mine")
    data = ["--task", "rte", "--data-dir", str(samples.data)]
    arguments = ["finetune", str(tmp_path / "mine"), *data, *glue_arguments(samples, tmp_path)[-12:]]
    first = command("--plugin", plugin, *arguments, "--out", tmp_path / "out")
    assert first.returncode == 0, first.stderr
    assert command("--plugin", plugin, *arguments, "--out", tmp_path / "out").returncode == 0
    plugin.write_text(plugin.read_text().replace("roll(1", "roll(2"))
    again = command("--plugin", plugin, *arguments, "--out", tmp_path / "out")
    assert again.returncode == 2
    assert "is of another source of the operator 'rolled-matrix'" in again.stderr


def test_jobs_give_the_records_of_one_process(samples, command, tmp_path, monkeypatch):
    """Two jobs of submitit, each a process of its own that gets its share of the cells from a file."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    arguments = [*glue_arguments(samples, tmp_path / "jobs"), "--seeds", "2"]
    result = command(*arguments, "--workers", "2", "--engine", "jobs")
    assert result.returncode == 0, result.stderr
    local = [one.replace(str(tmp_path / "jobs"), str(tmp_path / "local")) for one in arguments]
    assert command(*local, "--workers", "1").returncode == 0
    jobs, one = all_records(tmp_path / "jobs"), all_records(tmp_path / "local")
    assert len(one) == 4
    assert jobs == one
    again = command(*arguments, "--workers", "2", "--engine", "jobs")
    assert "4 of 4 finished already" in again.stderr


def test_a_mistake_in_a_job_is_one_line(samples, command, tmp_path):
    arguments = glue_arguments(samples, tmp_path / "out", "optimizer.learning_rates=[1e30]")
    result = command(*arguments, "--workers", "2", "--engine", "jobs")
    assert result.returncode == 2
    assert "the loss is not a finite number" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("ray", "unknown engine 'ray': --engine is local, jobs or slurm"),
        ("local:partition=gpu", "--engine local takes no options"),
        ("slurm:partition", "options of slurm are written as in"),
    ],
)
def test_a_wrong_engine_is_one_line(engine, said, samples, command, tmp_path):
    result = command(*glue_arguments(samples, tmp_path / "out"), "--engine", engine)
    assert result.returncode == 2
    assert said in result.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_with_a_budget_workers_do_not_wait_for_the_end_of_a_search(samples, tmp_path, monkeypatch):
    """What is asked for together: the search of a task with the seeds of the one before; searched, all at once."""
    asked = []

    def done(cell, *ignored):
        asked[-1].append(cell.title)

    def run_missing(given, engine, done, of):
        asked.append([])
        assert of == 2 * 2 * (2 + 2)
        return cells.run_missing(given, engine, done, of)

    monkeypatch.setattr(matrix, "run_missing", run_missing)
    recipe = load_finetune_recipe("strong", [*QUICK, "search.learning_rates=[1e-2,1e-3]"])
    given = matrix.Matrix(
        label_models([str(samples.shared), str(samples.standard)]),
        {name: TaskData(name, str(samples.data)) for name in ("rte", "stsb")},
        recipe,
        [1, 2],
        tmp_path / "out",
        engine=cells.Engine(workers=1, budget=Budget(1000.0)),
    )
    matrix.run_matrix(given, done)
    what = [[" ".join(title.split(" · ")[::2]) for title in titles] for titles in asked]
    searches = ["search, rate 0.01", "search, rate 0.001"] * 2
    assert what[0] == [f"rte {one}" for one in searches]
    seeds = ["seed 1", "seed 1", "seed 2", "seed 2"]
    assert what[1] == [f"rte {one}" for one in seeds] + [f"stsb {one}" for one in searches]
    assert what[2:] == [[f"stsb {one}" for one in seeds]]
    asked.clear()
    shutil.rmtree(tmp_path / "out/rte/shared/seed-2")
    shutil.rmtree(tmp_path / "out/stsb/standard/seed-1")
    matrix.run_matrix(given, done)
    assert [len(titles) for titles in asked] == [4, 4, 8]


def test_with_a_budget_as_many_tasks_are_searched_together_as_workers_need(samples, tmp_path, monkeypatch):
    asked = []

    def run_missing(given, *ignored):
        asked.append([" ".join(cell.title.split(" · ")[::2]) for cell in given])
        for cell in given:
            cells.write_record(cell.record, {"identity": cell.identity, "primary": 1.0})
            for name in cell.wanted:
                (cell.record.parent / name).touch()

    monkeypatch.setattr(matrix, "run_missing", run_missing)
    given = matrix.Matrix(
        label_models([str(samples.shared)]),
        {name: TaskData(name, str(samples.data)) for name in ("rte", "stsb", "mrpc")},
        load_finetune_recipe("strong", [*QUICK, "search.learning_rates=[1e-2,1e-3]"]),
        [1],
        tmp_path / "out",
        engine=cells.Engine(workers=3, budget=Budget(1000.0)),
    )
    matrix.run_matrix(given, lambda *ignored: None)
    searches = {name: [f"{name} search, rate 0.01", f"{name} search, rate 0.001"] for name in given.tasks}
    assert asked == [
        searches["rte"] + searches["stsb"],  # one of them would leave a worker without work
        ["rte seed 1", "stsb seed 1", *searches["mrpc"]],
        ["mrpc seed 1"],
    ]


def test_a_worker_that_dies_is_one_line(samples, tmp_path, monkeypatch, command):
    """Killed from outside, for want of memory for example."""
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

    class Broken(ProcessPoolExecutor):
        def submit(self, *ignored):
            raise BrokenProcessPool("A process in the process pool was terminated abruptly")

    cells.close_processes()  # those of an earlier test
    monkeypatch.setattr(cells, "ProcessPoolExecutor", Broken)
    result = command(*glue_arguments(samples, tmp_path / "out"), "--workers", "2")
    assert result.returncode == 2
    assert "a worker process ended" in result.stderr.splitlines()[-1]
