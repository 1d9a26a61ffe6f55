"""The training-time study: turns, arithmetic, records and tables. Nothing here depends on how long anything takes."""

import json
import pickle
import statistics

import numpy as np
import pytest
import torch

from tests.samples import QUICK, sets
from triune.benchmarks.epoch_time import Epochs, epoch_flops, in_turn, measure_time, time_cell
from triune.data.batches import training_plan
from triune.data.encoded import encode_pairs
from triune.data.tasks import get_task, load_split
from triune.data.tokenizer import load_tokenizer
from triune.errors import TriuneError
from triune.models.locate import locate_model
from triune.models.presets import preset
from triune.report.times import time_tables
from triune.training.finetune_recipe import load_finetune_recipe
from triune.training.task_data import TaskData


@pytest.fixture(scope="module")
def recipe():
    return load_finetune_recipe("pocket-tasks", QUICK)


@pytest.fixture(scope="module")
def configs(samples):
    return {name: locate_model(str(getattr(samples, name))).config for name in ("standard", "shared")}


@pytest.fixture(scope="module")
def measured(samples, recipe, configs, tmp_path_factory):
    out = tmp_path_factory.mktemp("time")
    data = TaskData("rte", str(samples.data))
    cell = time_cell(data, configs, str(samples.tokenizer), recipe, 2, out)
    return cell, cell.run(**pickle.loads(pickle.dumps(cell.arguments)))  # noqa: S301


class Turn:
    """Notes when its turn comes; its epochs take one second more each time."""

    how = "noted"

    def __init__(self, name, notes):
        self.name, self.notes, self.seconds = name, notes, 0.0

    def warm_up(self):
        self.notes.append(f"warm {self.name}")

    def epoch(self):
        self.notes.append(self.name)
        self.seconds += 1.0
        return self.seconds


# Turns


def test_contestants_take_turns_and_every_round_begins_with_another():
    notes = []
    seconds = in_turn({name: Turn(name, notes) for name in "abc"}, 4)
    assert notes[:3] == ["warm a", "warm b", "warm c"]
    assert "".join(notes[3:]) == "abc" + "bca" + "cab" + "abc"
    assert seconds == {name: [1.0, 2.0, 3.0, 4.0] for name in "abc"}


def test_an_epoch_is_the_steps_of_the_plan_and_changes_the_weights(samples, recipe, configs):
    task, tokenizer = get_task("mnli"), load_tokenizer(str(samples.tokenizer))
    given = load_split(task, "train", samples.data)
    encoded = encode_pairs(tokenizer, given.first, given.second, given.labels, 32)
    plan = training_plan(encoded.lengths, 8, 1, 0, 32)
    pad, cpu = int(tokenizer.pad_token_id), torch.device("cpu")
    epochs = Epochs(configs["shared"], task, encoded, plan, pad, recipe, 2, cpu)
    assert epochs.model.config.num_labels == 3
    assert epochs.model.config.classifier_pooling == "mean"  # as the recipe says
    taken = []
    take = epochs.steps.take
    epochs.steps.take = lambda rows, length: (taken.append((length, rows.tolist())), take(rows, length))
    before = epochs.model.classifier.weight.detach().clone()
    assert epochs.epoch() > 0
    assert taken == [(length, rows.tolist()) for length, rows in plan]
    assert not torch.equal(before, epochs.model.classifier.weight)
    epochs.warm_up()
    assert len(taken) == len(plan) + min(10, len(plan))


# Arithmetic


# Of a token in a layer of width 128 with 2 heads, a multiply-add as two: the roles of each operator.
ROLES = {
    "standard": 3 * 2 * 128 * 128,
    "symmetric": 2 * 2 * 128 * 128,
    "pairwise": 2 * 2 * 128 * 128 + 2 * 2 * 64 * 64,  # and a matrix a head
    "shared": 2 * 128 * 128 + 2 * 128,  # and a factor an element for queries, and one for the output
}


@pytest.mark.parametrize("operator", ROLES)
def test_flops_of_an_epoch_are_those_of_its_padded_batches(operator):
    plan = [(8, np.zeros(16)), (24, np.zeros(16)), (8, np.zeros(16))]

    def by_hand(name):
        total = 0
        for length, _ in plan:
            attention = 2 * length * 128 + 2 * length * 128  # scores, and the weighted sum
            layer = ROLES[name] + attention + 2 * 128 * 128 + 2 * 2 * 128 * 512
            total += 16 * length * 2 * layer
        return 3 * total  # the backward pass has two products for each of the forward's

    configs = [preset("tiny", operator=name) for name in ("standard", operator)]
    standard, found = (epoch_flops(config, plan) for config in configs)
    assert found == by_hand(operator)
    assert found / standard == by_hand(operator) / by_hand("standard")


