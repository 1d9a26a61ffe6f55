import json

import pytest

from tests.report import made
from triune.errors import TriuneError
from triune.report.gather import gather


def test_every_study_is_found_by_what_its_records_hold(results, gathered):
    counts = {study: len(records) for study, records in gathered.studies.items()}
    assert counts == {
        "parameters": 1,
        "rates": 0,
        "pretraining": 2,
        "finetuning": 24,
        "noise": 12,
        "transfer": 12,
        "time": 2,
        "inspect": 2,
        "ablations": 1,
        "variants": 4,
        "planned": 0,
    }
    assert list(gathered.models) == ["standard", "shared"]
    assert gathered.pocket
    assert all((results / record["file"]).is_file() for record in gathered.all())
    assert gathered.notes == []


def test_folders_may_be_called_anything(tmp_path):
    made.time_record(tmp_path / "a" / "b", "cola", 0.9, 0.9)
    made.write_run(tmp_path / "c", "shared", 1.5, seed=4)
    found = gather([tmp_path])
    assert [record["file"] for record in found.all()] == ["c/summary.json", "a/b/cola.json"]
    assert found["pretraining"][0]["label"] == "c"
    assert found["pretraining"][0]["seed"] == 4


@pytest.mark.parametrize("name", ["ablations", "mine"])
def test_runs_beside_the_record_of_a_list_are_its_variants_whatever_it_is_called(tmp_path, name):
    made.write_ablations(tmp_path / "out", name)
    made.write_run(tmp_path / "standard", "standard", 1.5)
    found = gather([tmp_path])
    assert len(found["variants"]) == 4
    assert [record["file"] for record in found["pretraining"]] == ["standard/summary.json"]


def test_several_roots_are_told_apart_and_the_same_file_counts_once(results, tmp_path):
    other = tmp_path / "tasks"
    made.task_record(other, "sst2", "mine", 1, 30)
    found = gather([results / "tasks", other, results])
    files = {record["file"] for record in found["finetuning"]}
    assert len(found["finetuning"]) == 25
    assert "tasks (1)/mnli/shared/seed-1/record.json" in files
    assert "tasks (2)/sst2/mine/seed-1/record.json" in files
    assert found["noise"][0]["file"].startswith("results/noise/")


def test_two_records_of_the_same_thing_are_an_error(tmp_path):
    for place in ("a", "b"):
        made.task_record(tmp_path / place, "sst2", "shared", 1, 30)
    with pytest.raises(
        TriuneError, match=r"a/sst2/shared/seed-1/record.json' and 'b/.*task sst2, model shared, seed 1"
    ):
        gather([tmp_path])


def test_what_is_ours_and_damaged_is_an_error_and_what_is_foreign_is_left_out(tmp_path):
    made.task_record(tmp_path, "sst2", "shared", 1, 30)
    (tmp_path / "package.json").write_text('{"name": "other"}')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "broken.json").write_text("{")
    found = gather([tmp_path])
    assert len(found.all()) == 1
    assert sorted(note.partition(":")[0] for note in found.notes) == ["broken.json", "list.json", "package.json"]
    record = tmp_path / "sst2" / "shared" / "seed-2" / "record.json"
    made.write(record, {"task": "sst2"})
    with pytest.raises(TriuneError, match="without 'task_title'"):
        gather([tmp_path])
    record.write_text("{")
    with pytest.raises(TriuneError, match=r"cannot read .*seed-2/record.json"):
        gather([tmp_path])
    record.write_text("[]")
    with pytest.raises(TriuneError, match="no JSON object"):
        gather([tmp_path])


def test_a_record_with_a_thing_for_a_name_is_an_error(tmp_path):
    made.task_record(tmp_path, "sst2", "shared", 1, 30, model={"a": 1})
    with pytest.raises(TriuneError, match="'model' is neither a name nor a number"):
        gather([tmp_path])


