"""Two biases, the residual sum and the norm after it in one pass, and all of their gradients in another.

Between the attention and the feed-forward half of a layer, compiled PyTorch reads the gradients once more for each
bias and twice for the norm's weights. Importing this package needs no Triton.
"""

import torch

from triune.kernels.triton_here import not_in_half_precision

WIDEST = 2048  # a program holds whole rows


def unsupported(device: torch.device, dtype: torch.dtype, width: int) -> str | None:
    """Why the kernels cannot run there, or None where they can; float32 is left to PyTorch."""
    if (reason := not_in_half_precision(device, dtype)) is not None:
        return reason
    if width > WIDEST:
        return f"states are {width} wide, more than {WIDEST}"
    return None


def add_norm(
    x: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    beta: torch.Tensor,
    next_bias: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`h + next_bias` and `layer_norm(h)` with `weight` and `beta`, for `h = x + bias + residual`.

    x and residual (..., width) in one dtype, which the results have too, and vectors (width,); computed in float32. The
    first result is what the product of the next projection, without its bias, is added to. Only it is kept for the
    backward pass: h is what is left of it without `next_bias`, for the norm as well. So h is rounded as finely as that
    sum, and a `next_bias` of 16 times its size costs a digit; in trained models it is a hundredth of it.
    """
    if residual.shape != x.shape or any(one.shape != x.shape[-1:] for one in (bias, weight, beta, next_bias)):
        raise ValueError(f"residual must have the shape of x, {tuple(x.shape)}, and the vectors that of its rows")
    from triune.kernels.add_norm import ops

    onward, normed, _, _ = ops.add_norm_forward(x, bias, residual, weight, beta, next_bias, eps)
    return onward, normed
