"""Which core runs: the four values of attn_implementation, and what stands in the way of the one-tensor kernels."""

import copy
import subprocess
import sys

import accelerate
import pytest
import torch
import transformers

from tests.standin import stand_in
from triune import TriuneError, TriuneForMaskedLM, TriuneModel
from triune.kernels import dispatch, one_tensor
from triune.kernels.dispatch import NOT_ONE_TENSOR, Situation
from triune.testing import small_batch, small_config, small_model

GPU = Situation(True, 64, torch.device("cuda"), torch.bfloat16)


@pytest.fixture
def kernels(monkeypatch):
    return stand_in(monkeypatch, lambda device, dtype, head_width: "float64" if dtype == torch.float64 else None)


@pytest.fixture
def warned(monkeypatch):
    said = []
    monkeypatch.setattr(type(dispatch.logger), "warning_once", lambda logger, message: said.append(message))
    return said


def small_bert(implementation):
    config = transformers.BertConfig(
        vocab_size=67, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48
    )
    config._attn_implementation = implementation
    return transformers.BertModel(config).eval()


def test_automatic_takes_the_kernels_where_they_run(kernels):
    assert dispatch.choose("triune", GPU)[:3] == ("one-tensor", "attn_implementation is 'triune'", False)
    assert dispatch.choose("one_tensor", GPU).name == "one-tensor"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"is_one_tensor": False}, NOT_ONE_TENSOR),
        ({"mask": "other"}, "the attention mask is not one of (rows, tokens)"),
        ({"mask": "keys", "mask_diagonal": True}, "mask_diagonal together with a padding mask"),
        ({"dtype": torch.float64}, "float64"),
    ],
)
def test_what_stands_in_the_way(change, reason, kernels):
    core = dispatch.choose("triune", GPU._replace(**change))
    assert (core.name, core.reason) == ("sdpa", reason)
    with pytest.raises(TriuneError) as refused:
        dispatch.choose("one_tensor", GPU._replace(**change))
    assert str(refused.value).startswith(f"attn_implementation 'one_tensor' cannot run: {reason}")


@pytest.mark.parametrize("change", [{"mask": "keys"}, {"mask": "packed"}, {"mask": "packed", "mask_diagonal": True}])
def test_what_does_not(change, kernels):
    assert dispatch.choose("triune", GPU._replace(**change)).name == "one-tensor"


@pytest.mark.parametrize("name", ["sdpa", "eager"])
def test_other_names_forbid_the_kernels(name, kernels):
    model = small_model("shared", attn_implementation=name)
    assert model.attention_core.reason == f"attn_implementation is '{name}'"
    model(**small_batch())
    assert not kernels


@pytest.mark.parametrize("operator", ["shared", "standard"])
def test_a_mistyped_name_lists_ours(operator):
    with pytest.raises(TriuneError, match=r"there are eager.* one_tensor.* sdpa.* triune"):
        dispatch.choose("trinue")
    with pytest.raises(ValueError, match="trinue"):
        small_model(operator).set_attn_implementation("trinue")


def test_on_a_gpu_a_fallback_is_said(warned, kernels):
    for situation in (GPU._replace(mask="other"), GPU, GPU._replace(is_one_tensor=False)):
        dispatch.warn_of_fallback("triune", situation, dispatch.choose("triune", situation))
    dispatch.warn_of_fallback("sdpa", GPU, dispatch.choose("sdpa", GPU))
    on_cpu = GPU._replace(device=torch.device("cpu"), mask="other")
    dispatch.warn_of_fallback("triune", on_cpu, dispatch.choose("triune", on_cpu))
    assert warned == [
        "attention runs on SDPA, not on the one-tensor kernels: the attention mask is not one of (rows, tokens)"
    ]


def test_it_is_said_in_compiled_models_too(warned, kernels):
    situation = GPU._replace(mask="other")

    def traced(x):
        core = dispatch.choose("triune", situation)
        dispatch.warn_of_fallback("triune", situation, core)
        return x + (core.name == "sdpa")

    assert torch.compile(traced, fullgraph=True, backend="eager")(torch.zeros(1)) == 1
    assert len(warned) == 1


def test_the_working_dtype_is_a_constant_of_compiled_code():
    """As in plain code it follows autocast; PyTorch 2.11 could not trace it."""
    frames = []

    def backend(graph, inputs):
        frames.append(graph)
        return graph.forward

    def traced(x):
        return x + (dispatch.working_dtype(x.device, x.dtype) == torch.bfloat16)

    compiled = torch.compile(traced, fullgraph=True, backend=backend)
    for _ in range(2):
        assert compiled(torch.zeros(1)) == 0
        with torch.autocast("cpu", torch.bfloat16):
            assert compiled(torch.zeros(1)) == 1
    assert len(frames) == 2
    assert dispatch.working_dtype(torch.device("meta"), torch.float32) == torch.float32


def test_models_ask_for_the_kernels_unless_told_otherwise(tmp_path):
    made = small_model("shared")
    made.save_pretrained(tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    models = [
        made,
        made.bert,
        TriuneForMaskedLM.from_pretrained(tmp_path),
        TriuneModel._from_config(small_config("shared")),
        transformers.AutoModelForMaskedLM.from_pretrained(tmp_path),
        transformers.AutoModel.from_config(config),
    ]
    assert [model.config._attn_implementation for model in models] == ["triune"] * len(models)
    for name, core in (("sdpa", "sdpa"), ("eager", "reference")):
        loaded = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, attn_implementation=name)
        assert loaded.attention_core.name == loaded.bert.attention_core.name == core
        made.set_attn_implementation(name)
        assert made.attention_core.name == made.bert.attention_core.name == core
    made.set_attn_implementation("triune")
    assert made.bert.config._attn_implementation == "triune"


