"""`operator="standard"` is transformers' BERT: same keys, same outputs, checkpoints of every vintage."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import triune
from triune import TriuneConfig

SMALL = {
    "vocab_size": 67,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
}
HEADS = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForQuestionAnswering", "ForTokenClassification"]


@pytest.fixture
def inputs():
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[1, 5:] = 0
    types = torch.zeros(3, 9, dtype=torch.long)
    types[:, 4:] = 1
    return {"input_ids": torch.randint(0, 67, (3, 9)), "attention_mask": mask, "token_type_ids": types}


def bert(head, **overrides):
    model = getattr(transformers, f"Bert{head}")(transformers.BertConfig(**{**SMALL, **overrides})).eval()
    with torch.no_grad():  # LayerNorms and biases start at constants, which would hide a mix-up
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def assert_same(ours, theirs, inputs):
    with torch.no_grad():
        for one, other in zip(ours(**inputs).to_tuple(), theirs(**inputs).to_tuple(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("head", HEADS)
def test_loads_a_bert_checkpoint(head, implementation, inputs, tmp_path):
    theirs = bert(head)
    theirs.save_pretrained(tmp_path)
    ours = getattr(triune, f"Triune{head}").from_pretrained(tmp_path, attn_implementation=implementation)
    assert ours.config.operator == "standard"
    assert set(ours.state_dict()) == set(theirs.state_dict())
    theirs.set_attn_implementation(implementation)
    assert_same(ours, theirs, inputs)


def test_multiple_choice(tmp_path):
    theirs = bert("ForMultipleChoice")
    theirs.save_pretrained(tmp_path)
    ours = triune.TriuneForMultipleChoice.from_pretrained(tmp_path, operator="standard")
    assert_same(ours, theirs, {"input_ids": torch.randint(0, 67, (2, 3, 7)), "labels": torch.tensor([0, 2])})


def rewritten(folder, rename):
    """The checkpoint with other key names, as older tools wrote them."""
    weights = load_file(folder / "model.safetensors")
    renamed = {new: weights[old].clone() for old in weights if (new := rename(old))}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    "rename",
    [
        lambda key: key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"),
        lambda key: key.removeprefix("bert."),
    ],
    ids=["gamma-beta", "no-prefix"],
)
def test_loads_old_names(rename, inputs, tmp_path):
    theirs = bert("ForMaskedLM")
    theirs.save_pretrained(tmp_path)
    rewritten(tmp_path, rename)
    ours = triune.TriuneForMaskedLM.from_pretrained(tmp_path)
    assert_same(ours.bert, theirs.bert, inputs)


def test_loads_a_pretraining_checkpoint_with_its_extra_head(inputs, tmp_path):
    theirs = bert("ForPreTraining")
    theirs.save_pretrained(tmp_path)
    ours = triune.TriuneForMaskedLM.from_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(ours(**inputs).logits, theirs(**inputs).prediction_logits, rtol=1e-5, atol=1e-5)


def test_loads_a_headless_checkpoint_under_a_prefix(inputs, tmp_path):
    theirs = bert("Model")
    theirs.save_pretrained(tmp_path)
    ours = triune.TriuneForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    assert ours.classifier.out_features == 3
    assert_same(ours.bert, theirs, inputs)


def test_loads_an_old_configuration(tmp_path, inputs):
    """Keys that BERT has dropped since, and no model_type-specific additions."""
    theirs = bert("Model")
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config.update(position_embedding_type="absolute", directionality="bidi", gradient_checkpointing=False)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert_same(triune.TriuneModel.from_pretrained(tmp_path), theirs, inputs)


def test_bert_configuration_becomes_ours(tmp_path):
    transformers.BertConfig(**SMALL).save_pretrained(tmp_path)
    assert TriuneConfig.from_pretrained(tmp_path).operator == "standard"
    assert TriuneConfig.from_pretrained(tmp_path, operator="shared").operator_settings["role_start"] == "halves"
    assert TriuneConfig(**SMALL).operator == "shared"


def test_configuration_without_a_model_type_is_an_old_bert(tmp_path, inputs):
    theirs = bert("Model")
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert_same(triune.TriuneModel.from_pretrained(pretrained_model_name_or_path=tmp_path), theirs, inputs)


def test_a_bert_configuration_object_will_do(tmp_path, inputs):
    theirs = bert("ForMaskedLM")
    theirs.save_pretrained(tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert_same(triune.TriuneForMaskedLM.from_pretrained(tmp_path, config=config), theirs, inputs)
    assert triune.TriuneModel(config).config.operator == "standard"


def test_goes_back_to_bert(inputs, tmp_path):
    """A standard model saved by us is a BERT checkpoint but for the configuration's type."""
    ours = triune.TriuneForMaskedLM(TriuneConfig(operator="standard", **SMALL)).eval()
    ours.save_pretrained(tmp_path)
    transformers.BertConfig(**SMALL).save_pretrained(tmp_path)
    assert_same(ours, transformers.BertForMaskedLM.from_pretrained(tmp_path).eval(), inputs)


@pytest.mark.parametrize("attention_dropout", [0.0, 0.1])
def test_training_step_is_berts(attention_dropout, inputs):
    """Same dropout draws, same loss, same gradients."""
    overrides = {"attention_probs_dropout_prob": attention_dropout}
    theirs = bert("ForMaskedLM", **overrides).train()
    ours = triune.TriuneForMaskedLM(TriuneConfig(operator="standard", **SMALL, **overrides)).train()
    ours.load_state_dict(theirs.state_dict())
    for model in (ours, theirs):
        torch.manual_seed(5)
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
    for (name, one), (_, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6, msg=name)


def test_a_bert_is_loaded_without_a_warning_and_another_is_refused(tmp_path, monkeypatch):
    """transformers would say that it may yield errors: what is loaded is the same model."""
    heard = []
    monkeypatch.setattr(transformers.configuration_utils.logger, "warning", heard.append)
    bert("ForMaskedLM").save_pretrained(tmp_path)
    triune.TriuneForMaskedLM.from_pretrained(tmp_path)
    assert heard == []
    described = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(described | {"model_type": "electra"}))
    with pytest.raises(triune.TriuneError, match="model type 'electra' is not one of BERT"):
        TriuneConfig.from_pretrained(tmp_path)
    assert "You are using a model of type `electra`" in heard[0]