def test_at_base_size_shared_saves_what_the_note_on_the_paper_says():
    for length, saved in ((128, 16.2), (512, 15.0)):
        standard, shared = (
            epoch_flops(preset("base", operator=name), [(length, np.zeros(16))]) for name in ("standard", "shared")
        )
        assert 100 * (1 - shared / standard) == pytest.approx(saved, abs=0.05)


# Records


def test_a_record_of_a_task(measured, samples, configs):
    cell, record = measured
    assert record == json.loads(cell.record.read_text())
    assert cell.record.name == "rte.json"
    assert (record["study"], record["identity"], record["task"]) == ("time", cell.identity, "rte")
    assert (record["rows"], record["batch"], record["steps"], record["rounds"]) == (32, 8, 4, 2)
    assert record["subset"]
    assert record["model"]["layers"] == 1
    standard, shared = record["contestants"]
    assert (standard["operator"], shared["operator"]) == ("standard", "shared")
    for one in (standard, shared):
        assert len(one["seconds"]) == 2
        assert one["median"] == statistics.median(one["seconds"])
        assert one["ratio"] == one["median"] / standard["median"]
        assert "attention sdpa, not captured" in one["how"]
    assert (standard["ratio"], standard["flop_ratio"]) == (1.0, 1.0)
    given = load_split(get_task("rte"), "train", samples.data)
    encoded = encode_pairs(load_tokenizer(str(samples.tokenizer)), given.first, given.second, given.labels, 32)
    plan = training_plan(encoded.lengths, 8, 1, 0, 32)
    flops = {name: epoch_flops(config, plan) for name, config in configs.items()}
    assert shared["flops"] == flops["shared"]
    assert shared["flop_ratio"] == flops["shared"] / flops["standard"] < 1


def test_medians_and_ratios_are_of_the_seconds_measured(samples, recipe, configs, tmp_path, monkeypatch):
    spent = {"standard": [4.0, 9.0, 5.0], "shared": [4.0, 3.0, 8.0]}
    monkeypatch.setattr("triune.benchmarks.epoch_time.in_turn", lambda contestants, rounds: spent)
    cell = time_cell(TaskData("rte", str(samples.data)), configs, str(samples.tokenizer), recipe, 3, tmp_path)
    standard, shared = cell.run(**cell.arguments)["contestants"]
    assert (standard["median"], shared["median"], shared["ratio"]) == (5.0, 4.0, 0.8)


def test_threads_are_as_before(samples, recipe, configs, tmp_path, monkeypatch):
    seen = []

    def turns(contestants, rounds):
        seen.append(torch.get_num_threads())
        return {name: [1.0] for name in contestants}

    monkeypatch.setattr("triune.benchmarks.epoch_time.in_turn", turns)
    cell = time_cell(TaskData("rte", str(samples.data)), configs, str(samples.tokenizer), recipe, 1, tmp_path)
    torch.set_num_threads(2)
    try:
        measure_time(**cell.arguments)
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(1)


def test_identity_is_of_models_recipe_data_and_rounds(samples, recipe, configs, tmp_path):
    def identity(task="rte", models=configs, made=recipe, rounds=2):
        data = TaskData(task, str(samples.data))
        return time_cell(data, models, str(samples.tokenizer), made, rounds, tmp_path).identity

    other_recipe = load_finetune_recipe("pocket-tasks", [*QUICK, "training.batch=4"])
    all_of_them = [
        identity(),
        identity(task="mrpc"),
        identity(models={"standard": configs["standard"]}),
        identity(made=other_recipe),
        identity(rounds=3),
    ]
    assert len(set(all_of_them)) == 5
    assert identity() == all_of_them[0]


def test_models_that_differ_in_more_than_the_operator_are_refused(samples, recipe, tmp_path):
    models = {"a": preset("tiny"), "b": preset("mini")}
    with pytest.raises(TriuneError, match="a has num_hidden_layers 2 and b 4"):
        time_cell(TaskData("rte", str(samples.data)), models, str(samples.tokenizer), recipe, 1, tmp_path)


