"""Rotary positions: each pair of a head's dimensions is turned by an angle that grows with the position.

Used on scores only; values stay unturned. Pairs are (i, i + D/2), the layout that transformers uses.
"""

import torch


def rotary_tables(positions_BT: torch.Tensor, head_width: int, base: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, (B, 1, T, D/2), in float32: angles of far positions need the precision."""
    exponents = torch.arange(0, head_width, 2, device=positions_BT.device, dtype=torch.float32) / head_width
    angles = positions_BT[:, None, :, None].float() * base**-exponents
    return angles.cos(), angles.sin()


def rotate(x_BNTD: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x_BNTD.chunk(2, dim=-1)
    cos, sin = cos.to(x_BNTD.dtype), sin.to(x_BNTD.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
