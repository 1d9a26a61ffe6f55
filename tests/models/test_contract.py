"""What a user of transformers expects of a model, for the shared operator in particular."""

import os
import shutil

import pytest
import torch
import transformers
from torch.utils.data import Dataset

import triune
from triune import TriuneConfig, preset
from triune.operators import names
from triune.testing import FORMS, small_batch, small_config, small_model

AUTO = {
    "AutoModel": "TriuneModel",
    "AutoModelForPreTraining": "TriuneForMaskedLM",
    "AutoModelForMaskedLM": "TriuneForMaskedLM",
    "AutoModelForSequenceClassification": "TriuneForSequenceClassification",
    "AutoModelForQuestionAnswering": "TriuneForQuestionAnswering",
    "AutoModelForTokenClassification": "TriuneForTokenClassification",
    "AutoModelForMultipleChoice": "TriuneForMultipleChoice",
}


@pytest.mark.parametrize(("auto", "ours"), AUTO.items())
def test_auto_classes(auto, ours, tmp_path):
    made = getattr(transformers, auto).from_config(small_config("shared"))
    assert type(made).__name__ == ours
    made.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    loaded = getattr(transformers, auto).from_pretrained(tmp_path)
    assert type(loaded).__name__ == ours
    assert isinstance(transformers.AutoConfig.from_pretrained(tmp_path), TriuneConfig)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_who_may_read_the_configuration_may_read_the_weights(umask, mode, tmp_path):
    before = os.umask(umask)
    try:
        small_model("shared").save_pretrained(tmp_path / "whole")
        small_model("shared").save_pretrained(str(tmp_path / "shards"), max_shard_size="20KB")
    finally:
        os.umask(before)
    files = [*(tmp_path / "whole").iterdir(), *(tmp_path / "shards").iterdir()]
    assert sum(file.suffix == ".safetensors" for file in files) > 2
    assert {file.stat().st_mode & 0o777 for file in files} == {mode}


def test_configuration_round_trip(tmp_path):
    config = small_config(
        "shared", operator_settings={"role_vectors": "joint"}, norm_position="pre", position="rotary", num_labels=3
    )
    config.save_pretrained(tmp_path)
    again = transformers.AutoConfig.from_pretrained(tmp_path)
    assert again.to_diff_dict() == config.to_diff_dict()


def test_changing_the_operator_at_load_time_drops_its_settings(tmp_path):
    small_config("shared", operator_settings={"role_start": "signed"}).save_pretrained(tmp_path)
    assert TriuneConfig.from_pretrained(tmp_path).operator_settings["role_start"] == "signed"
    assert TriuneConfig.from_pretrained(tmp_path, operator="pairwise").operator_settings == {"pair_start": "normal"}


@pytest.mark.parametrize("form", FORMS)
def test_hidden_states_and_attentions(form):
    model = small_model("shared", **FORMS[form])
    model.set_attn_implementation("eager")
    batch = small_batch()
    output = model(**batch, output_hidden_states=True, output_attentions=True)
    assert [tuple(h.shape) for h in output.hidden_states] == [(3, 11, 32)] * 3
    assert [tuple(a.shape) for a in output.attentions] == [(3, 4, 11, 11)] * 2
    base = model.bert(batch["input_ids"], batch["attention_mask"], output_hidden_states=True)
    torch.testing.assert_close(base.hidden_states[-1], base.last_hidden_state)
    for maps in output.attentions:
        torch.testing.assert_close(maps.sum(-1), torch.ones(3, 4, 11))
        assert maps[1, :, :, 8:].abs().max() == 0
    assert len(model(**batch, return_dict=False)) == 2


