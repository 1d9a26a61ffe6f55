"""Packed batches: what a padded batch gives, for every operator and core, without its padding."""

import pytest
import torch
from transformers import DataCollatorWithFlattening

import triune
from tests.standin import stand_in
from triune import TriuneError, operators
from triune.kernels import one_tensor, packing
from triune.kernels.one_tensor.reference import one_tensor_reference
from triune.testing import FORMS, small_batch, small_config, small_model

ONE_TENSOR = [name for name in operators.names() if operators.get(name).is_one_tensor]


@pytest.fixture
def kernels(monkeypatch):
    return stand_in(monkeypatch)


def flattened(batch):
    """A padded batch as transformers packs it."""
    rows = [
        {name: values[row][batch["attention_mask"][row].bool()].tolist() for name, values in batch.items()}
        for row in range(len(batch["input_ids"]))
    ]
    rows = [{"input_ids": row["input_ids"], "labels": row["labels"]} for row in rows]
    packed = dict(DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_tensors="pt")(rows))
    packed["labels"] = torch.tensor([[label for row in rows for label in row["labels"]]])
    return packed


def shown(batch, states):
    return states[batch["attention_mask"].bool()]


def result(model, batch, **more):
    """Logits of what is not padding, and every gradient."""
    model.zero_grad()
    output = model(**batch, **more)
    output.loss.backward()
    logits = shown(batch, output.logits) if "attention_mask" in batch else output.logits[0]
    return [logits.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def holed(batch):
    batch["attention_mask"][0, [2, 5, 6]] = 0
    batch["attention_mask"][1, 0] = 0
    batch["labels"] = batch["labels"].masked_fill(batch["attention_mask"] == 0, -100)
    return batch


@pytest.mark.parametrize("position_ids", [True, False], ids=["positions", "no-positions"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("operator", operators.names())
def test_packed_is_padded(operator, implementation, form, position_ids):
    batch = small_batch()
    packed = flattened(batch)
    assert packed["input_ids"].shape == (1, batch["attention_mask"].sum())
    if not position_ids:
        del packed["position_ids"]
    model = small_model(operator, **FORMS[form], attn_implementation=implementation).double()
    torch.testing.assert_close(result(model, packed), result(model, batch), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("diagonal", [False, True], ids=["", "mask-diagonal"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("operator", ONE_TENSOR)
def test_every_way_through_the_kernels(operator, form, diagonal, kernels):
    """Packed by the caller, packed by us, and with a mask: what the reference gives for the padded batch."""
    settings = {**FORMS[form], "mask_diagonal": diagonal}
    batch = small_batch()
    expected = result(small_model(operator, **settings, attn_implementation="eager").double(), batch)
    assert not kernels
    model = small_model(operator, **settings).double()
    starts = [0, 11, 19, 24]
    for inputs, longest in ((batch, 11), (flattened(batch), 11)):
        torch.testing.assert_close(result(model, inputs), expected, rtol=1e-9, atol=1e-11)
        assert [call["cu_seqlens"].tolist() for call in kernels] == [starts] * 2
        assert all(call["max_length"] == longest and call["key_mask"] is None for call in kernels)
        assert all(call["mask_diagonal"] == diagonal for call in kernels)
        if form == "pre-rotary":
            assert all([table.shape for table in call["rotary"]] == [(24, 4)] * 2 for call in kernels)
        kernels.clear()
    with packing.padding_kept():
        torch.testing.assert_close(result(model, batch), expected, rtol=1e-9, atol=1e-11)
    if diagonal:
        assert not kernels  # they do not know a diagonal beside padding
    else:
        assert all(call["key_mask"].tolist() == batch["attention_mask"].flatten().tolist() for call in kernels)
        assert [(call["cu_seqlens"], call["max_length"]) for call in kernels] == [(None, 11)] * 2


@pytest.mark.parametrize("form", FORMS)
def test_holes_keep_positions(form, kernels):
    batch = holed(small_batch())
    expected = result(small_model("shared", **FORMS[form], attn_implementation="eager"), batch)
    torch.testing.assert_close(result(small_model("shared", **FORMS[form]), batch), expected, rtol=1e-4, atol=1e-5)
    positions = torch.arange(11).flip(0).expand(3, 11)
    spread = result(small_model("shared", **FORMS[form]), batch, position_ids=positions)
    assert kernels[-1]["cu_seqlens"] is not None
    turned = result(small_model("shared", **FORMS[form], attn_implementation="eager"), batch, position_ids=positions)
    torch.testing.assert_close(spread, turned, rtol=1e-4, atol=1e-5)


def test_padding_comes_back_as_zeros(kernels):
    batch = small_batch()
    states = small_model("shared").bert(batch["input_ids"], batch["attention_mask"]).last_hidden_state
    assert states.shape == (3, 11, 32)
    assert states[batch["attention_mask"] == 0].abs().max() == 0


def test_nothing_is_packed_where_there_is_no_padding_or_nothing_else(kernels):
    model, batch = small_model("shared"), small_batch()
    whole = model(batch["input_ids"], torch.ones_like(batch["input_ids"])).logits
    assert all(call["cu_seqlens"] is None and call["key_mask"] is None for call in kernels)
    torch.testing.assert_close(whole, model(batch["input_ids"]).logits)
    kernels.clear()
    assert model(batch["input_ids"], torch.zeros_like(batch["input_ids"])).logits.isfinite().all()
    assert all(call["cu_seqlens"] is None and not call["key_mask"].any() for call in kernels)


def test_a_row_of_padding_is_an_empty_sequence(kernels):
    batch = small_batch()
    batch["attention_mask"][1] = 0
    batch["labels"][1] = -100
    expected = result(small_model("shared", attn_implementation="eager"), batch)
    torch.testing.assert_close(result(small_model("shared"), batch), expected, rtol=1e-4, atol=1e-5)
    assert kernels[0]["cu_seqlens"].tolist() == [0, 11, 11, 16]


def test_token_types_and_embeddings_are_packed_too(kernels):
    batch = small_batch()
    types = (torch.arange(11) > 4).long().expand(3, 11)
    plain, ours = small_model("shared", attn_implementation="sdpa"), small_model("shared")
    inputs = {"attention_mask": batch["attention_mask"], "token_type_ids": types}
    expected = shown(batch, plain(batch["input_ids"], **inputs).logits)
    torch.testing.assert_close(shown(batch, ours(batch["input_ids"], **inputs).logits), expected)
    embeds = ours.get_input_embeddings()(batch["input_ids"])
    torch.testing.assert_close(shown(batch, ours(inputs_embeds=embeds, **inputs).logits), expected)
    assert all(call["cu_seqlens"] is not None for call in kernels)


def test_hidden_states_are_those_of_the_padded_batch(kernels):
    batch = small_batch()
    states = small_model("shared")(**batch, output_hidden_states=True).hidden_states
    expected = small_model("shared", attn_implementation="sdpa")(**batch, output_hidden_states=True).hidden_states
    assert all(call["key_mask"] is not None for call in kernels)
    for ours, theirs in zip(states, expected, strict=True):
        torch.testing.assert_close(shown(batch, ours), shown(batch, theirs))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("head", ["SequenceClassification", "QuestionAnswering", "TokenClassification"])
def test_heads(head, pooling, kernels):
    def made(implementation):
        torch.manual_seed(3)
        config = small_config("shared", classifier_pooling=pooling, attn_implementation=implementation)
        return getattr(triune, f"TriuneFor{head}")(config).eval()

    batch = small_batch()
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    expected = made("eager")(**inputs)
    assert not kernels
    output = made("triune")(**inputs)
    assert all(call["cu_seqlens"] is not None for call in kernels)
    packed = flattened(batch)
    del packed["labels"]
    alone = made("triune")(**packed)
    for name, theirs in expected.items():
        if head == "SequenceClassification":
            torch.testing.assert_close(output[name], theirs)
            torch.testing.assert_close(alone[name], theirs)  # a row for each sequence
        else:
            torch.testing.assert_close(shown(batch, output[name]), shown(batch, theirs))
            torch.testing.assert_close(alone[name][0], shown(batch, theirs))


def test_masked_positions(kernels):
    batch, positions = small_batch(), torch.tensor([[1, 10], [0, 7], [4, 2]])
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    inputs.update(masked_positions=positions, labels=torch.tensor([[5, 6], [7, -100], [8, 9]]))
    expected = small_model("shared", attn_implementation="eager")(**inputs)
    output = small_model("shared")(**inputs)
    torch.testing.assert_close((output.loss, output.logits), (expected.loss, expected.logits))
    assert kernels[0]["cu_seqlens"] is not None


def test_checkpointed_layers(kernels):
    batch = small_batch()
    plain, checkpointed = small_model("shared").train(), small_model("shared").train()
    checkpointed.gradient_checkpointing_enable()
    torch.testing.assert_close(result(checkpointed, batch), result(plain, batch))
    assert len(kernels) == 6  # two layers, those that are checkpointed twice


def test_dropout_in_training_only(kernels):
    model = small_model("shared", attention_probs_dropout_prob=0.3)
    model(**small_batch())
    model.train()(**small_batch())
    assert [call["dropout"] for call in kernels] == [0.0, 0.0, 0.3, 0.3]


@pytest.mark.parametrize("form", FORMS)
def test_compiled_whole_with_a_mask(form, monkeypatch):
    monkeypatch.setattr(one_tensor, "unsupported", lambda device, dtype, head_width: None)
    monkeypatch.setattr(one_tensor, "attention", one_tensor_reference)
    batch = small_batch()
    model = small_model("shared", **FORMS[form])
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    expected = small_model("shared", **FORMS[form], attn_implementation="eager")(**batch)
    output = compiled(**batch)
    torch.testing.assert_close(shown(batch, output.logits), shown(batch, expected.logits), rtol=1e-4, atol=1e-5)
    assert shown({"attention_mask": 1 - batch["attention_mask"]}, output.logits).std() > 0  # it stayed padded
    output.loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_packed_compiles_whole(implementation):
    packed = flattened(small_batch())
    model = small_model("standard", attn_implementation=implementation)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(**packed).logits, model(**packed).logits)


def test_a_long_row_of_short_sequences(kernels):
    """The limit is one of sequences, not of the row."""
    ids = torch.randint(5, 67, (1, 60))
    starts = torch.arange(0, 61, 12, dtype=torch.int32)
    model = small_model("shared")
    packed = model(ids, cu_seq_lens_q=starts).logits
    assert {call["max_length"] for call in kernels} == {12}
    torch.testing.assert_close(packed, model(ids.view(5, 12)).logits.view(1, 60, -1))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"max_length_q": 10}, "max_length_q is 10, and a sequence has 11 tokens"),
        ({"cu_seq_lens_q": torch.tensor([0, 5, 7, 20])}, "must rise from 0 to the number of tokens, 24"),
        ({"cu_seq_lens_q": torch.tensor([0, 20, 11, 24])}, "must rise from 0"),
        ({"cu_seq_lens_q": torch.tensor([[0, 24]])}, "must be a vector"),
        ({"cu_seq_lens_q": None}, "packed input needs cu_seq_lens_q"),
        ({"cu_seq_lens_k": torch.tensor([0, 24])}, "cu_seq_lens_k differs"),
        ({"attention_mask": torch.ones(1, 24)}, "leave attention_mask out"),
        ({"input_ids": torch.ones(2, 12, dtype=torch.long)}, "packed input is one row"),
        ({"max_length_q": 25}, "the input has 25 tokens, the model takes 24"),
    ],
)
def test_packed_input_that_cannot_be(wrong, says):
    packed = flattened(small_batch())
    del packed["labels"]
    with pytest.raises(TriuneError, match=says):
        small_model("shared")(**{**packed, **wrong})


def test_an_attention_that_knows_neither_packing_nor_masks():
    model = small_model("shared")
    model.config._attn_implementation = "flex_attention"
    with pytest.raises(TriuneError, match="packed input needs attn_implementation"):
        model(**flattened(small_batch()))


def test_padding_on_the_left_keeps_the_state_that_the_pooler_reads(kernels):
    """Rows whose first token is padding: with it taken out, all of them would be classified by zeros."""
    ids = small_batch()["input_ids"]
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    mask[2, :7] = 0

    def logits(implementation):
        torch.manual_seed(3)
        config = small_config("shared", attn_implementation=implementation)
        return triune.TriuneForSequenceClassification(config).eval()(ids, mask).logits

    torch.testing.assert_close(logits("triune"), logits("sdpa"), rtol=1e-4, atol=1e-5)
    assert kernels
    assert all(call["key_mask"] is not None for call in kernels)
    kernels.clear()
    small_model("shared")(ids, mask)  # a masked-LM head reads every state for itself
    assert all(call["cu_seqlens"] is not None for call in kernels)
