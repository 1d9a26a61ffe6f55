"""What heads for whole sequences read: the first token's state, or the mean of all."""

import pytest
import torch

from triune import TriuneForSequenceClassification, TriuneModel
from triune.errors import TriuneError
from triune.testing import small_batch, small_config


def model(pooling):
    torch.manual_seed(3)
    return TriuneForSequenceClassification(small_config("shared", classifier_pooling=pooling, num_labels=3)).eval()


@pytest.fixture
def inputs():
    batch = small_batch()
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def expected(made, pooled_state):
    pooled = torch.tanh(pooled_state @ made.bert.pooler.dense.weight.T + made.bert.pooler.dense.bias)
    return pooled @ made.classifier.weight.T + made.classifier.bias


def test_mean_reads_the_states_that_are_not_masked(inputs):
    made = model("mean")
    with torch.no_grad():
        states = made.bert(**inputs).last_hidden_state
        lengths = inputs["attention_mask"].sum(1).tolist()
        means = torch.stack([states[row, :length].mean(0) for row, length in enumerate(lengths)])
        torch.testing.assert_close(made(**inputs).logits, expected(made, means))


def test_cls_reads_the_first_state(inputs):
    made = model("cls")
    with torch.no_grad():
        states = made.bert(**inputs).last_hidden_state
        torch.testing.assert_close(made(**inputs).logits, expected(made, states[:, 0]))


def test_mean_without_a_mask_is_over_all(inputs):
    made = model("mean")
    with torch.no_grad():
        whole = made(inputs["input_ids"]).logits
        masked = made(inputs["input_ids"], attention_mask=torch.ones_like(inputs["input_ids"])).logits
    torch.testing.assert_close(whole, masked)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_changes_nothing(pooling, inputs):
    made = model(pooling)
    more = {name: torch.nn.functional.pad(tensor, (0, 5)) for name, tensor in inputs.items()}
    more["input_ids"][:, -5:] = 7
    with torch.no_grad():
        torch.testing.assert_close(made(**more).logits, made(**inputs).logits)


def test_tuples_hold_the_same(inputs):
    made = model("mean").bert
    with torch.no_grad():
        named, plain = made(**inputs), made(**inputs, return_dict=False)
    assert torch.equal(plain[1], named.pooler_output)
    assert torch.equal(plain[0], named.last_hidden_state)


def test_a_mask_for_each_pair_of_tokens_is_refused(inputs):
    tokens = inputs["input_ids"].shape[1]
    with pytest.raises(TriuneError, match="needs an attention mask of"):
        model("mean")(inputs["input_ids"], attention_mask=torch.ones(3, 1, tokens, tokens))


def test_models_without_a_pooler_do_not_mind(inputs):
    made = TriuneModel(small_config("shared", classifier_pooling="mean"), add_pooling_layer=False).eval()
    assert made(**inputs).pooler_output is None


def test_saved_and_loaded(inputs, tmp_path):
    made = model("mean")
    made.save_pretrained(tmp_path)
    loaded = TriuneForSequenceClassification.from_pretrained(tmp_path).eval()
    assert loaded.config.classifier_pooling == "mean"
    changed = TriuneForSequenceClassification.from_pretrained(tmp_path, classifier_pooling="cls").eval()
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).logits, made(**inputs).logits)
        assert not torch.allclose(changed(**inputs).logits, made(**inputs).logits)


def test_another_pooling_is_one_line():
    with pytest.raises(TriuneError, match="classifier_pooling"):
        small_config("shared", classifier_pooling="max")