def test_attention_maps_need_eager():
    """transformers would give an empty tuple and a warning."""
    with pytest.raises(triune.TriuneError, match="gives no attention maps"):
        small_model("shared")(**small_batch(), output_attentions=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_autocast_with_padding(implementation, dtype):
    model = small_model("shared", attn_implementation=implementation)
    batch = small_batch()
    with torch.autocast("cpu", dtype):
        loss = model(**batch).loss
    loss.backward()
    torch.testing.assert_close(loss, model(**batch).loss, rtol=0.05, atol=0.05)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


def test_checkpointed_training_compiles_whole():
    batch = small_batch()
    model = small_model("shared").train()
    expected = model(**batch).loss
    model.gradient_checkpointing_enable()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    loss = compiled(**batch).loss
    loss.backward()
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("operator", names())
def test_gradient_checkpointing_gives_the_same_gradients(operator, form):
    batch = small_batch()
    plain, checkpointed = (small_model(operator, **FORMS[form]).train() for _ in range(2))
    checkpointed.gradient_checkpointing_enable()
    for model in (plain, checkpointed):
        model(**batch).loss.backward()
    for one, other in zip(plain.parameters(), checkpointed.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=0)


@pytest.mark.parametrize("form", FORMS)
def test_inputs_embeds(form):
    model = small_model("shared", **FORMS[form])
    ids = small_batch()["input_ids"]
    embeds = model.get_input_embeddings()(ids)
    torch.testing.assert_close(model(inputs_embeds=embeds).logits, model(ids).logits)


def test_position_ids_move_rotary_scores():
    model = small_model("standard", **FORMS["pre-rotary"])
    ids = small_batch()["input_ids"]
    plain = model(ids).logits
    shifted = model(ids, position_ids=torch.arange(5, 16)[None].expand(3, -1)).logits
    torch.testing.assert_close(shifted, plain, rtol=1e-3, atol=1e-4)  # only distances count
    spread = model(ids, position_ids=torch.arange(0, 22, 2)[None].expand(3, -1)).logits
    assert (spread - plain).abs().max() > 0.01


@pytest.mark.parametrize("operator", names())
def test_order_of_words_matters_under_both_positions(operator):
    """Without positions an encoder gives reversed outputs for reversed words; ours must not."""
    for form in FORMS.values():
        model = small_model(operator, **form)
        ids = small_batch()["input_ids"][:1]
        assert (model(ids).logits - model(ids.flip(1)).logits.flip(1)).abs().max() > 1e-3


def test_forms_have_the_same_number_of_parameters():
    """Pre-norm moves norms and adds none; rotary positions save the table."""
    with torch.device("meta"):
        count = {
            (norm, position): triune.TriuneForMaskedLM(
                preset("base", operator="shared", norm_position=norm, position=position)
            ).num_parameters()
            for norm in ("post", "pre")
            for position in ("absolute", "rotary")
        }
    assert count["pre", "absolute"] == count["post", "absolute"]
    assert count["post", "rotary"] == count["post", "absolute"] - 512 * 768


def test_prenorm_leaves_the_residual_stream_alone():
    """With all sublayers silenced, pre-norm passes its input through to the final norm."""
    model = small_model("shared", norm_position="pre")
    for layer in model.bert.encoder.layer:
        for dense in (layer.attention.output.dense, layer.output.dense):
            torch.nn.init.zeros_(dense.weight)
            torch.nn.init.zeros_(dense.bias)
    output = model.bert(small_batch()["input_ids"], output_hidden_states=True)
    torch.testing.assert_close(output.last_hidden_state, model.bert.encoder.final_norm(output.hidden_states[0]))


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype, implementation, tmp_path):
    small_model("shared", **FORMS["pre-rotary"]).save_pretrained(tmp_path)
    exact = triune.TriuneForMaskedLM.from_pretrained(tmp_path)
    half = triune.TriuneForMaskedLM.from_pretrained(tmp_path, dtype=dtype, attn_implementation=implementation)
    batch = small_batch()
    logits = half(**batch).logits
    assert logits.dtype == dtype
    torch.testing.assert_close(logits.float(), exact(**batch).logits, rtol=0.1, atol=0.1 * logits.abs().max().item())


@pytest.mark.parametrize("form", FORMS)
def test_masked_only_loss_is_the_full_loss(form):
    batch = small_batch()
    full, sparse = (small_model("shared", **FORMS[form], masked_only_loss=only).train() for only in (False, True))
    losses = []
    for model in (full, sparse):
        output = model(**batch)
        output.loss.backward()
        losses.append(output.loss.detach())
    torch.testing.assert_close(losses[1], losses[0])
    assert output.logits.shape == ((batch["labels"] != -100).sum(), 67)
    for one, other in zip(full.parameters(), sparse.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-7)
    assert sparse(batch["input_ids"]).logits.shape == (3, 11, 67)
    assert sparse.eval()(**batch).logits.shape == (3, 11, 67)  # metrics compare them with the labels


