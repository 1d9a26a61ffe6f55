"""Which attention core a model's input gets, and the mask in the form that this core takes."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers.masking_utils import create_bidirectional_mask

from triune import operators
from triune.errors import TriuneError
from triune.kernels import dispatch
from triune.kernels.packing import Packing, can_remove_padding
from triune.models.configuration import TriuneConfig

TAKE_ANY_MASK = (dispatch.REFERENCE, dispatch.SDPA)


def situation(
    config: TriuneConfig,
    device: torch.device,
    dtype: torch.dtype,
    attention_mask: torch.Tensor | None = None,
    packed: bool = False,
    hooked: bool = False,
) -> dispatch.Situation:
    return dispatch.Situation(
        operators.get(config.operator).is_one_tensor,
        config.attention_shape.head_width,
        device,
        dispatch.working_dtype(device, dtype),
        "packed" if packed else "none" if attention_mask is None else "keys" if attention_mask.ndim == 2 else "other",
        config.mask_diagonal,
        hooked,
    )


def core_for(
    config: TriuneConfig,
    hidden_BTd: torch.Tensor,
    attention_mask: torch.Tensor | None,
    packing: Packing | None,
    hooked: bool,
) -> dispatch.AttentionCore:
    """The core that these states get; says so where it is not the one to be expected."""
    here = situation(config, hidden_BTd.device, hidden_BTd.dtype, attention_mask, packing is not None, hooked)
    core = dispatch.choose(config._attn_implementation, here)
    dispatch.warn_of_fallback(config._attn_implementation, here, core)
    return core


def removes_padding(
    config: TriuneConfig,
    device: torch.device,
    dtype: torch.dtype,
    attention_mask: torch.Tensor | None,
    inputs: Mapping[str, Any],
    hooked: bool,
) -> bool:
    """Whether a padded batch runs packed: where the one-tensor kernels take it, and nobody sees it in between."""
    if config._attn_implementation not in (dispatch.AUTOMATIC, dispatch.FORCED):
        return False
    for output in ("output_hidden_states", "output_attentions"):
        asked = inputs.get(output)
        if getattr(config, output) if asked is None else asked:
            return False
    if not can_remove_padding(attention_mask):
        return False
    here = situation(config, device, dtype, packed=True, hooked=hooked)
    return dispatch.choose(dispatch.AUTOMATIC, here).name == dispatch.ONE_TENSOR


def mask_for(
    core: dispatch.AttentionCore,
    config: TriuneConfig,
    hidden_BTd: torch.Tensor,
    attention_mask: torch.Tensor | None,
    packing: Packing | None,
) -> torch.Tensor | None:
    if core.name == dispatch.ONE_TENSOR:
        return None if attention_mask is None else attention_mask.to(hidden_BTd.device, torch.bool).flatten()
    if packing is not None:
        if "flash" in core.name and not config.mask_diagonal:
            return None  # it is given the packing itself
        _needs_masks(core, "packed input")
        attention_mask = packing.visible(hidden_BTd.shape[1])
    if config.mask_diagonal:
        _needs_masks(core, "mask_diagonal")
        return _others_only(attention_mask, hidden_BTd)
    if attention_mask is None:
        # Every token sees every other. Some versions of transformers make a mask of ones here when compiled, and
        # PyTorch then computes attention in its slowest way.
        return None
    return create_bidirectional_mask(config=config, inputs_embeds=hidden_BTd, attention_mask=attention_mask)


def _needs_masks(core: dispatch.AttentionCore, what: str) -> None:
    if core.name not in TAKE_ANY_MASK:
        raise TriuneError(f"{what} needs attn_implementation 'triune', 'sdpa' or 'eager', not '{core.name}'")


def _others_only(attention_mask: torch.Tensor | None, hidden_BTd: torch.Tensor) -> torch.Tensor:
    """Which key a query sees, (B, 1, T, T): the visible ones but its own, and its own where there is no other."""
    rows, tokens = hidden_BTd.shape[:2]
    own_TT = torch.eye(tokens, dtype=torch.bool, device=hidden_BTd.device)
    if attention_mask is None:
        shown = torch.ones((rows, 1, 1, tokens), dtype=torch.bool, device=hidden_BTd.device)
    elif attention_mask.ndim == 2:
        shown = attention_mask[:, None, None, :].bool()
    elif attention_mask.dtype == torch.bool:
        shown = attention_mask
    else:
        raise TriuneError("mask_diagonal needs an attention mask of (rows, tokens), or one of booleans")
    others = shown & ~own_TT
    return others | (own_TT & ~others.any(-1, keepdim=True))
