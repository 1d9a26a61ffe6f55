"""The masked-LM loss over half-precision logits, without ever holding them all in float32.

Logits are the largest tensor of a step; in float32 they would be twice as large, and autograd would keep them so for
the way back. Compiled models need none of this: inductor computes the loss while it reads the logits.
"""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

IGNORED = -100  # the label of a position that has none
ELEMENTS_AT_ONCE = 2**24  # 64 MiB in float32


def label_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over the labels that are there; `logits` is (..., classes), `labels` (...)."""
    logits, labels = logits.flatten(0, -2), labels.flatten()
    if logits.dtype not in (torch.bfloat16, torch.float16) or torch.compiler.is_compiling():
        return nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED)
    return _CrossEntropyInPieces.apply(logits, labels)


def _pieces(logits: torch.Tensor) -> list[slice]:
    rows = max(1, ELEMENTS_AT_ONCE // logits.shape[-1])
    return [slice(start, start + rows) for start in range(0, logits.shape[0], rows)]


class _CrossEntropyInPieces(torch.autograd.Function):
    """Each way takes a few rows to float32 at a time; kept in between are the logits and one number a row."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        log_totals = torch.empty(logits.shape[0], dtype=torch.float32, device=logits.device)
        for piece in _pieces(logits):
            log_totals[piece] = logits[piece].float().logsumexp(-1)
        labelled = labels != IGNORED
        # As cross_entropy: a label that is no class is an error, on a GPU without waiting for it.
        torch._assert_async((~labelled | ((labels >= 0) & (labels < logits.shape[-1]))).all(), "a label is no class")
        of_labels = logits.gather(1, labels.clamp(min=0)[:, None]).squeeze(1).float()
        count = labelled.sum()
        ctx.save_for_backward(logits, labels, log_totals, count)
        return torch.where(labelled, log_totals - of_labels, 0.0).sum() / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits, labels, log_totals, count = ctx.saved_tensors
        labelled = labels != IGNORED
        weights = torch.where(labelled, grad_loss.float() / count, 0.0)[:, None]
        gradient = torch.empty_like(logits)
        for piece in _pieces(logits):
            exact = (logits[piece].float() - log_totals[piece, None]).exp_()
            exact.scatter_add_(1, labels[piece].clamp(min=0)[:, None], -torch.ones_like(exact[:, :1]))
            gradient[piece] = exact.mul_(weights[piece])
        return gradient, None
