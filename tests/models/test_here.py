"""What cannot be built or run on this machine is said before anything is written."""

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

from triune import TriuneError, TriuneForMaskedLM
from triune.models.here import check_attention, check_model
from triune.operators import registry
from triune.operators.standard import StandardAttention
from triune.testing import small_config

CPU = torch.device("cpu")
WIDE = {"num_attention_heads": 2}


@pytest.fixture
def picky():
    """An attention of somebody's package that takes wide heads in float32 only."""

    def attend(module, query, key, value, mask, **_):
        if query.shape[-1] < 16 or query.dtype != torch.float32:
            raise ValueError(f"heads of {query.shape[-1]} in {query.dtype}\nare not for me")
        return torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2), None

    AttentionInterface.register("picky", attend)
    yield "picky"
    del ALL_ATTENTION_FUNCTIONS._global_mapping["picky"]


@pytest.fixture
def with_values(monkeypatch):
    """The configuration of an operator of one's own that reads numbers from a tensor when it is built."""

    def configured(read):
        class WithValues(StandardAttention):
            def __init__(self, shape, settings, folded=False):
                super().__init__(shape, settings, folded)
                self.values = read(shape.width)

        monkeypatch.setitem(registry._OPERATORS, "with-values", WithValues)
        return small_config("with-values")

    return configured


@pytest.mark.parametrize("check", [check_model, check_attention])
def test_it_is_the_model_itself_that_is_tried(check, picky):
    check(small_config("standard", **WIDE, attn_implementation=picky), CPU)
    with pytest.raises(TriuneError, match=r"^attention 'picky' cannot run here: heads of 8 in torch.float32 are"):
        check(small_config("standard", attn_implementation=picky), CPU)
    with pytest.raises(TriuneError, match=r"mask_diagonal needs attn_implementation 'triune', 'sdpa' or 'eager'"):
        check(small_config("standard", **WIDE, mask_diagonal=True, attn_implementation=picky), CPU)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(TriuneError, match=r"heads of 16 in torch\.bfloat16"):
        check(small_config("standard", **WIDE, attn_implementation=picky), CPU)


def test_random_numbers_are_left_alone(picky):
    before = torch.random.get_rng_state()
    check_model(small_config("shared", **WIDE, attn_implementation=picky), CPU)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("read", [torch.Tensor.tolist, lambda numbers: numbers[0].item(), torch.Tensor.numpy])
def test_an_operator_that_no_saved_model_could_have(read, with_values):
    """Of the meta device there are no values, and each way of reading some fails in its own way."""
    config = with_values(lambda width: read(torch.arange(width)))
    with pytest.raises(TriuneError, match="operator 'with-values' cannot be built on PyTorch's meta device"):
        check_model(config, CPU)


def test_an_operator_that_transformers_loads_all_the_same(with_values, tmp_path):
    config = with_values(lambda width: torch.linspace(0, 1, width)[-1].item())  # which it keeps off the meta device
    check_model(config, CPU)
    TriuneForMaskedLM(config).save_pretrained(tmp_path)
    assert TriuneForMaskedLM.from_pretrained(tmp_path).bert.encoder.layer[0].attention.self.values == 1
