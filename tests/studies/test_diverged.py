"""A run that diverges has a record that says so; it is named, and ends nothing else."""

import json
import shutil

import pytest
import yaml

from tests.studies.conftest import arguments_with

WILD = """
  wild:
    about: a rate at which the loss is no number
    set: [model.operator=standard, "model.operator_settings={}", optimizer.learning_rate=1e30]
"""
SAID = "the loss is not a finite number"


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def variants(tiny, tmp_path_factory):
    path = tmp_path_factory.mktemp("wild") / "variants.yaml"
    path.write_text((tiny.folder / "variants.yaml").read_text() + WILD.lstrip("\n"))
    return path


@pytest.fixture(scope="module")
def arguments(tiny, variants):
    settings = [
        "pretraining.set=[training.log_every=1]",
        f"ablations.variants={variants}",
        "finetuning.tasks=[mrpc, mnli]",
    ]
    return arguments_with(tiny, settings)


@pytest.fixture(scope="module")
def whole(arguments, command, tmp_path_factory):
    out = tmp_path_factory.mktemp("diverged") / "out"
    result = command(*arguments, out)
    assert result.returncode == 0, result.stderr
    return out, result


def test_a_variant_that_diverges_is_named_and_the_others_are_compared(whole):
    out, result = whole
    for seed in (1, 2):
        assert SAID in read(out / f"ablations/wild/seed-{seed}/summary.json")["diverged"]
        assert f"ablations/wild/seed-{seed} diverged: {SAID}" in result.stdout
        assert f"wild · seed {seed}: {SAID}" in result.stderr
    record = read(out / "ablations/variants.json")
    assert [one["name"] for one in record["variants"]] == ["standard", "narrow", "shared"]
    assert record["seeds"] == [1, 2]
    assert "ablations/wild/seed-1/run.json: diverged" in (out / "report.html").read_text()
    assert (out / "inspect/shared.json").is_file()  # a later stage


def test_it_is_not_run_again(whole, arguments, command):
    out, first = whole
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    again = command(*arguments, out)
    assert again.returncode == 0, again.stderr
    assert "Everything is finished" in again.stderr
    assert again.stdout == first.stdout
    assert [path for path, when in before.items() if path.stat().st_mtime_ns != when] == []


def test_it_is_published_with_the_other_records(whole, arguments, command, tmp_path):
    result = command("records", whole[0], tmp_path / "records")
    assert result.returncode == 0, result.stderr
    assert "diverged" in read(tmp_path / "records/ablations/wild/seed-2/summary.json")
    again = command(*arguments, tmp_path / "records", "--plan")
    assert "Everything is finished" in again.stdout


def test_pre_training_into_its_folder_says_what_happened(whole, command):
    out, _ = whole
    run = out / "ablations/wild/seed-1"
    result = command("pretrain", run / "recipe.yaml", "--data", out / "blocks", "--out", run)
    assert result.returncode == 2
    assert f"{SAID} at step" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("budget", [[], ["--budget", "1h"]])
def test_what_starts_from_a_model_that_diverged_is_left_out(budget, whole, arguments, command, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    summary = out / "runs/shared/summary.json"
    record = {name: read(summary)[name] for name in ("study", "identity", "operator", "unigram_entropy")}
    summary.write_text(json.dumps({**record, "diverged": f"{SAID} at step 3"}))
    shutil.rmtree(out / "runs/shared/model")
    for name in ("tasks/mrpc/shared", "tasks/mnli/shared", "noise", "transfer", "inspect", "time"):
        shutil.rmtree(out / name)
    result = command(*arguments, out, *budget)
    assert result.returncode == 0, result.stderr
    assert f"runs/shared diverged: {SAID} at step 3." in result.stdout
    assert "the same command goes on" not in result.stdout
    assert (out / "noise/mnli/standard/seed-2.json").is_file()
    assert (out / "inspect/standard.json").is_file()
    assert not (out / "tasks/mnli/shared").exists()
    assert not (out / "inspect/shared.json").exists()


def test_a_fine_tuning_that_diverges_ends_nothing_else(whole, arguments, command, tiny, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    shutil.rmtree(out / "tasks")
    wild = tmp_path / "wild.yaml"
    recipe = yaml.safe_load((tiny.folder / "finetuning.yaml").read_text())
    recipe["optimizer"]["learning_rates"] = [1e30]
    wild.write_text(yaml.safe_dump(recipe))
    result = command(*arguments, out, "--only", "finetuning", "--set", f"finetuning.recipe={wild}")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(SAID) == 8
    assert SAID in read(out / "tasks/mnli/shared/seed-2/record.json")["diverged"]
    again = command(*arguments, out, "--only", "finetuning", "--set", f"finetuning.recipe={wild}")
    assert "Everything is finished" in again.stderr


def test_ablate_goes_on_without_it_and_needs_its_reference(tiny, variants, command, tmp_path, whole):
    given = ["ablate", tiny.folder / "pretraining.yaml", "--data", whole[0] / "blocks", "--workers", "1"]
    given += ["--set", "training.log_every=1"]
    result = command(*given, "--variants", variants, "--out", tmp_path / "one")
    assert result.returncode == 0, result.stderr
    assert f"wild/seed-1 diverged: {SAID}" in result.stdout
    names = [one["name"] for one in read(tmp_path / "one/variants.json")["variants"]]
    assert names == ["standard", "narrow", "shared"]
    other = tmp_path / "other.yaml"
    other.write_text(variants.read_text().replace("reference: standard", "reference: wild"))
    result = command(*given, "--variants", other, "--out", tmp_path / "one")
    assert result.returncode == 2
    assert "the reference 'wild' diverged" in result.stderr.splitlines()[-1]
