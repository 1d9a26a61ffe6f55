"""`triune publish`: a pre-training run becomes a model that others can use, with a card that says what it is."""

import json
import shutil
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file

import triune
from tests.samples import sets
from tests.training.conftest import TINY
from triune import TriuneConfig, TriuneForMaskedLM
from triune.data.prepare import prepare
from triune.data.tokenizer import load_tokenizer
from triune.models.pretrained import VARIABLE
from triune.operators import registry
from triune.training.pretrain import pretrain
from triune.training.recipe import load_recipe

TEXT = "made-up reviews: yes & 'no' <script>alert(1)</script> [x](javascript:alert(2))"
SAID = ["--text", TEXT, "--licence", "apache-2.0", "--text-licence", "CC0: public domain"]
SHORT = ["data.block_length=32", "training.steps=3", "training.evaluate_every=3", "training.checkpoint_every=3"]


@pytest.fixture(scope="module")
def data(samples, tmp_path_factory):
    """The words of the samples, held out where they are trained on: loss does not matter here."""
    text, folder = samples.tokenizer.parent / "text.txt", tmp_path_factory.mktemp("data") / "blocks"
    prepare(text, samples.tokenizer, folder, 32, valid_sources=text, workers=1)
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "shared"
    pretrain(load_recipe("pocket", [*TINY, *SHORT]), data, folder)
    return folder


