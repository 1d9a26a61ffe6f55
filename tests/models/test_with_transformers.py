"""What people do with models of transformers beside training them: wrap, subclass, look at them without weights."""

import json

import pytest
import torch
from transformers import AutoModelForTextEncoding, AutoTokenizer, BertTokenizer

import triune
from triune import TriuneConfig, TriuneError, TriuneForSequenceClassification, TriuneModel, TriunePreTrainedModel

SMALL = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 16,
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "matrix", "three", "roles"]


def config(operator="shared", **other):
    return TriuneConfig(operator=operator, **SMALL, **other)


class Wrapped(torch.nn.Linear):
    """As adapters are: more than its weight."""

    def forward(self, x):
        return super().forward(x) + 1.0


@pytest.mark.parametrize("how", ["computed weight", "another class", "hook"])
@pytest.mark.parametrize("operator", ["shared", "rolled"])
def test_fold_refuses_what_it_cannot_merge_into(operator, how):
    model = TriuneForSequenceClassification(config(operator)).eval()
    output = model.bert.encoder.layer[1].attention.output
    if how == "computed weight":
        torch.nn.utils.parametrizations.weight_norm(output.dense)
    elif how == "hook":
        output.dense.register_forward_hook(lambda module, given, result: result * 2)
    else:
        output.dense = Wrapped(32, 32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(TriuneError, match="not a plain Linear here: merge adapters first") as caught:
        model.fold()
    assert "\n" not in str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_fold_has_nothing_to_merge_in_standard_attention():
    model = TriuneModel(config("standard")).eval()
    model.encoder.layer[0].attention.output.dense = Wrapped(32, 32)
    tokens = torch.arange(12)[None]
    assert torch.equal(model.fold()(tokens)[0], model(tokens)[0])


def test_decay_is_on_matrices_only():
    model = TriuneModel(config())
    model.embeddings.requires_grad_(False)
    decayed, others = triune.parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    in_decay, in_others = ({names[id(one)] for one in group["params"]} for group in (decayed, others))
    assert in_decay | in_others == {name for name in names.values() if not name.startswith("embeddings.")}
    assert all(name.endswith("weight") and "LayerNorm" not in name for name in in_decay)
    for vector in ("query_scale", "key_scale", "value_scale"):
        assert f"encoder.layer.0.attention.self.{vector}" in in_others
    torch.optim.AdamW([decayed, others])


def test_a_folder_with_a_vocabulary_alone_has_a_tokenizer(tmp_path):
    config().save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("one matrix")["input_ids"] == [2, 5, 6, 3]
    assert tokenizer.mask_token == "[MASK]"


def test_a_tokenizer_without_its_settings_knows_the_mask(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path / "model")
    config().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").unlink()
    assert AutoTokenizer.from_pretrained(tmp_path / "model").mask_token_id == 4


def test_another_kind_of_tokenizer_stays_what_it_is(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path)
    config().save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)("three roles")["input_ids"] == [7, 8]


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "triune"])
@pytest.mark.parametrize("operator", ["standard", "shared"])
def test_shapes_can_be_had_without_weights(operator, implementation):
    with torch.device("meta"):
        model = TriuneModel(config(operator, attn_implementation=implementation))
    states = model(torch.ones(2, 5, dtype=torch.long, device="meta"))[0]
    assert (states.shape, states.device.type) == ((2, 5, 32), "meta")


class Own(TriunePreTrainedModel):
    """A model of a user's own, whose encoder is not called as BERT's is."""

    def __init__(self, config):
        super().__init__(config)
        self.backbone = TriuneModel(config)
        self.encoder_head = torch.nn.Linear(config.hidden_size, 3)
        self.post_init()

    def forward(self, tokens):
        return self.encoder_head(self.backbone(tokens)[0])


def test_a_model_of_ones_own_folds_and_says_what_runs():
    settings = {"role_start": "normal", "role_spread": 0.5}
    model, tokens = Own(config(operator_settings=settings)).eval(), torch.arange(12)[None]
    torch.testing.assert_close(model.fold()(tokens), model(tokens))
    assert (model.feed_forward_core.name, model.norm_core.name) == ("pytorch", "pytorch")


def test_a_model_of_ones_own_is_not_loaded_with_fresh_layers(tmp_path):
    Own(config()).save_pretrained(tmp_path)
    assert Own.from_pretrained(tmp_path).config.num_hidden_layers == 2
    with pytest.raises(TriuneError, match=r"it lacks backbone\.encoder\.layer\.2\."):
        Own.from_pretrained(tmp_path, num_hidden_layers=3)


def test_a_head_of_ones_own_may_be_fresh(tmp_path):
    Own(config()).save_pretrained(tmp_path)
    from safetensors.torch import load_file, save_file

    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("encoder_head")}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert Own.from_pretrained(tmp_path).encoder_head.out_features == 3


def test_a_mask_of_whole_numbers_over_pairs_is_refused():
    model = TriuneModel(config(attn_implementation="eager"))
    with pytest.raises(TriuneError, match=r"of booleans or is added to the scores, not of torch\.int64"):
        model(torch.ones(2, 5, dtype=torch.long), attention_mask=torch.ones(2, 1, 5, 5, dtype=torch.long))


def test_a_checkpoint_that_is_not_there_is_an_error_of_both_kinds(tmp_path):
    (tmp_path / "empty").mkdir()
    for name, said in (("nothing", "there is no model folder"), ("empty", "cannot load .*pickled weights")):
        with pytest.raises(OSError, match=said) as caught:
            TriuneModel.from_pretrained(tmp_path / name, config=config())
        assert isinstance(caught.value, TriuneError)
        assert "\n" not in str(caught.value)


def test_encoders_of_text_are_found(tmp_path):
    TriuneModel(config()).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "triune"
    assert isinstance(AutoModelForTextEncoding.from_pretrained(tmp_path), TriuneModel)
