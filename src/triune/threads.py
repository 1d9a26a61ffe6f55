"""How many threads PyTorch computes with on the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads_at_most(count: int) -> Iterator[None]:
    """So many threads for what is computed inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
