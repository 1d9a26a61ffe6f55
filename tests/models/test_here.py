"""What cannot be built or run on this machine is said before anything is written."""

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

from triune import TriuneError
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


def test_an_operator_that_no_saved_model_could_have(monkeypatch):
    class Unloadable(StandardAttention):
        def __init__(self, shape, settings, folded=False):
            super().__init__(shape, settings, folded)
            self.places = torch.arange(shape.width).tolist()  # of the meta device there are no values

    monkeypatch.setitem(registry._OPERATORS, "unloadable", Unloadable)
    with pytest.raises(TriuneError, match="operator 'unloadable' cannot be built on PyTorch's meta device"):
        check_model(small_config("unloadable"), CPU)
