"""A user's mistakes: one clear line each, that says what was wrong and what to do."""

import json

import pytest
import torch
import transformers

import triune
from triune import TriuneConfig, TriuneError
from triune.testing import small_config, small_model


def message(*says):
    """A context that expects one line with all of these in it."""

    class Expect:
        def __enter__(self):
            self.inner = pytest.raises(TriuneError)
            self.caught = self.inner.__enter__()

        def __exit__(self, *exception):
            assert self.inner.__exit__(*exception)
            text = str(self.caught.value)
            assert "\n" not in text
            for part in says:
                assert part in text, text
            return True

    return Expect()


def test_width_not_divisible_by_heads():
    with message("hidden_size 30", "num_attention_heads 4"):
        small_config("shared", hidden_size=30)


def test_rotary_needs_even_heads():
    with message("heads are 3 wide", "even"):
        small_config("shared", hidden_size=12, position="rotary")


@pytest.mark.parametrize("name", ["role_start", "query_roll", "settings"])
def test_settings_of_an_operator_are_not_values_of_the_configuration(name):
    """They would be ignored: BERT's configurations may hold anything."""
    with message(f"'{name}' is about the operator", "write operator_settings={"):
        TriuneConfig(**{name: "halves"})


def test_decoders_are_refused():
    with message("encoders", "is_decoder"):
        small_config("shared", is_decoder=True)


def test_a_dictionary_of_berts_is_sent_to_where_its_operator_is_known():
    described = transformers.BertConfig(num_hidden_layers=1).to_dict()
    with message("a BERT's configuration is taken by TriuneConfig.from_dict"):
        TriuneConfig(**described)
    assert TriuneConfig.from_dict(described).operator == "standard"
    assert TriuneConfig.from_dict(described, operator="shared").operator == "shared"


def test_an_unknown_attention_is_told_ours_too():
    with message("unknown attn_implementation 'spda' (did you mean 'sdpa'?)", "triune", "one_tensor"):
        small_model("shared", attn_implementation="spda")


def test_relative_positions_are_refused(tmp_path):
    """Such a BERT would load and compute something else."""
    transformers.BertConfig(position_embedding_type="relative_key").save_pretrained(tmp_path)
    with message("relative_key", "'absolute' or 'rotary'"):
        TriuneConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"num_attention_heads": 3}, "not divisible"),
        ({"is_decoder": True}, "encoders"),
        ({"position": "rotary", "num_attention_heads": 32}, "1 wide"),
        ({"num_attention_heads": 0}, "at least 1"),
        ({"hidden_size": -64}, "at least 1"),
        ({"hidden_act": "nope"}, "unknown hidden_act 'nope'"),
        ({"rotary_base": 0}, "must be positive"),
        ({"norm_position": "mid"}, "norm_position"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"operator": None}, "operator"),
        ({"opertor": "standard"}, "did you mean 'operator'?"),
        ({"model_type": "gpt2"}, "model type 'gpt2'"),
        ({"hidden_dropout_prob": 1.5}, "hidden_dropout_prob is a share from 0 up to 1, not 1.5"),
        ({"classifier_dropout": -0.1}, "classifier_dropout is a share from 0 up to 1, not -0.1"),
        ({"pad_token_id": 67}, "pad_token_id 67 is not in a vocabulary of 67"),
    ],
)
def test_values_that_make_no_model(overrides, says, tmp_path):
    with message(says):
        small_config(**{"operator": "shared", **overrides})
    small_config("shared").save_pretrained(tmp_path)
    if "opertor" not in overrides and "model_type" not in overrides:
        with message(says):
            TriuneConfig.from_pretrained(tmp_path, **overrides)


def test_an_edited_configuration_is_checked_again():
    config = small_config("shared")
    config.num_attention_heads = 3
    with message("not divisible"):
        triune.TriuneModel(config)
    config = small_config("shared")
    config.operator = "standard"
    with message("config.operator_settings = None"):
        triune.TriuneModel(config)
    config.operator_settings = None
    config.check()
    config = small_config("shared")
    config.operator_settings["role_vectors"] = "none"  # beside the start that was written out
    with message("role_start='halves' has no vector to sign", "set role_start to 'ones'"):
        triune.TriuneModel(config)
    config.operator_settings["role_start"] = "ones"
    triune.TriuneModel(config)
    config = small_config("standard")
    assert triune.TriuneModel(config).encoder.layer[0].attention.self.key.out_features == 32


def test_another_kind_of_configuration():
    with message("not a GPT2Config"):
        triune.TriuneModel(transformers.GPT2Config())


def test_absolute_checkpoint_as_rotary(tmp_path):
    small_model("shared").save_pretrained(tmp_path)
    with message("absolute positions", "position='absolute'"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path, position="rotary")


def test_a_head_of_ones_own_may_be_fresh(tmp_path):
    class Mine(triune.TriuneForTokenClassification):
        def __init__(self, config):
            super().__init__(config)
            self.span_embeddings = torch.nn.Embedding(3, 32)
            self.post_init()

    small_model("shared").save_pretrained(tmp_path)
    assert Mine.from_pretrained(tmp_path).span_embeddings.weight.shape == (3, 32)


