"""The truth: attention written out, in at least float32, with its weights as a second result.

Every other core is tested against this one. It has the signature of transformers' attention functions.
"""

from typing import Any

import torch
from torch import nn

from triune.errors import TriuneError


def reference_attention(
    module: nn.Module,
    query: torch.Tensor,  # (B, N, T, D), and so key and value
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # bool (True is visible) or additive, broadcastable to (B, N, T, T)
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs (B, T, N, D) and weights (B, N, T, T). A query that may see no key gets zeros."""
    if query.is_meta:  # which knows no autocast
        return _attend(module, query, key, value, attention_mask, scaling, dropout)
    with torch.autocast(query.device.type, enabled=False):  # it would take the products back to half precision
        return _attend(module, query, key, value, attention_mask, scaling, dropout)


def _attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None,
    dropout: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    exact = torch.promote_types(query.dtype, torch.float32)
    scores = torch.matmul(query.to(exact), key.to(exact).transpose(-1, -2)) * scale

    if attention_mask is None:
        weights = scores.softmax(dim=-1)
    else:
        visible, scores = _apply_mask(scores, attention_mask)
        # Finite filling and a second masking, so that a row without any visible key has zero output and zero
        # gradient where -inf would give nan.
        scores = scores.masked_fill(~visible, torch.finfo(exact).min)
        weights = scores.softmax(dim=-1).masked_fill(~visible, 0.0)

    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    output = torch.matmul(weights, value.to(exact)).to(value.dtype)
    return output.transpose(1, 2).contiguous(), weights.to(value.dtype)


def _apply_mask(scores: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if mask.dtype == torch.bool:
        return mask, scores
    if not mask.is_floating_point():
        raise TriuneError(f"a mask of four dimensions is of booleans or is added to the scores, not of {mask.dtype}")
    # transformers hides a key in an additive mask by the lowest number of its type, others by -inf.
    visible = mask > torch.finfo(mask.dtype).min
    return visible, scores + torch.where(visible, mask, 0.0).to(scores.dtype)
