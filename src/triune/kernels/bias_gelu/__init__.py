"""Bias and exact GELU in one pass, with the bias' gradient in the pass of the other: `gelu(x + bias)`.

The feed-forward half of a layer is widest here. Compiled PyTorch computes `erf` so slowly that arithmetic bounds it,
not memory, and it reads the gradient once more to sum it for the bias. Importing this package needs no Triton.
"""

import torch

from triune.kernels.triton_here import not_in_half_precision


def unsupported(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the kernels cannot run there, or None where they can; float32 is left to PyTorch, whose `erf` is exact."""
    return not_in_half_precision(device, dtype)


def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """`gelu(x + bias)` for x (..., width) and bias (width,), computed in float32, in the dtype of x."""
    from triune.kernels.bias_gelu import ops

    return ops.bias_gelu(x, bias)
