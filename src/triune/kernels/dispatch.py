"""The one place that decides what computes attention, rotations, the activation of the feed-forward half and its norm.

`attn_implementation` asks for one: "triune" is automatic, the one-tensor kernels where they can run and SDPA elsewhere,
with the reason; "one_tensor" is these kernels or an error; "sdpa" never takes them; "eager" is our reference; any other
name is what transformers has registered under it.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface
from transformers.utils import logging

from triune.errors import TriuneError, did_you_mean
from triune.kernels import add_norm, bias_gelu, one_tensor, rotary
from triune.kernels.reference import reference_attention

logger = logging.get_logger(__name__)

AUTOMATIC, FORCED = "triune", "one_tensor"  # values of attn_implementation
ONE_TENSOR, REFERENCE, SDPA = "one-tensor", "reference", "sdpa"  # names of cores
NOT_ONE_TENSOR = "queries, keys and values are not one tensor"


class AttentionCore(NamedTuple):
    name: str
    reason: str
    gives_maps: bool
    function: Callable[..., Any]


class Situation(NamedTuple):
    """What the choice depends on besides `attn_implementation`."""

    is_one_tensor: bool  # of the operator
    head_width: int
    device: torch.device
    dtype: torch.dtype  # of the projection's output
    mask: Literal["none", "keys", "packed", "other"] = "none"  # keys: (rows, tokens)
    mask_diagonal: bool = False
    hooked: bool = False  # the operator has hooks, which run when it is called, and these kernels do not call it


def choose(implementation: str | None, situation: Situation | None = None) -> AttentionCore:
    """The core for a situation. Without one: what the name alone asks for, or an error where there is no such name."""
    asked = f"attn_implementation is {implementation!r}"
    if implementation in ("eager", None):
        return AttentionCore(REFERENCE, asked, True, reference_attention)
    if implementation in (AUTOMATIC, FORCED):
        hindrance = None if situation is None else _hindrance(situation)
        if hindrance is None:
            return AttentionCore(ONE_TENSOR, asked, False, one_tensor.attention)
        if implementation == FORCED:
            raise TriuneError(_refusal(hindrance))
        return AttentionCore(SDPA, hindrance, False, ALL_ATTENTION_FUNCTIONS[SDPA])
    try:
        function = ALL_ATTENTION_FUNCTIONS[implementation]
    except KeyError:
        known = did_you_mean(implementation, ["eager", *sorted(ALL_ATTENTION_FUNCTIONS.valid_keys())])
        raise TriuneError(f"unknown attn_implementation '{implementation}'{known}") from None
    return AttentionCore(implementation, asked, False, function)


def _hindrance(situation: Situation) -> str | None:
    """Why the one-tensor kernels cannot run, or None."""
    if not situation.is_one_tensor:
        return NOT_ONE_TENSOR
    if situation.hooked:
        return "the operator of a layer has hooks"
    if situation.mask == "other":
        return "the attention mask is not one of (rows, tokens)"
    if situation.mask == "keys" and situation.mask_diagonal:
        return "mask_diagonal together with a padding mask"
    return _unsupported(situation.device, situation.dtype, situation.head_width)


@torch.compiler.assume_constant_result
def _unsupported(device: torch.device, dtype: torch.dtype, head_width: int) -> str | None:
    return one_tensor.unsupported(device, dtype, head_width)


def _refusal(hindrance: str) -> str:
    return f"attn_implementation 'one_tensor' cannot run: {hindrance}; 'triune' takes SDPA where it cannot"


class RotaryCore(NamedTuple):
    name: Literal["rotate", "pytorch"]
    reason: str


def choose_rotary(allowed: bool, device: torch.device, dtype: torch.dtype) -> RotaryCore:
    """What turns queries and keys by their position: our kernel where it can run."""
    if not allowed:
        return RotaryCore("pytorch", "fused_rotary is false")
    hindrance = _rotary_unsupported(device, dtype)
    if hindrance is not None:
        return RotaryCore("pytorch", hindrance)
    return RotaryCore("rotate", "fused_rotary is true")


@torch.compiler.assume_constant_result
def _rotary_unsupported(device: torch.device, dtype: torch.dtype) -> str | None:
    return rotary.unsupported(device, dtype)


class FeedForwardCore(NamedTuple):
    name: Literal["bias-gelu", "pytorch"]
    reason: str


def choose_feed_forward(
    allowed: bool, activation: str, plain: bool, device: torch.device, dtype: torch.dtype
) -> FeedForwardCore:
    """Our kernel for bias and exact GELU where it can run; `plain`: the projection is nothing but a Linear."""
    if not allowed:
        return FeedForwardCore("pytorch", "fused_gelu is false")
    if activation != "gelu":
        return FeedForwardCore("pytorch", f"hidden_act is '{activation}', not 'gelu'")
    if not plain:
        return FeedForwardCore("pytorch", "the projection is more than a Linear")
    hindrance = _gelu_unsupported(device, dtype)
    if hindrance is not None:
        return FeedForwardCore("pytorch", hindrance)
    return FeedForwardCore("bias-gelu", "fused_gelu is true")


@torch.compiler.assume_constant_result
def _gelu_unsupported(device: torch.device, dtype: torch.dtype) -> str | None:
    return bias_gelu.unsupported(device, dtype)


class NormCore(NamedTuple):
    name: Literal["add-norm", "pytorch"]
    reason: str


def choose_norm(
    allowed: bool, hindrance: Callable[[], str | None], width: int, device: torch.device, dtype: torch.dtype
) -> NormCore:
    """Our kernels for the residual sum and the norm between the halves of a layer, where they can run.

    `hindrance`: what in the layer, or in how it is called, leaves them out; asked only where they could run.
    """
    if not allowed:
        return NormCore("pytorch", "fused_norm is false")
    reason = _norm_unsupported(device, dtype, width) or hindrance()
    if reason is not None:
        return NormCore("pytorch", reason)
    return NormCore("add-norm", "fused_norm is true")


@torch.compiler.assume_constant_result
def _norm_unsupported(device: torch.device, dtype: torch.dtype, width: int) -> str | None:
    return add_norm.unsupported(device, dtype, width)


# PyTorch 2.11 cannot trace the first call, and breaks a compiled model into hundreds of pieces. Compiled code is
# guarded by autocast's state, so that the result is constant.
@torch.compiler.assume_constant_result
def working_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """What a projection gives for states of this dtype: under autocast, autocast's."""
    known = torch.amp.is_autocast_available(device.type)  # not of the meta device
    if known and torch.is_autocast_enabled(device.type) and dtype != torch.float64:
        return torch.get_autocast_dtype(device.type)
    return dtype


