"""Where a model is: folders of runs and models, names on the hub, and what is missing there."""

import json
import shutil

import pytest

from triune import TriuneForMaskedLM, operators
from triune.errors import TriuneError
from triune.models.locate import locate_model
from triune.testing import small_config, small_model


@pytest.fixture
def folder(samples, tmp_path):
    return shutil.copytree(samples.shared, tmp_path / "mine")


def refused(name, *words):
    with pytest.raises(TriuneError) as caught:
        locate_model(str(name))
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    for word in words:
        assert str(word) in message, message


def test_a_model_folder(folder):
    found = locate_model(str(folder))
    assert found.path == str(folder)
    assert found.config.operator == "shared"


def test_a_run_folder_holds_the_model_in_model(folder, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    folder.rename(run / "model")
    assert locate_model(str(run)).path == str(run / "model")
    assert locate_model(str(run)) == locate_model(str(run / "model"))


def test_the_home_folder_is_found(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert locate_model("~/mine").path == str(folder)


def test_the_checksum_is_of_the_weights(folder, samples):
    before = locate_model(str(folder))
    assert before.sha256 == locate_model(str(samples.shared)).sha256
    assert before.sha256 != locate_model(str(samples.standard)).sha256
    model = TriuneForMaskedLM.from_pretrained(folder)
    model.bert.embeddings.word_embeddings.weight.data[7, 3] += 1
    model.save_pretrained(folder)
    assert locate_model(str(folder)).sha256 != before.sha256


def test_with_an_edited_operator_the_same_weights_are_another_model(folder, monkeypatch):
    before = locate_model(str(folder))
    monkeypatch.setattr(operators.get("shared"), "source_sha256", "one")
    one = locate_model(str(folder))
    monkeypatch.setattr(operators.get("shared"), "source_sha256", "two")
    assert len({before.sha256, one.sha256, locate_model(str(folder)).sha256}) == 3


def test_weights_in_shards(tmp_path):
    model = small_model("shared")
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    before = locate_model(str(tmp_path)).sha256
    whole = shards[-1].read_bytes()
    shards[-1].write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert locate_model(str(tmp_path)).sha256 != before
    shards[-1].write_bytes(whole[:-1])
    refused(tmp_path, shards[-1], "damaged or incomplete")


def test_a_published_bert_is_standard(tmp_path):
    config = small_config("standard")
    TriuneForMaskedLM(config).save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    for key in ("operator", "operator_settings", "norm_position", "position", "classifier_pooling", "folded"):
        written.pop(key)
    (tmp_path / "config.json").write_text(json.dumps(written | {"model_type": "bert"}))
    assert locate_model(str(tmp_path)).config.operator == "standard"


def test_a_folder_without_a_model(tmp_path):
    refused(tmp_path, tmp_path, "neither config.json nor model/config.json is there")


def test_a_folder_that_is_not_there(tmp_path):
    refused(tmp_path / "nowhere", "there is no model folder", tmp_path / "nowhere")
    refused("./nowhere", "there is no model folder './nowhere'")


def test_a_file_is_no_folder(folder):
    refused(folder / "config.json", "config.json' is a file: give the folder that holds the model")


@pytest.mark.parametrize("name", ["nobody/nothing", "nothing-of-this-name"])
def test_a_hub_name_that_cannot_be_had_offline(name):
    refused(name, f"there is no folder '{name}' here, and cannot load '{name}' from the hub")


def test_weights_that_are_missing(folder):
    (folder / "model.safetensors").unlink()
    refused(folder, folder, "has no model.safetensors")


def test_a_configuration_that_is_no_json(folder):
    (folder / "config.json").write_text("{")
    refused(folder, folder)


@pytest.mark.parametrize("change", [{"operator": "unknown"}, {"num_attention_heads": 3}, {"model_type": "gpt2"}])
def test_a_configuration_that_no_model_can_have(change, folder):
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(written | change))
    refused(folder, f"the configuration in '{folder}'")
