"""Every study by one command: all of it, part of it, killed in the middle, shared by two jobs, and by mistake."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from tests.training.test_pretrain import environment

# What says when, where, on what and how fast, and not what came out.
PASSING = ("seconds", "cell_seconds", "run", "model_path", "versions", "tokens_per_second", "tflops", "matmul_tflops")
PASSING += ("share_of_matmul", "train_seconds", "history", "median", "ratio", "source", "train_source", "dev_source")


def plain(value):
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key not in PASSING}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def records(out):
    """All records under a folder, but for what differs from one run to the next."""
    studies = ("parameters.json", "runs", "tasks", "noise", "transfer", "time", "ablations", "inspect")
    paths = [path for name in studies for path in [out / name, *(out / name).rglob("*.json")] if path.suffix == ".json"]
    names = {"summary.json", "record.json", "dev.json", "variants.json", "parameters.json"}
    kept = [path for path in paths if path.name in names or path.parts[-3:-2] in (("noise",), ("transfer",))]
    kept += [path for name in ("noise", "transfer", "time", "inspect") for path in (out / name).rglob("*.json")]
    return {
        str(path.relative_to(out)): plain(json.loads(path.read_text())) for path in sorted(set(kept)) if path.exists()
    }


@pytest.fixture(scope="module")
def whole(tiny, command, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "out"
    result = command(*tiny.arguments, out, "--workers", "1")
    assert result.returncode == 0, result.stderr
    return out, result


def test_every_study_leaves_its_records(whole):
    out, _ = whole
    found = records(out)
    for name in (
        "parameters.json",
        "runs/standard/summary.json",
        "tasks/mnli/shared/seed-2/record.json",
        "tasks/squad-v1.1/standard/seed-1/record.json",
        "noise/mnli/shared/seed-1.json",
        "transfer/mrpc/standard/seed-2.json",
        "time/mrpc.json",
        "ablations/variants.json",
        "ablations/narrow/seed-1/summary.json",
        "inspect/shared.json",
    ):
        assert name in found, name
    assert (out / "report.html").is_file()
    assert (out / "report.md").is_file()


def test_the_plan_comes_first_and_the_answer_last(whole):
    out, result = whole
    assert "training time (Figure 3)" in result.stderr
    assert "About" in result.stderr
    lines = result.stdout.splitlines()
    assert lines[-1] == f"The page: {out / 'report.html'}"
    assert len(" ".join(lines[:-1])) > 100


def test_a_log_has_a_heading_for_every_study(whole):
    lines = whole[1].stderr.splitlines()
    for title in ("fine-tuning (Tables 1, 2)", "noise (Table 5)", "cross-task (Table 6)", "training time (Figure 3)"):
        after = lines[lines.index(title) + 1]
        assert after.startswith("[1/"), title
    after = lines[lines.index("pre-training (Figure 2)") + 1]  # what a run says of itself stands below it too
    assert after.startswith(f"{whole[0]}/runs/")


def test_a_log_says_of_every_model_what_computes_it(whole):
    out, result = whole
    said = [line for line in result.stderr.splitlines() if " parameters, " in line]
    assert any(line.startswith(f"{out}/runs/shared: shared, ") and "attention sdpa" in line for line in said)
    assert any(line.startswith(f"{out}/ablations/narrow/seed-2: standard, ") for line in said)


def test_models_are_kept_only_where_a_study_needs_them(whole):
    out, _ = whole
    assert (out / "tasks/mnli/shared/seed-2/model/model.safetensors").is_file()
    assert not (out / "tasks/squad-v1.1/shared/seed-1/model").exists()


def test_a_second_run_recomputes_nothing(whole, tiny, command):
    out, first = whole
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    again = command(*tiny.arguments, out, "--workers", "1")
    assert again.returncode == 0, again.stderr
    assert "Everything is finished" in again.stderr
    assert again.stdout == first.stdout
    assert [path for path, when in before.items() if path.stat().st_mtime_ns != when] == []
    assert "12 of 12 finished already" in again.stderr


def test_killed_in_the_middle_it_ends_the_same(whole, tiny, command, tmp_path):
    out = tmp_path / "out"
    arguments = [*tiny.arguments, str(out), "--workers", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "triune.cli", *arguments],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    first = out / "tasks/mrpc/standard/seed-1/record.json"
    while not first.exists() and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (out / "report.html").exists()
    assert command(*arguments).returncode == 0
    assert records(out) == records(whole[0])


def test_two_jobs_give_the_records_of_one_process(whole, tiny, command, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # one thread a job, as here: sums are rounded alike
    studies = ["--only", "finetuning,noise"]
    result = command(*tiny.arguments, tmp_path / "out", *studies, "--engine", "jobs", "--workers", "2")
    assert result.returncode == 0, result.stderr
    jobs, local = records(tmp_path / "out"), records(whole[0])
    assert {name.split("/")[0] for name in jobs} == {"runs", "tasks", "noise"}
    assert jobs == {name: record for name, record in local.items() if name.split("/")[0] in ("runs", "tasks", "noise")}


def test_one_study_takes_only_what_it_needs(tiny, command, tmp_path):
    result = command(*tiny.arguments, tmp_path / "out", "--only", "noise", "--workers", "1")
    assert result.returncode == 0, result.stderr
    found = records(tmp_path / "out")
    assert "noise/mnli/shared/seed-1.json" in found
    assert not [name for name in found if name.startswith(("transfer", "time", "tasks/mrpc", "ablations"))]


def test_records_alone_are_enough_where_the_page_is_made_elsewhere(whole, tiny, command, tmp_path):
    out = tmp_path / "out"
    result = command(*tiny.arguments, out, "--only", "parameters", "--no-report")
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"The records: {out}; the page of them: triune report {out}\n"
    assert (out / "parameters.json").is_file()
    assert [path.name for path in out.glob("report.*")] == []
    page, before = whole[0] / "report.html", (whole[0] / "report.html").stat().st_mtime_ns
    again = command(*tiny.arguments, whole[0], "--workers", "1", "--no-report")
    assert again.returncode == 0, again.stderr
    assert "The page:" not in again.stdout  # one that is there may be of fewer records
    assert page.stat().st_mtime_ns == before


def test_one_operator_a_call_gives_the_records_of_one_call(whole, tiny, command, tmp_path):
    """Weights do not outlast a call here: what is made of a model is finished in the call that made it."""
    before, out = tmp_path / "before", tmp_path / "out"
    first = command(*tiny.arguments, before, "--operator", "standard", "--workers", "1", "--no-report")
    assert first.returncode == 0, first.stderr
    made = records(before).keys()
    assert {name.split("/")[1] for name in made if name.startswith("runs")} == {"standard"}
    assert {name.split("/")[2] for name in made if name.startswith(("tasks", "noise"))} == {"standard"}
    assert "ablations/narrow/seed-1/summary.json" in made
    assert not [name for name in made if "shared" in name or name.startswith("time")]
    assert json.loads((before / "planned.json").read_text())["operators"] == ["standard", "shared"]
    assert command("records", before, out).returncode == 0
    then = command(*tiny.arguments, out, "--operator", "shared", "--workers", "1")
    assert then.returncode == 0, then.stderr
    last = command(*tiny.arguments, out, "--only", "time", "--workers", "1")
    assert last.returncode == 0, last.stderr
    assert records(out).keys() == records(whole[0]).keys()
    assert scores(out) == scores(whole[0])


def scores(out):
    """What came out: of published records, ids of rows and paths are left aside."""
    tuned = {
        name: one["primary"] for name, one in records(out).items() if name.startswith("tasks") and "primary" in one
    }
    return tuned | {name: one["validation_loss"] for name, one in records(out).items() if "validation_loss" in one}


def test_another_vocabulary_is_another_folder(whole, tiny, command):
    result = command(*tiny.arguments, whole[0], "--workers", "1", "--set", "data.vocabulary=150")
    assert result.returncode == 2
    assert "choose another --out" in result.stderr.splitlines()[-1]


def test_the_diagonal_of_the_transfer_study_is_the_score_of_the_task(whole):
    out, _ = whole
    found = records(out)
    compared = 0
    for name in [name for name in found if name.startswith("transfer/")]:
        tuned = found[f"{name.replace('transfer/', 'tasks/').removesuffix('.json')}/record.json"]
        for target in found[name]["targets"]:
            if target["own_task"]:
                assert target["score"] == pytest.approx(tuned["primary"])
                compared += 1
    assert compared == 8


def test_the_plan_alone_writes_nothing(tiny, command, tmp_path):
    result = command(*tiny.arguments, tmp_path / "out", "--plan")
    assert result.returncode == 0
    assert "fine-tuning (Tables 1, 2)" in result.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--only", "nois"], "unknown study 'nois' (did you mean 'noise'?)"),
        (["--engine", "cloud"], "unknown engine 'cloud'"),
        (["--set", "finetuning.seed=2"], "unknown key 'finetuning.seed' (did you mean 'seeds'?)"),
        (["--set", "finetuning.tasks=[mnli]"], "'mrpc' is in a study and not in finetuning.tasks"),
        (["--set", "data.tokenizer=x"], "give one of data.tokenizer and data.vocabulary"),
        (
            ["--set", "pretraining.operators=[sharde]", "--set", "pretraining.settings={}"],
            "unknown operator 'sharde'",
        ),
        (["--set", "noise.where=inside"], "where"),
        (["--set", "ablations.variants=nothing"], "unknown recipe 'nothing'"),
        (["--set", "ablations.leave_out=[narow]"], "no list has a variant 'narow' (did you mean 'narrow'?)"),
        (["--set", "ablations.set=[model.wdith=64]"], "unknown key 'model.wdith'"),
        (["--set", "pretraining.settings={shared: {role_vectors: none}}"], "with role_vectors='none': use"),
        (["--set", "pretraining.set=[model.width=25]"], "standard: hidden_size 25 is not divisible"),
        (["--set", "pretraining.set=[training.attention=sdap]"], "unknown attn_implementation 'sdap'"),
        (["--set", "ablations.set=[model.heads=3]"], "standard: hidden_size 16 is not divisible"),
        (["--set", "finetuning.set=[training.bacth=8]"], "unknown key 'training.bacth'"),
        (["--set", "finetuning.seeds=0"], "finetuning.seeds must be at least 1, not 0"),
        (["--set", "time.rounds=-1"], "time.rounds must be at least 1, not -1"),
        (["--set", "noise.draws=0"], "noise.draws must be at least 1, not 0"),
        (["--set", "noise.tasks=[squad-v1.1]"], "SQuAD v1.1 asks for answers in a text"),
        (["--set", "pretraining.operators=[shared, shared]"], "each once"),
        (["--set", "pretraining.settings={shraed: {}}"], "'shraed', which is not among pretraining.operators"),
        (["--set", "data.corpus=[corpus/nothing.txt]"], "nothing.txt"),
        (["--only", ","], "--only ',' names no study"),
        (["--operator", "sharde"], "unknown operator 'sharde'"),
        (["--operator", "pairwise"], "--operator: no model of this scale has 'pairwise'"),
        (["--operator", "shared", "--only", "time"], "--only time: nothing of it is made of shared alone"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_run(more, said, tiny, command, tmp_path):
    result = command(*tiny.arguments, tmp_path / "out", *more)
    assert result.returncode == 2
    assert said in result.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_a_task_without_files_is_said_before_models_are_trained_for_it(tiny, command, tmp_path):
    shutil.copytree(tiny.data, tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "glue" / "mnli")
    arguments = ["reproduce", "--scale", tiny.scale, "--data-dir", tmp_path / "data", "--out", tmp_path / "out"]
    result = command(*arguments, "--only", "finetuning")
    assert result.returncode == 2
    assert "no split 'train' of MNLI" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()
    assert command(*arguments, "--only", "parameters").returncode == 0  # whoever needs no task needs no files


def test_settings_that_an_operator_has_not_are_said_before_anything_is_run(tiny, command, tmp_path):
    listed = yaml.safe_load((tiny.folder / "variants.yaml").read_text())
    listed["variants"]["shared"]["set"] = ["model.operator=standard", "model.operator_settings={role_start: signed}"]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(listed))
    result = command(*tiny.arguments, tmp_path / "out", "--set", f"ablations.variants={tmp_path / 'mine.yaml'}")
    assert result.returncode == 2
    assert "operator 'standard' has no setting 'role_start'" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_a_scale_by_a_wrong_name_is_one_line(command, tmp_path):
    result = command("reproduce", "--scale", "huge", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "unknown scale 'huge': --scale is pocket, sprint, base, paper" in result.stderr


def test_files_are_asked_for_where_the_scale_reads_them(command, tmp_path):
    result = command("reproduce", "--scale", "sprint", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "give --data-dir" in result.stderr.splitlines()[-1]


def test_the_pocket_world_makes_its_own_data(tiny, command, tmp_path):
    """As `make reproduce`, with recipes of a moment and one study."""
    settings = [
        f"pretraining.recipe={tiny.folder / 'pocket.yaml'}",
        "pretraining.operators=[shared]",
        "inspect.texts=4",
    ]
    overrides = [part for one in settings for part in ("--set", one)]
    result = command("reproduce", "--out", tmp_path / "out", "--only", "inspect", *overrides)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out/pocket/glue/mnli/dev_mismatched.parquet").is_file()
    assert json.loads((tmp_path / "out/inspect/shared.json").read_text())["texts"] == 4
    assert "made-up world" in result.stdout


@pytest.mark.parametrize("name", ["pocket", "sprint", "base", "paper"])
def test_the_scales_that_come_with_the_project_make_a_plan(name, command, tmp_path):
    (tmp_path / "corpus").mkdir()
    for file in ("wikipedia-0.txt", "books-0.txt", "valid-0.txt"):
        (tmp_path / "corpus" / file).write_text("some text\n")
    result = command("reproduce", "--scale", name, "--out", tmp_path / "out", "--plan", "--data-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    for study in ("pre-training", "fine-tuning", "noise", "cross-task", "ablations", "looking inside", "training time"):
        assert study in result.stdout