def test_masked_positions_give_the_full_loss():
    """Positions named by the caller, a row with fewer of them filled up with ignored labels."""
    batch = small_batch()
    model = small_model("shared")
    rows = [row.nonzero().flatten() for row in batch["labels"] != -100]
    most = max(len(row) for row in rows)
    positions = torch.stack([torch.nn.functional.pad(row, (0, most - len(row))) for row in rows])
    labels = batch["labels"].gather(1, positions)
    for number, row in enumerate(rows):
        labels[number, len(row) :] = -100
    sparse = model(batch["input_ids"], batch["attention_mask"], labels=labels, masked_positions=positions)
    torch.testing.assert_close(sparse.loss, model(**batch).loss)
    assert sparse.logits.shape == (3, most, 67)
    training = model.train()(batch["input_ids"], batch["attention_mask"], labels=labels, masked_positions=positions)
    torch.testing.assert_close(training.loss, sparse.loss)
    assert training.logits is None


def test_padded_outputs_change_no_loss():
    from triune.models.heads import padded_linear

    linear = torch.nn.Linear(32, 67)
    x, labels = torch.randn(9, 32), torch.randint(0, 67, (9,))
    padded = padded_linear(x, linear)
    assert padded.shape == (9, 128)
    torch.testing.assert_close(padded[:, :67], linear(x))
    expected = torch.nn.functional.cross_entropy(linear(x), labels)
    torch.testing.assert_close(torch.nn.functional.cross_entropy(padded, labels), expected, rtol=0, atol=1e-6)


def test_no_mask_is_made_where_none_is_needed(monkeypatch):
    """A mask of ones costs the fast kernels, and some versions of transformers make one when compiled."""
    from triune.kernels import dispatch

    seen = []
    core = dispatch.choose("sdpa")

    def spy(module, query, key, value, attention_mask, **kwargs):
        seen.append(attention_mask)
        return core.function(module, query, key, value, attention_mask, **kwargs)

    monkeypatch.setattr(dispatch, "choose", lambda implementation, situation=None: core._replace(function=spy))
    model = small_model("shared")
    torch.compile(model, backend="eager")(small_batch()["input_ids"])
    model(small_batch()["input_ids"])
    assert seen
    assert all(mask is None for mask in seen)


def test_residual_stream_follows_autocast():
    model = small_model("shared", norm_position="pre")
    with torch.autocast("cpu", torch.bfloat16):
        states = model(small_batch()["input_ids"], output_hidden_states=True).hidden_states
    assert [state.dtype for state in states[:-1]] == [torch.bfloat16] * 2


@pytest.mark.parametrize("implementation", ["triune", "eager"])
def test_models_compile_whole_where_autocast_cannot_be_asked_for(implementation, monkeypatch):
    """PyTorch 2.11 cannot trace this question, and a compiled model that asks it falls apart."""
    untraced = torch.compiler.disable(torch.amp.is_autocast_available)
    monkeypatch.setattr(torch.amp, "is_autocast_available", untraced)
    model, batch = small_model("shared", attn_implementation=implementation), small_batch()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(**batch).loss, model(**batch).loss)


def test_masked_only_loss_compiles_whole():
    batch = small_batch()
    model = small_model("shared", masked_only_loss=True).train()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(**batch).loss, model(**batch).loss)


@pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs a C++ compiler")
def test_inductor_forward_and_backward():
    batch = small_batch()
    plain, model = (small_model("shared", **FORMS["pre-rotary"]) for _ in range(2))
    compiled = torch.compile(model, fullgraph=True)
    plain(**batch).loss.backward()
    compiled(**batch).loss.backward()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("problem", "labels"),
    [
        ("single_label_classification", torch.tensor([0, 2, 1])),
        ("multi_label_classification", torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1]])),
        ("regression", torch.tensor([0.5, -1.0, 2.0])),
    ],
)
def test_sequence_classification_problems(problem, labels):
    config = small_config("shared", num_labels=1 if problem == "regression" else 3, problem_type=problem)
    model = triune.TriuneForSequenceClassification(config)
    batch = small_batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = model(batch["input_ids"], batch["attention_mask"], labels=labels).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.2 * losses[0]