def test_questions_are_no_task_of_whole_texts(samples, recipe, configs, tmp_path):
    with pytest.raises(TriuneError, match=r"SQuAD v1.1 is no task of whole texts"):
        time_cell(TaskData("squad-v1.1", str(samples.data)), configs, str(samples.tokenizer), recipe, 1, tmp_path)


# Tables


def made(task, title, seconds, ratio, **other):
    size = {"layers": 2, "width": 128, "heads": 4, "feed_forward": 512, "vocabulary": 700}
    contestants = [
        {"model": name, "operator": name, "seconds": times, "median": statistics.median(times)}
        for name, times in seconds.items()
    ]
    for one in contestants:
        one["ratio"] = one["median"] / statistics.median(seconds["standard"])
        one["flop_ratio"] = ratio if one["model"] == "shared" else 1.0
    record = {"task": task, "task_title": title, "rows": 1200, "subset": False, "source": "x", "batch": 16}
    record |= {"mean_tokens": 9.25, "precision": "float32", "rounds": 3, "reference": "standard", "device": "cpu"}
    return {**record, "model": size, "contestants": contestants, "file": f"time/{task}.json", **other}


def test_tables_from_records():
    seconds = {"shared": [3.0, 2.0, 5.0], "standard": [4.0, 4.5, 3.5]}
    (table,) = time_tables(
        [made("sst2", "SST-2", seconds, 0.9), made("cola", "CoLA", seconds, 0.838, subset=True, rows=1000)]
    )
    assert table.title == "Training time: one epoch at batch 16"
    assert table.rows == [
        ["CoLA (subset)", "standard", "4.00", "3.50 – 4.50", "", "", ""],
        ["CoLA (subset)", "shared", "3.00", "2.00 – 5.00", "25.0 %", "16.2 %", "30 %"],
        ["SST-2", "standard", "4.00", "3.50 – 4.50", "", "", ""],
        ["SST-2", "shared", "3.00", "2.00 – 5.00", "25.0 %", "10.0 %", ""],
    ]
    assert table.sources[1, 4] == ("time/cola.json",)
    assert (0, 4) not in table.sources
    assert (1, 6) not in table.sources  # the paper's
    notes = " ".join(table.notes)
    assert "the bound that arithmetic sets" in notes
    assert "overhead" in notes
    assert "2 layers × 128" in notes
    assert "CoLA: 1,000 rows from x." in notes


def test_a_slower_model_saves_less_than_nothing():
    (table,) = time_tables([made("rte", "RTE", {"standard": [2.0], "shared": [2.5]}, 1.0)])
    assert table.rows[1][4:6] == ["−25.0 %", "0.0 %"]
    assert time_tables([]) == []


# The command


def test_the_command_measures_writes_and_shows(samples, command, tmp_path):
    models = [str(samples.standard), f"ours={samples.shared}"]
    common = ["--data-dir", samples.data, "--recipe", "pocket-tasks", "--out", tmp_path / "out", *sets()]
    arguments = ["time", *models, "--task", "rte,mrpc", "--rounds", "1", *common]
    result = command(*arguments)
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["mrpc.json", "rte.json"]
    assert "Training time: one epoch at batch 8" in result.stdout
    assert "ours" in result.stdout
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    again = command(*arguments)
    assert again.stdout == result.stdout
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_a_size_needs_a_tokenizer(samples, command, tmp_path):
    common = ["--task", "rte", "--data-dir", samples.data, "--rounds", "1", "--out", tmp_path / "out", *sets()]
    result = command("time", "--size", "tiny", *common)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "or a --tokenizer" in result.stderr
    given = ["--size", "tiny", "--operator", "standard,pairwise", "--tokenizer", samples.tokenizer]
    assert command("time", *given, *common).returncode == 0
    record = json.loads((tmp_path / "out/rte.json").read_text())
    assert [one["operator"] for one in record["contestants"]] == ["standard", "pairwise"]
    assert record["model"]["width"] == 128


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--task", ","], "--task names no task"),
        (["--data-dir", "nowhere"], "is not a folder"),
        (["--operator", ",", "--tokenizer", "x"], "--operator names no operator"),
        (["--task", "rtee", "--tokenizer", "{tokenizer}"], "did you mean 'rte'?"),
    ],
)
def test_mistakes_of_the_command(more, word, samples, command, tmp_path):
    given = [one.format(tokenizer=samples.tokenizer) for one in more]
    result = command("time", "--out", tmp_path / "out", *given)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert word in result.stderr
