"""What the machine can do at best, measured in the same run as what is compared with it."""

from dataclasses import dataclass

import torch

from triune.benchmarks.timing import best_seconds


@dataclass(frozen=True)
class Ceilings:
    flops_per_second: float  # of a large matrix product
    bytes_per_second: float  # read and written by a large copy on the device

    def least_seconds(self, flops: float, moved: float) -> float:
        """No implementation that does so much arithmetic and moves so many bytes is faster."""
        return max(flops / self.flops_per_second, moved / self.bytes_per_second)

    def nearer(self, flops: float, moved: float) -> str:
        """Which of the two is met first."""
        return "arithmetic" if flops / self.flops_per_second >= moved / self.bytes_per_second else "memory"


def measure_ceilings(device: torch.device, dtype: torch.dtype) -> Ceilings:
    return Ceilings(matmul_rate(device, dtype), copy_rate(device))


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of one large square matrix product; the best of several tries."""
    size = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / best_seconds(lambda: torch.matmul(a, b), device)


def copy_rate(device: torch.device) -> float:
    """Bytes/s of one copy that no cache holds, read and written counted; the best of several tries."""
    size = 2**30 if device.type == "cuda" else 2**26
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / best_seconds(lambda: target.copy_(source), device)