def test_fold_keeps_the_original_and_says_nothing(capsys):
    model = small_model("shared")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    folded = model.fold()
    assert capsys.readouterr().out == ""
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert folded.num_parameters() == model.num_parameters() - 2 * 2 * 32
    with pytest.raises(triune.TriuneError, match="folded already"):
        folded.fold()


@pytest.mark.parametrize("role_vectors", ["separate", "joint", "value", "none"])
def test_fold_of_every_ablation(role_vectors, tmp_path):
    model = small_model("shared", operator_settings={"role_vectors": role_vectors}, **FORMS["pre-rotary"])
    folded = model.fold()
    batch = small_batch()
    torch.testing.assert_close(folded(**batch).logits, model(**batch).logits, rtol=1e-5, atol=1e-5)
    folded.save_pretrained(tmp_path)
    loaded = triune.TriuneForMaskedLM.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded(**batch).logits, folded(**batch).logits, rtol=0, atol=0)


class Rows(Dataset):
    def __init__(self, count=8):
        ids = torch.randint(5, 67, (count, 9), generator=torch.Generator().manual_seed(3))
        self.rows = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row} for row in ids]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def trained(folder, batch_size, accumulation, steps=3):
    torch.manual_seed(1)
    model = triune.TriuneForMaskedLM(small_config("shared"))
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        max_steps=steps,
        learning_rate=1e-2,
        optim="sgd",
        save_strategy="steps",
        save_steps=2,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        logging_strategy="no",
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=Rows())
    trainer.train()
    return trainer


def test_trainer_trains_evaluates_and_resumes(tmp_path):
    trainer = trained(tmp_path, batch_size=4, accumulation=1, steps=4)
    with torch.no_grad():
        torch.manual_seed(1)
        untrained = triune.TriuneForMaskedLM(small_config("shared")).eval()
        rows = torch.stack([row["input_ids"] for row in Rows()])
        assert trainer.evaluate(Rows())["eval_loss"] < untrained(rows, labels=rows).loss.item() - 0.02
    resumed = transformers.Trainer(triune.TriuneForMaskedLM(small_config("shared")), trainer.args, train_dataset=Rows())
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    for one, other in zip(trainer.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_trainer_accumulates_means(tmp_path):
    """Two half batches accumulated are one batch: transformers' BERT gets this wrong by a factor."""
    whole = trained(tmp_path / "whole", batch_size=8, accumulation=1)
    halves = trained(tmp_path / "halves", batch_size=4, accumulation=2)
    for one, other in zip(whole.model.parameters(), halves.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("task", "head", "check"),
    [
        ("fill-mask", "MaskedLM", lambda out: len(out) == 5 and 0 < out[0]["score"] <= 1),
        ("text-classification", "SequenceClassification", lambda out: out[0]["label"] in ("LABEL_0", "LABEL_1")),
        (
            "token-classification",
            "TokenClassification",
            lambda out: [word["word"] for word in out][:2] == ["the", "cat"],
        ),
        ("feature-extraction", "", lambda out: len(out[0]) == 8 and len(out[0][0]) == 32),
    ],
)
def test_pipelines(task, head, check, tokenizer, tmp_path):
    name = f"TriuneFor{head}" if head else "TriuneModel"
    model = getattr(triune, name)(small_config("shared", vocab_size=len(tokenizer)))
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    run = transformers.pipeline(task, model=str(tmp_path / "model"))
    assert type(run.model).__name__ == name
    assert check(run("the cat sat on the [MASK]"))


def test_remote_code_is_not_needed(tmp_path):
    """Loading never asks for trust: the classes come from the installed package."""
    small_model("shared").save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.py"))
    assert "auto_map" not in (tmp_path / "config.json").read_text()


def test_embeddings_take_what_berts_take_in_the_same_order():
    model = small_model("shared")
    ids = small_batch()["input_ids"]
    types = torch.ones_like(ids)
    embeddings = model.base_model.embeddings
    torch.testing.assert_close(embeddings(ids, types), embeddings(input_ids=ids, token_type_ids=types))
    assert not torch.equal(embeddings(ids, types), embeddings(ids))