@pytest.fixture(scope="module")
def models(run, data, command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    done = command("publish", run, folder / "mini-shared", "--data", data, *SAID)
    assert done.returncode == 0, done.stderr
    size = (folder / "mini-shared" / "model.safetensors").stat().st_size
    assert done.stdout.strip() == f"written: {folder / 'mini-shared'}, weights of {size:,} bytes"
    return folder


@pytest.fixture
def copied(models, tmp_path):
    return shutil.copytree(models / "mini-shared", tmp_path / "mini-shared")


def card_of(folder):
    header, body = (folder / "README.md").read_text(encoding="utf-8").removeprefix("---\n").split("\n---\n", 1)
    return yaml.safe_load(header), body


def test_weights_are_the_runs_in_bfloat16_and_each_once(run, models):
    published, trained = (load_file(one / "model.safetensors") for one in (models / "mini-shared", run / "model"))
    assert published.keys() == trained.keys()
    assert "cls.predictions.decoder.weight" not in published  # it is the table of embeddings
    assert not any("pooler" in name for name in published)  # nothing has trained it
    for name, tensor in published.items():
        assert torch.equal(tensor, trained[name].to(torch.bfloat16)), name
    assert TriuneForMaskedLM.from_pretrained(models / "mini-shared").dtype == torch.bfloat16


def test_only_what_belongs_to_a_model_is_written(run, models):
    names = {path.name for path in (models / "mini-shared").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"} == names
    assert [path.name for path in models.iterdir()] == ["mini-shared"]
    for folder in (run / "model", models / "mini-shared"):
        assert len({path.stat().st_mode for path in folder.iterdir()}) == 1  # all may read what one may
    assert json.loads((models / "mini-shared" / "tokenizer_config.json").read_text())["model_max_length"] == 32


def test_the_card_is_what_the_records_say(run, data, models):
    header, body = card_of(models / "mini-shared")
    assert header == {
        "license": "apache-2.0",
        "language": "en",
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["triune", "bert", "shared-attention"],
    }
    summary = json.loads((run / "summary.json").read_text())
    split = json.loads((data / "manifest.json").read_text())["splits"]["train"]
    assert f"masked-LM head: {summary['parameters']:,}." in body
    assert f"Vocabulary: {len(load_tokenizer(data / 'tokenizer')):,} word pieces." in body
    assert f"layer (`shared`): {16 * 16 + 16 + 3 * 16}." in body
    assert f"{3 * 8 * 32:,} tokens seen in 3 steps" in body
    assert f"Validation loss: {summary['validation_loss']:.3f} (seed 1)" in body
    assert f"Prepared, train: {split['documents']:,} documents, {split['tokens']:,} tokens." in body
    assert "Source, train: text.txt: 20 documents" in body
    assert "1 layers × 16, 2 heads, feed-forward 32" in body
    assert "learning rate 0.003 (linear)" in body
    assert f"version {triune.__version__}" in body
    assert "## Not for" in body
    assert str(data.parent) not in body  # nor any other folder of this machine


def test_what_is_said_is_text(models, run, command, tmp_path):
    _, body = card_of(models / "mini-shared")
    assert "&lt;script>alert(1)" in body
    assert "<script" not in body
    assert "](javascript" not in body
    said = ["--text", "words", "--licence", "other", "--text-licence", "none"]
    for given, written in (("no", "no"), ("de, gsw", ["de", "gsw"])):
        assert command("publish", run, tmp_path / "odd", *said, "--language", given).returncode == 0
        header, body = card_of(tmp_path / "odd")
        assert (header["license"], header["language"]) == ("other", written)
        assert f"Other languages than those of its text ({given})" in body


def test_the_formula_is_that_of_the_settings(run, command, tmp_path):
    """Of the model that was trained, not of the operator as it is without settings."""
    other = shutil.copytree(run, tmp_path / "run")
    settings = {"role_vectors": "joint"}
    config = TriuneConfig.from_pretrained(run / "model", operator_settings=settings)
    TriuneForMaskedLM(config).save_pretrained(other / "model")
    about = json.loads((other / "run.json").read_text())
    about["recipe"]["model"]["operator_settings"] = settings
    (other / "run.json").write_text(json.dumps(about))
    done = command("publish", other, tmp_path / "two-roles", *SAID)
    assert done.returncode == 0, done.stderr
    assert "in a layer of width d: d² + 2d." in card_of(tmp_path / "two-roles")[1]


def code_of(folder):
    return card_of(folder)[1].split("```python\n")[1].split("```")[0]


def test_the_example_of_the_card_runs_on_a_copied_folder(copied, monkeypatch, capsys):
    """By the path; with the folder among Triune's models by the name, too."""
    monkeypatch.chdir(copied.parent)
    exec(code_of(copied), {})
    assert capsys.readouterr().out.strip()
    _, body = card_of(copied)
    assert "`pip install -e .`" in body
    assert "--plugin" not in body  # the operator comes with Triune
    monkeypatch.setenv(VARIABLE, str(copied.parent))
    assert '`triune.pretrained("mini-shared")`' in body
    assert triune.pretrained("mini-shared") == str(copied)


def test_the_card_says_what_an_operator_of_ones_own_needs(data, command, tmp_path, monkeypatch, capsys):
    from tests.test_documentation import python_blocks

    (tmp_path / "my_operator.py").write_text(python_blocks("CONTRIBUTING.md")[0])
    sys.modules.pop("my_operator", None)  # of another test
    plugin = ["--plugin", tmp_path / "my_operator.py"]
    sizes = [part for one in (*TINY, *SHORT) for part in ("--set", one)]
    try:
        run = ["pretrain", "pocket", "--data", data, "--out", tmp_path / "run", "--operator", "shifted", *sizes]
        done = command(*plugin, *run)
        assert done.returncode == 0, done.stderr
        done = command(*plugin, "publish", tmp_path / "run", tmp_path / "mine", *SAID)
        assert done.returncode == 0, done.stderr
        assert "`shifted` does not come with Triune" in card_of(tmp_path / "mine")[1]
        registry._OPERATORS.pop("shifted")  # as for somebody who has the folder and the file
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.chdir(tmp_path)
        exec(code_of(tmp_path / "mine"), {})
        assert capsys.readouterr().out.strip()
    finally:
        registry._OPERATORS.pop("shifted", None)
        registry._plugins.clear()
        sys.modules.pop("my_operator", None)


@pytest.mark.parametrize("start", ["published", "run"])
def test_scores_are_those_of_this_model(start, samples, models, run, command, tmp_path, monkeypatch):
    """Fine-tuned from the published weights or from the run's; records of other models are left out."""
    monkeypatch.setenv(VARIABLE, str(models))
    data = ["--task", "rte", "--data-dir", samples.data, "--workers", "1", "--keep", "none"]
    given = [f"mine={run if start == 'run' else 'mini-shared'}", f"other={samples.standard}"]
    done = command("finetune", *given, *data, "--seeds", "2", "--out", tmp_path / "scores", *sets())
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "models" / "mini-shared"
    done = command("publish", run, folder, *SAID, "--scores", tmp_path / "scores")
    assert done.returncode == 0, done.stderr
    header, body = card_of(folder)
    records = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("scores/rte/mine/seed-*/record.json"))]
    first, second = (record["primary"] for record in records)
    mean, spread = (first + second) / 2, abs(first - second) / 2**0.5
    assert f"| RTE (subset) | accuracy | {mean:.2f} ± {spread:.2f} (2) | 12 |" in body
    assert "RTE: 32 training rows from glue/rte/train.parquet, 12 development rows" in body
    assert body.count("| RTE") == 1
    (result,) = header["model-index"][0]["results"]
    assert header["model-index"][0]["name"] == "mini-shared"
    assert result["metrics"][0]["value"] == round(mean, 2)
    assert result["dataset"]["name"] == "RTE (subset)"
    shutil.rmtree(tmp_path / "scores" / "rte" / "mine")
    done = command("publish", run, folder, *SAID, "--scores", tmp_path / "scores")
    assert done.returncode == 2
    assert "no record of a fine-tuning of this model" in done.stderr
    assert card_of(folder)[1] == body  # what was there stays


