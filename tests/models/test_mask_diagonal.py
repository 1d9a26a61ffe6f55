"""`mask_diagonal`: no token attends to itself, unless it is alone."""

import pytest
import torch

from triune import TriuneForMaskedLM, operators
from triune.errors import TriuneError
from triune.testing import small_batch, small_model


@pytest.fixture
def inputs():
    batch = small_batch()
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


@pytest.mark.parametrize("operator", operators.names())
def test_the_own_token_gets_no_weight_and_the_others_all_of_it(operator, inputs):
    model = small_model(operator, mask_diagonal=True, attn_implementation="eager")
    for weights in model(**inputs, output_attentions=True).attentions:
        assert weights.diagonal(dim1=-2, dim2=-1).abs().max() == 0
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
        hidden = inputs["attention_mask"][:, None, None, :] == 0
        assert weights.masked_select(hidden).abs().max() == 0


def test_without_it_the_own_token_counts(inputs):
    plain, masked = (small_model("shared", mask_diagonal=flag) for flag in (False, True))
    assert not torch.allclose(plain(**inputs).logits, masked(**inputs).logits)


def test_sdpa_gives_what_the_reference_gives(inputs):
    eager, sdpa = (
        small_model("shared", mask_diagonal=True, attn_implementation=name)(**inputs).logits
        for name in ("eager", "sdpa")
    )
    seen = inputs["attention_mask"].bool()
    torch.testing.assert_close(eager[seen], sdpa[seen])


def test_a_token_that_is_alone_attends_to_itself():
    model = small_model("shared", mask_diagonal=True, attn_implementation="eager")
    ids = torch.tensor([[7]])
    alone = model(ids, output_attentions=True)
    torch.testing.assert_close(alone.attentions[0], torch.ones_like(alone.attentions[0]))
    padded = model(torch.tensor([[7, 0, 0]]), attention_mask=torch.tensor([[1, 0, 0]]))
    torch.testing.assert_close(padded.logits[:, :1], alone.logits)


def test_no_mask_is_a_mask_of_ones(inputs):
    model = small_model("shared", mask_diagonal=True)
    ones = torch.ones_like(inputs["input_ids"])
    torch.testing.assert_close(
        model(inputs["input_ids"]).logits, model(inputs["input_ids"], attention_mask=ones).logits
    )


def test_it_compiles_in_one_graph(inputs):
    model = small_model("shared", mask_diagonal=True)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(**inputs).logits, model(**inputs).logits)


def test_it_is_saved_and_loaded(inputs, tmp_path):
    model = small_model("shared", mask_diagonal=True)
    model.save_pretrained(tmp_path)
    loaded = TriuneForMaskedLM.from_pretrained(tmp_path).eval()
    assert loaded.config.mask_diagonal
    torch.testing.assert_close(loaded(**inputs).logits, model(**inputs).logits)


def test_an_attention_without_masks_is_refused(inputs):
    model = small_model("shared", mask_diagonal=True)
    model.config._attn_implementation = "flex_attention"
    with pytest.raises(TriuneError, match="mask_diagonal needs attn_implementation 'triune', 'sdpa' or 'eager'"):
        model(**inputs)


def test_an_additive_mask_is_refused(inputs):
    model = small_model("shared", mask_diagonal=True)
    additive = torch.zeros(inputs["input_ids"].shape[0], 1, 1, inputs["input_ids"].shape[1])
    with pytest.raises(TriuneError, match="mask_diagonal needs an attention mask of"):
        model(inputs["input_ids"], attention_mask=additive)
