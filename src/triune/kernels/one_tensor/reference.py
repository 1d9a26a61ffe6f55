"""One-tensor attention written out: what the kernels must compute, in the precision of the input.

    scores = (S∘c)·Sᵀ        output = (softmax(scores)·S)∘v

S is (tokens, heads, width): sequences lie one after another. With rotary positions scores are made of turned S, the
weighted sum of S as it is.
"""

import itertools

import torch

from triune.kernels.rotary import rotate


def one_tensor_reference(
    shared_MND: torch.Tensor,
    score_scale_ND: torch.Tensor,
    value_scale_ND: torch.Tensor | None = None,
    *,
    max_length: int,
    cu_seqlens: torch.Tensor | None = None,
    key_mask: torch.Tensor | None = None,
    rotary: tuple[torch.Tensor, torch.Tensor] | None = None,
    keep: list[torch.Tensor] | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    mask_diagonal: bool = False,
) -> torch.Tensor:
    """As `one_tensor.attention`; `keep` has for each sequence which weights (N, T, T) dropout lets through."""
    bounds = list(range(0, shared_MND.shape[0] + 1, max_length)) if cu_seqlens is None else cu_seqlens.tolist()
    outputs = []
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        value_NTD = shared_MND[start:end].transpose(0, 1)
        key_NTD = value_NTD
        if rotary is not None:
            cos, sin = (table[start:end].to(shared_MND.dtype) for table in rotary)
            key_NTD = rotate(value_NTD, cos, sin)
        scores = (key_NTD * score_scale_ND[:, None]) @ key_NTD.transpose(-1, -2)
        hidden = _hidden(scores, None if key_mask is None else key_mask[start:end], causal, mask_diagonal)
        # A row that sees nothing has zero output, and no nan in its gradient.
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(hidden, 0.0)
        if keep is not None:
            weights = weights * keep[number] / (1 - dropout)
        outputs.append((weights @ value_NTD).transpose(0, 1))
    output_MND = torch.cat(outputs) if outputs else torch.zeros_like(shared_MND)
    return output_MND if value_scale_ND is None else output_MND * value_scale_ND


def _hidden(scores: torch.Tensor, key_mask: torch.Tensor | None, causal: bool, mask_diagonal: bool) -> torch.Tensor:
    length = scores.shape[-1]
    hidden = torch.zeros(length, length, dtype=torch.bool, device=scores.device)
    own = torch.eye(length, dtype=torch.bool, device=scores.device)
    if key_mask is not None:
        hidden = hidden | ~key_mask.bool()
    if causal:
        hidden = hidden | ~torch.ones_like(hidden).tril()
    if mask_diagonal:
        others = hidden | own
        # A token that sees no other sees itself.
        hidden = others & ~(own & others.all(-1, keepdim=True))
    return hidden