def warn_of_fallback(implementation: str | None, situation: Situation, core: AttentionCore) -> None:
    """Once for each reason: on a GPU, the kernels are expected wherever an operator fits them."""
    expected = implementation == AUTOMATIC and situation.is_one_tensor and situation.device.type == "cuda"
    if expected and core.name != ONE_TENSOR:
        _warn_once(f"attention runs on SDPA, not on the one-tensor kernels: {core.reason}")


# Traced code runs these when it is compiled, so that compiled models say it too.
@torch.compiler.assume_constant_result
def _warn_once(message: str) -> bool:
    logger.warning_once(message)
    return True


@torch.compiler.assume_constant_result
def _inform_once(message: str) -> bool:
    logger.info_once(message)
    return True


def _automatic_elsewhere(module: nn.Module, *roles: Any, **kwargs: Any) -> tuple[Any, Any]:
    """What "triune" is in a model that is not ours: it has queries, keys and values of its own."""
    _inform_once(f"attention of {type(module).__name__} runs on SDPA: {NOT_ONE_TENSOR}")
    return ALL_ATTENTION_FUNCTIONS[SDPA](module, *roles, **kwargs)


def _forced_elsewhere(module: nn.Module, *roles: Any, **kwargs: Any) -> tuple[Any, Any]:
    raise TriuneError(_refusal(f"{NOT_ONE_TENSOR} in {type(module).__name__}"))


def register() -> None:
    """Make the two names known to all models of transformers; calling it again changes nothing."""
    for name, function in ((AUTOMATIC, _automatic_elsewhere), (FORCED, _forced_elsewhere)):
        AttentionInterface.register(name, function)
        AttentionMaskInterface.register(name, sdpa_mask)


register()