def test_ignoring_sizes_is_for_heads(tmp_path):
    small_model("shared").save_pretrained(tmp_path)
    with message("does not fit"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path, hidden_size=64, ignore_mismatched_sizes=True)


def test_input_too_long():
    with message("25 tokens", "takes 24", "truncate"):
        small_model("shared")(torch.zeros(1, 25, dtype=torch.long))


def test_mask_of_another_shape():
    with message("mask is (1, 11)", "input (2, 11)", "each token"):
        small_model("shared")(torch.zeros(2, 11, dtype=torch.long), torch.ones(1, 11))


def test_checkpoint_of_another_operator(tmp_path):
    small_model("symmetric").save_pretrained(tmp_path)
    with message(str(tmp_path), "holds the operator 'symmetric'", "asks for 'shared'", "operator='symmetric'"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path, operator="shared")


def test_bert_checkpoint_as_shared(tmp_path):
    config = transformers.BertConfig(
        vocab_size=67, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    with message("holds the operator 'standard'", "asks for 'shared'"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path, operator="shared")


@pytest.mark.parametrize(
    ("saved", "asked"), [("shared", "qkv-tied"), ("qkv-tied", "shared"), ("symmetric", "pairwise")]
)
def test_operators_that_share_key_names(saved, asked, tmp_path):
    small_model(saved).save_pretrained(tmp_path)
    with message(f"holds the operator '{saved}'", f"asks for '{asked}'"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path, operator=asked)


def test_checkpoint_with_other_settings(tmp_path):
    small_model("shared", operator_settings={"role_vectors": "value"}).save_pretrained(tmp_path)
    with message("attention weights shared, value_scale", "settings it was saved with"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path, operator_settings={"role_vectors": "joint"})


def test_checkpoint_of_default_settings_with_others(tmp_path):
    small_model("shared").save_pretrained(tmp_path)
    with message("saved with other settings of 'shared'", "not shared, value_scale", "leave operator_settings out"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path, operator_settings={"role_vectors": "value"})


def test_checkpoint_of_another_operator_with_heads_that_have_no_halves(tmp_path):
    small_model("standard", num_attention_heads=16).save_pretrained(tmp_path)
    with message("holds the operator 'standard'", "asks for 'symmetric'"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path, operator="symmetric")


def test_folded_checkpoint_as_unfolded(tmp_path):
    small_model("shared").fold().save_pretrained(tmp_path)
    with message("score_scale"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path, folded=False)


def test_checkpoint_of_another_norm_position(tmp_path):
    small_model("shared", norm_position="pre").save_pretrained(tmp_path)
    with message("does not fit", "norm"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path, norm_position="post")


def test_checkpoint_of_another_shape(tmp_path):
    small_model("shared").save_pretrained(tmp_path)
    with message("does not fit", "word_embeddings.weight is 67×32 there and 99×32 in the model"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path, vocab_size=99)


def test_another_depth(tmp_path):
    small_model("shared").save_pretrained(tmp_path)
    with message("does not fit", "encoder.layer.2"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path, num_hidden_layers=3)


def test_a_new_head_of_another_size_is_allowed_when_asked_for(tmp_path):
    triune.TriuneForSequenceClassification(small_config("shared", num_labels=2)).save_pretrained(tmp_path)
    with message("classifier", "2 there and 5 in the model", "ignore_mismatched_sizes=True"):
        triune.TriuneForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    loaded = triune.TriuneForSequenceClassification.from_pretrained(
        tmp_path, num_labels=5, ignore_mismatched_sizes=True
    )
    assert loaded.classifier.out_features == 5


@pytest.mark.parametrize("kept", [0, 7, 100, 0.5, 0.999])
def test_truncated_safetensors(kept, tmp_path):
    small_model("shared").save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    with message(str(tmp_path), "damaged or incomplete"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path)


def test_pickled_weights_are_not_read_unasked(tmp_path):
    model = small_model("shared")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with message("safetensors", "use_safetensors=False"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path)
    loaded = triune.TriuneForMaskedLM.from_pretrained(tmp_path, use_safetensors=False)
    assert torch.equal(loaded.bert.embeddings.word_embeddings.weight, model.bert.embeddings.word_embeddings.weight)


def test_missing_folder_or_weights(tmp_path):
    with message(str(tmp_path / "nowhere")):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path / "nowhere")
    small_config("shared").save_pretrained(tmp_path)
    with message(str(tmp_path), "safetensors"):
        triune.TriuneForMaskedLM.from_pretrained(tmp_path)


def test_unknown_operator_in_a_saved_configuration(tmp_path):
    small_model("shared").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"operator": "mine", "operator_settings": {}}))
    with message("unknown operator 'mine'", "must be imported first"):
        transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)


def test_unknown_size():
    with message("unknown size 'huge'", "base"):
        triune.preset("huge")