@pytest.mark.parametrize(
    ("file", "place", "value", "wrong"),
    [
        ("noise/sst2/shared/seed-1.json", ["curves"], "x", "'curves' is not an object"),
        ("noise/sst2/shared/seed-1.json", ["curves", "typos", 1, "scores"], [], "no list with something in it"),
        ("noise/sst2/shared/seed-1.json", ["examples", "area", "typos"], [0.5], "are not of one length"),
        ("transfer/mnli/shared/seed-1.json", ["targets", 0, "right"], [1], "has 1 values for 200 rows"),
        ("tasks/sst2/shared/seed-1/record.json", ["primary"], "x", "'primary' is not a number"),
        ("time/cola.json", ["contestants"], [], "'contestants' is no list with something in it"),
        ("time/cola.json", ["contestants", 0, "operator"], None, r"'contestants\[0\].operator' is not text"),
        ("runs/shared/summary.json", ["validation_loss"], "x", "'validation_loss' is not a number"),
    ],
)
def test_a_record_that_tables_cannot_be_made_from_is_named(tmp_path, file, place, value, wrong):
    made.noise_record(tmp_path / "noise", "sst2", "shared", 1, 10.0)
    made.transfer_record(tmp_path / "transfer", "mnli", "shared", 1, {"mnli": 20})
    made.task_record(tmp_path / "tasks", "sst2", "shared", 1, 30)
    made.time_record(tmp_path / "time", "cola", 0.9, 0.9)
    made.write_run(tmp_path / "runs" / "shared", "shared", 1.5)
    gather([tmp_path])
    record = inner = json.loads((tmp_path / file).read_text())
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    made.write(tmp_path / file, record)
    with pytest.raises(TriuneError, match=wrong) as raised:
        gather([tmp_path])
    assert file in str(raised.value)
    assert "\n" not in str(raised.value)


def test_models_and_data_are_not_looked_at_and_searches_are_no_results(tmp_path):
    made.task_record(tmp_path, "sst2", "shared", 1, 30)
    model = tmp_path / "sst2" / "shared" / "seed-1" / "model"
    made.write(model / "config.json", {})
    made.write(model / "record.json", {"task": "nothing of ours"})
    made.write(tmp_path / "sst2" / "shared" / "search-0.1" / "record.json", {"diverged": "yes"})
    found = gather([tmp_path])
    assert len(found.all()) == 1
    assert found.notes == []
    assert found.searched == {("sst2", "shared"): {0.1}}  # only which rates there were
    made.write(tmp_path / "sst2" / "shared" / "search-party" / "record.json", {})
    assert gather([tmp_path]).notes == ["sst2/shared/search-party/record.json: no record of a study, left out"]


def test_a_run_that_is_not_finished_is_named(tmp_path):
    made.write_run(tmp_path / "done", "shared", 1.5)
    made.write_run(tmp_path / "going", "standard", 1.5)
    (tmp_path / "going" / "summary.json").unlink()
    found = gather([tmp_path])
    assert [run["label"] for run in found["pretraining"]] == ["done"]
    assert found.notes == ["going/run.json: a pre-training run that is not finished, left out"]
    run = json.loads((tmp_path / "done" / "run.json").read_text())
    del run["recipe"]["training"]
    made.write(tmp_path / "done" / "run.json", run)
    with pytest.raises(TriuneError, match="done' is damaged"):
        gather([tmp_path])


def test_real_data_are_not_called_pocket(tmp_path):
    made.task_record(tmp_path, "sst2", "shared", 1, 30, dev_rows=872)
    assert not gather([tmp_path]).pocket
    made.task_record(tmp_path, "sst2", "standard", 1, 30, subset=True)
    assert not gather([tmp_path]).pocket
    made.task_record(tmp_path, "sst2", "pairwise", 1, 30, dev_rows=400)
    assert gather([tmp_path]).pocket


def test_mistakes_are_one_line(command, tmp_path):
    (tmp_path / "empty").mkdir()
    for arguments, said in (
        ([tmp_path / "empty"], "no records under"),
        ([tmp_path / "nowhere"], "is not a folder"),
        ([tmp_path / "empty", "--format", "pdf"], "--format is html, md, cards, records, not 'pdf'"),
    ):
        done = command("report", *arguments)
        assert done.returncode == 2
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
