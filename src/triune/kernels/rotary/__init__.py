"""Rotary positions: each pair of a head's dimensions is turned by an angle that grows with the position.

Used on scores only; values stay unturned. Pairs are (i, i + D/2), the layout that transformers uses. Importing this
package needs no Triton.
"""

import torch

from triune.kernels.triton_here import not_in_half_precision


def rotary_tables(positions_BT: torch.Tensor, head_width: int, base: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, (B, 1, T, D/2), in float32: angles of far positions need the precision."""
    exponents = torch.arange(0, head_width, 2, device=positions_BT.device, dtype=torch.float32) / head_width
    angles = positions_BT[:, None, :, None].float() * base**-exponents
    return angles.cos(), angles.sin()


def rotate(x_BNTD: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """In PyTorch's own operations."""
    first, second = x_BNTD.chunk(2, dim=-1)
    cos, sin = cos.to(x_BNTD.dtype), sin.to(x_BNTD.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def unsupported(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the kernel cannot run there, or None where it can."""
    return not_in_half_precision(device, dtype)


def rotate_in_one_pass(x_BNTD: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """`rotate`, computed in float32, for x of any strides; heads of a token lie beside each other in the result.

    Compiled PyTorch makes it a part of other kernels, where it computes a power, a cosine and a sine for each number.
    This is one pass over x, each way.
    """
    fitting = [(rows, 1, x_BNTD.shape[-2], x_BNTD.shape[-1] / 2) for rows in (1, x_BNTD.shape[0])]
    if x_BNTD.ndim != 4 or cos.shape != sin.shape or cos.shape not in fitting:
        given = f"{tuple(cos.shape)} and {tuple(sin.shape)}"
        raise ValueError(f"tables must be (B or 1, 1, T, D/2) for x of {tuple(x_BNTD.shape)}, not {given}")
    from triune.kernels.rotary import ops

    return ops.rotate(x_BNTD, cos, sin, False)