def test_scores_on_pocket_data_and_on_first_rows_say_so(samples, run, command, tmp_path):
    pocket = shutil.copytree(samples.data, tmp_path / "pocket")
    (pocket / "pocket.json").write_text("{}")
    for task, rows in (("rte", "null"), ("mrpc", "16"), ("squad-v1.1", "16")):
        data = ["--task", task, "--data-dir", pocket, "--workers", "1", "--keep", "none"]
        done = command("finetune", run, *data, "--out", tmp_path / "scores", *sets(f"data.rows={rows}"))
        assert done.returncode == 0, done.stderr
    done = command("publish", run, tmp_path / "mini-shared", *SAID, "--scores", tmp_path / "scores")
    assert done.returncode == 0, done.stderr
    header, body = card_of(tmp_path / "mini-shared")
    names = ["MRPC (pocket, subset)", "RTE (pocket)", "SQuAD v1.1 (pocket, subset)"]
    assert [line.split(" | ")[0] for line in body.splitlines() if line.startswith(("| MR", "| RT", "| SQ"))] == [
        f"| {name}" for name in names
    ]
    results = header["model-index"][0]["results"]
    assert [one["dataset"]["name"] for one in results] == names
    assert {one["dataset"]["type"] for one in results} == {"pocket"}
    assert "SQuAD v1.1: 16 training rows" in body
    assert "Real text: its scores are on a made-up world and say nothing of it." in body


def test_a_model_of_pocket_text_says_so_without_scores_too(models, samples, command, tmp_path):
    assert "Real text" not in card_of(models / "mini-shared")[1]
    (tmp_path / "pocket" / "corpus").mkdir(parents=True)
    (tmp_path / "pocket" / "pocket.json").write_text("{}")
    text = shutil.copy(samples.tokenizer.parent / "text.txt", tmp_path / "pocket" / "corpus" / "pocket-00.txt")
    prepare(text, samples.tokenizer, tmp_path / "blocks", 32, valid_sources=text, workers=1)
    pretrain(load_recipe("pocket", [*TINY, *SHORT]), tmp_path / "blocks", tmp_path / "run")
    assert command("publish", tmp_path / "run", tmp_path / "made-up", *SAID).returncode == 0
    assert "Real text: it was pre-trained on a made-up world and knows no other." in card_of(tmp_path / "made-up")[1]


def test_a_published_model_is_replaced_whole(copied, run, command):
    (copied / "vocab.txt").write_text("of the model before\n")
    done = command("publish", run, copied, *SAID[:-1], "another")
    assert done.returncode == 0, done.stderr
    assert "Licence of the text: another" in card_of(copied)[1]
    assert not (copied / "vocab.txt").exists()
    assert [path.name for path in copied.parent.iterdir()] == ["mini-shared"]


def test_somebody_elses_folder_stays(copied, run, command, tmp_path):
    (copied / "thesis.txt").write_text("years of work")
    card = tmp_path / "by-hand"
    shutil.copytree(copied, card, ignore=shutil.ignore_patterns("thesis.txt"))
    (card / "README.md").write_text("my own words")
    (tmp_path / "file").touch()
    for folder, says in ((copied, "something else"), (card, "something else"), (tmp_path / "file", "not a folder")):
        done = command("publish", run, folder, *SAID)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert says in done.stderr
    assert (copied / "thesis.txt").read_text() == "years of work"
    assert (card / "README.md").read_text() == "my own words"
    (tmp_path / "empty").mkdir()
    assert command("publish", run, tmp_path / "empty", *SAID).returncode == 0


def test_mistakes_are_one_line(run, data, command, tmp_path):
    unfinished, lost, diverged = (shutil.copytree(run, tmp_path / name) for name in ("unfinished", "lost", "diverged"))
    (unfinished / "summary.json").unlink()
    (lost / "model" / "model.safetensors").unlink()
    (diverged / "summary.json").write_text('{"diverged": "the loss is not a finite number at step 2"}')
    other = shutil.copytree(data, tmp_path / "other")
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["files"]["train.tokens.bin"]["sha256"] = "0"
    (other / "manifest.json").write_text(json.dumps(manifest))
    for arguments, says in (
        ([unfinished, *SAID], "not a finished run"),
        ([tmp_path / "nowhere", *SAID], "not a finished run"),
        ([lost, *SAID], "has lost its weights"),
        ([diverged, *SAID], "no model to publish: the loss is not a finite number"),
        ([run, *SAID, "--data", other], "was not trained on"),
        ([run, *SAID, "--data", tmp_path], "is not a prepared folder"),
        ([run, *SAID, "--data", data / "manifest.json"], "is not a prepared folder"),
        ([run, *SAID, "--scores", tmp_path / "nowhere"], "is not a folder"),
        ([run, *SAID[2:], "--text", " "], "--text must be one line"),
        ([run, *SAID[2:], "--text", "two\nlines"], "--text must be one line"),
        ([run, *SAID[2:]], "--text"),
        ([run, *SAID, "--licence", "foo: bar"], "--licence 'foo: bar' is no name of the hub's"),
        ([run, *SAID, "--licence", "Apache-2.0"], "give one as apache-2.0"),
        ([run, *SAID, "--language", "English"], "--language 'English' is no code"),
        ([run, *SAID, "--language", "en,,de"], "--language '' is no code"),
    ):
        done = command("publish", arguments[0], tmp_path / "out", *arguments[1:])
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert says in done.stderr
    assert not list(tmp_path.glob("*out*"))


def test_the_first_minute_of_the_documentation(models, monkeypatch, capsys):
    from tests.test_documentation import python_blocks

    monkeypatch.setenv(VARIABLE, str(models))
    for code in python_blocks("docs/models.md"):
        exec(code, {})
    assert "mini-shared" in capsys.readouterr().out
