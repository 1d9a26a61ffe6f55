"""What the machine can do at best, measured in the same run as what is compared with it."""

import time

import torch


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of one large square matrix product; the best of several tries."""
    size = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(8):
        _wait(device)
        began = time.perf_counter()
        torch.matmul(a, b)
        _wait(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
