"""Models that come with the repository: where they are looked for, and what takes them by name."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import pipeline

import triune
from tests.samples import sets
from triune import TriuneError, TriuneForMaskedLM
from triune.evaluation.finetuned import find_finetuned
from triune.models import pretrained as place
from triune.models.locate import locate_model

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout without models, and nothing in the environment."""
    monkeypatch.delenv(place.VARIABLE, raising=False)
    monkeypatch.setattr(place, "CHECKOUT", tmp_path / "checkout")
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "pyproject.toml").touch()
    return tmp_path / "checkout"


@pytest.fixture(scope="module")
def half(samples, tmp_path_factory):
    """Weights as they are published: in bfloat16."""
    folder = tmp_path_factory.mktemp("half") / "mini-shared"
    TriuneForMaskedLM.from_pretrained(samples.shared, dtype=torch.bfloat16).save_pretrained(folder)
    for file in samples.tokenizer.iterdir():
        shutil.copy(file, folder)
    return folder


@pytest.fixture
def models(checkout, half, monkeypatch):
    """A folder of models that the environment names."""
    folder = checkout.parent / "mine"
    shutil.copytree(half, folder / "mini-shared")
    monkeypatch.setenv(place.VARIABLE, str(folder))
    return folder


def refused(name, *words):
    with pytest.raises(TriuneError) as caught:
        triune.pretrained(name)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_a_model_is_found_by_its_name(models):
    assert triune.pretrained("mini-shared") == str(models / "mini-shared")
    assert triune.pretrained_names() == ["mini-shared"]


def test_the_checkout_is_looked_into_after_the_environment(models, checkout, half):
    for name in ("mini-shared", "mini-standard"):
        shutil.copytree(half, checkout / "models" / name)
    assert triune.pretrained("mini-shared") == str(models / "mini-shared")
    assert triune.pretrained("mini-standard") == str(checkout / "models" / "mini-standard")
    assert triune.pretrained_names() == ["mini-shared", "mini-standard"]


def test_the_checkout_is_that_of_the_package():
    assert Path(triune.__file__).parent == ROOT / "src" / "triune"
    assert place.CHECKOUT == ROOT


def test_an_unknown_name_lists_those_there_are(models):
    (models / "notes").mkdir()
    (models / ".mini.partial").mkdir()
    (models / ".mini.partial" / "config.json").touch()
    refused("mini-sharde", "no model 'mini-sharde' (did you mean 'mini-shared'?): there are mini-shared")
    refused("../mine/mini-shared", "there are mini-shared")
    refused("notes", "there are mini-shared")


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_checkout_without_models_says_what_to_do(has_folder, checkout):
    if has_folder:
        (checkout / "models").mkdir()
    assert triune.pretrained_names() == []
    refused("mini-shared", f"there is none in '{checkout / 'models'}'", "git pull", "set TRIUNE_MODELS to a folder")


@pytest.mark.parametrize("is_checkout", [False, True])
def test_a_folder_of_ones_own_without_models_is_named(is_checkout, checkout, tmp_path, monkeypatch):
    if not is_checkout:
        (checkout / "pyproject.toml").unlink()
    monkeypatch.setenv(place.VARIABLE, str(tmp_path))
    refused("mini-shared", f"there is none in '{tmp_path}'", "git pull" if is_checkout else "clone the repository")


def test_a_folder_of_pythons_is_no_checkout(checkout, half):
    shutil.copytree(half, checkout / "models" / "mini-shared")
    (checkout / "pyproject.toml").unlink()
    refused("mini-shared", "an installed package carries none: clone the repository", "set TRIUNE_MODELS to a folder")


def test_a_variable_that_names_nothing(checkout, monkeypatch):
    monkeypatch.setenv(place.VARIABLE, str(checkout / "nowhere"))
    refused("mini-shared", "TRIUNE_MODELS names", "nowhere", "not a folder")


def test_the_name_is_resolved_without_heavy_imports(models):
    code = "import sys, triune; triune.pretrained('mini-shared'); print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_a_local_folder_wins_and_then_the_repository(models, samples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert locate_model("mini-shared").path == str(models / "mini-shared")
    shutil.copytree(samples.standard, tmp_path / "mini-shared")
    found = locate_model("mini-shared")
    assert (found.path, found.config.operator) == ("mini-shared", "standard")


def test_a_name_that_nobody_has_is_one_line(models):
    with pytest.raises(TriuneError) as caught:
        locate_model("mini-sharde")
    assert "did you mean 'mini-shared'?" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_is_a_text(models):
    with pytest.raises(TriuneError, match="the name of a model is a text, not None"):
        triune.pretrained(None)


def test_the_pipeline_fills_masks_on_a_cpu(models):
    fill = pipeline("fill-mask", triune.pretrained("mini-shared"), device="cpu")
    assert fill.model.dtype == torch.bfloat16
    guesses = fill("the [MASK] was good")
    assert len(guesses) == 5
    assert all(0 < one["score"] < 1 for one in guesses)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_ones_own_table_by_the_models_name(precision, models, samples, command, tmp_path):
    """Weights in half precision are trained in float32, or the steps of the optimiser would be lost in rounding."""
    files = ["--train", samples.train, "--dev", samples.dev, "--text", "text", "--label", "label"]
    out = ["--out", tmp_path / "out", "--workers", "1", *sets(f"training.precision={precision}")]
    done = command("finetune", "mini-shared", *files, *out)
    assert done.returncode == 0, done.stderr
    seed = tmp_path / "out" / "own" / "shared" / "seed-1"
    kept = load_file(seed / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in kept.values()} == {torch.float32}
    answer = command("predict", seed, stdin="the film was great\n")
    assert json.loads(answer.stdout)["label"] in ("good", "bad"), answer.stderr


def test_inspect_takes_the_name(models, command):
    done = command("inspect", "mini-shared", "--text", "the cat was good")
    assert done.returncode == 0, done.stderr
    assert "shared" in done.stdout


def test_a_fine_tuned_model_is_found_by_its_name(models, samples, command, tmp_path):
    files = ["--train", samples.train, "--dev", samples.dev, "--text", "text", "--label", "label"]
    done = command("finetune", "mini-shared", *files, "--out", tmp_path / "out", "--workers", "1", *sets())
    assert done.returncode == 0, done.stderr
    shutil.copytree(tmp_path / "out" / "own" / "shared" / "seed-1" / "model", models / "reviews")
    (found,) = find_finetuned(["reviews"])
    assert (found.path, found.task) == (str(models / "reviews"), "own")
    noise = ["--dev", samples.dev, "--text", "text", "--label", "label", "--kinds", "gaussian", "--draws", "1"]
    done = command("noise", "reviews", *noise, "--levels", "10", "--out", tmp_path / "noise", "--workers", "1")
    assert done.returncode == 0, done.stderr


def test_models_stay_out_of_the_wheel():
    """What hatchling takes into a wheel is the package and what is named besides it."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert set(build) == {"targets"}
    wheel = build["targets"]["wheel"]
    assert set(wheel) == {"packages", "force-include"}
    for taken in (*wheel["packages"], *wheel["force-include"]):
        assert not (ROOT / place.FOLDER).is_relative_to(ROOT / taken), taken
        assert not (ROOT / taken).is_relative_to(ROOT / place.FOLDER), taken
    assert place.FOLDER not in build["targets"]["sdist"]["include"]