@pytest.mark.parametrize(("asked", "core"), [(None, "one-tensor"), ("eager", "reference"), ("sdpa", "sdpa")])
def test_a_model_within_another(asked, core, kernels):
    class Outer(transformers.PreTrainedModel):
        config_class = transformers.BertConfig

        def __init__(self, config):
            super().__init__(config)
            self.ours = TriuneModel(small_config("shared"))
            self.post_init()

    outer = Outer(transformers.BertConfig(num_hidden_layers=1))
    if asked:
        outer._supports_sdpa = True
        outer.set_attn_implementation(asked)
    assert outer.ours.attention_core.name == core


def test_the_core_of_an_input(kernels):
    model, batch = small_model("shared"), small_batch()
    whole = torch.ones(3, 1, 11, 11, dtype=torch.bool)
    assert model.attention_core_for(**batch).name == "one-tensor"
    assert model.attention_core_for(whole).reason == "the attention mask is not one of (rows, tokens)"
    assert model.double().attention_core.reason == "float64"
    diagonal = small_model("shared", mask_diagonal=True)
    assert diagonal.attention_core.name == diagonal.attention_core_for(**batch).name == "one-tensor"
    # Whoever looks at hidden states gets the padded batch, and the kernels know no diagonal beside padding.
    assert diagonal.attention_core_for(**batch, output_hidden_states=True).name == "sdpa"
    assert small_model("standard").attention_core.reason == NOT_ONE_TENSOR


def test_hooks_on_an_operator_run(kernels, warned):
    model, batch, seen = small_model("shared"), small_batch(), []
    real = batch["attention_mask"].bool()
    before = model(**batch).logits[real]
    handle = model.bert.encoder.layer[-1].attention.self.register_forward_hook(lambda *call: seen.append(call))
    hooked = "the operator of a layer has hooks"
    for whole in (model, model.bert):
        assert whole.attention_core[:2] == whole.attention_core_for(**batch)[:2] == ("sdpa", hooked)
    torch.testing.assert_close(model(**batch).logits[real], before, atol=1e-5, rtol=1e-5)
    assert len(seen) == 1
    with pytest.raises(TriuneError, match=f"'one_tensor' cannot run: {hooked}"):
        dispatch.choose("one_tensor", GPU._replace(hooked=True))
    dispatch.warn_of_fallback("triune", GPU, dispatch.choose("triune", GPU._replace(hooked=True)))
    assert warned == [f"attention runs on SDPA, not on the one-tensor kernels: {hooked}"]
    handle.remove()
    assert model.attention_core.name == "one-tensor"


def test_weights_may_be_kept_elsewhere(kernels):
    """accelerate brings the weights of a module when it is called, the role vectors with the operator."""
    model, batch = small_model("shared"), small_batch()
    real = batch["attention_mask"].bool()
    before = model(**batch).logits[real]
    offloaded = accelerate.cpu_offload(copy.deepcopy(model), execution_device=torch.device("cpu"))
    assert offloaded.bert.encoder.layer[0].attention.self.query_scale.is_meta
    torch.testing.assert_close(offloaded(**batch).logits[real], before, atol=1e-5, rtol=1e-5)


def test_under_autocast_its_dtype_counts(monkeypatch):
    asked = []
    stand_in(monkeypatch, lambda device, dtype, head_width: asked.append(dtype))
    model = small_model("shared")
    with torch.autocast("cpu", torch.bfloat16):
        assert model.attention_core.name == "one-tensor"
        model(**small_batch())
    assert set(asked) == {torch.bfloat16}
    model(**small_batch())
    assert asked[-1] == torch.float32


def test_forced_where_it_cannot_run(monkeypatch):
    monkeypatch.setattr(one_tensor, "unsupported", lambda *where: "no CUDA device")
    model = small_model("shared", attn_implementation="one_tensor")
    with pytest.raises(TriuneError, match="'one_tensor' cannot run: no CUDA device; 'triune' takes SDPA"):
        model(**small_batch())
    assert small_model("shared").attention_core[:2] == ("sdpa", "no CUDA device")
    with pytest.raises(TriuneError, match=NOT_ONE_TENSOR):
        small_model("pairwise", attn_implementation="one_tensor")(**small_batch())


def test_maps_are_refused_by_the_kernels(kernels):
    with pytest.raises(TriuneError, match="'one-tensor' gives no attention maps"):
        small_model("shared")(**small_batch(), output_attentions=True)


def test_models_of_transformers(monkeypatch):
    said = []
    monkeypatch.setattr(type(dispatch.logger), "info_once", lambda logger, message: said.append(message))
    ours, theirs = small_bert("triune"), small_bert("sdpa")
    ours.load_state_dict(theirs.state_dict())
    batch = {name: small_batch()[name] for name in ("input_ids", "attention_mask")}
    torch.testing.assert_close(ours(**batch).last_hidden_state, theirs(**batch).last_hidden_state, rtol=0, atol=0)
    assert said == [f"attention of BertSelfAttention runs on SDPA: {NOT_ONE_TENSOR}"]
    compiled = torch.compile(ours, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(**batch)[0], theirs(**batch)[0])
    ours.set_attn_implementation("one_tensor")
    with pytest.raises(TriuneError, match=f"{NOT_ONE_TENSOR} in BertSelfAttention"):
        ours(**batch)


def test_names_are_registered_when_a_configuration_is_made():
    code = """
import sys, triune
assert "torch" not in sys.modules
triune.TriuneConfig()
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
assert {"triune", "one_tensor"} <= set(ALL_ATTENTION_FUNCTIONS.valid_keys()) & set(ALL_MASK_ATTENTION_FUNCTIONS)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
