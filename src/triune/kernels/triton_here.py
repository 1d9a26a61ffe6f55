"""Whether Triton's kernels can run on a device. Asked in every forward pass, so the answers are kept."""

import importlib.util
import os
from functools import cache

import torch

HALF = (torch.bfloat16, torch.float16)


def interpreted() -> bool:
    """Whether Triton's interpreter runs kernels on the CPU; Triton reads the setting when it is imported."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def no_triton(device: torch.device) -> str | None:
    """Why they cannot, in a few words, or None where they can."""
    if device.type != "cuda" and not (device.type == "cpu" and interpreted()):
        return "no CUDA device"
    if not _installed():
        return "Triton is not installed"
    if device.type == "cuda" and capability(device) < (8, 0):
        return "the GPU is older than compute capability 8.0"
    return None


def not_in_half_precision(device: torch.device, dtype: torch.dtype) -> str | None:
    """The same for kernels of elementwise steps, which leave float32 to PyTorch."""
    if (reason := no_triton(device)) is not None:
        return reason
    return None if dtype in HALF else f"{dtype} is not one of bfloat16, float16"


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


@cache
def capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


@cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
