"""Tiles by trial: an option for shapes or GPUs that the table was not measured for.

Nothing is tried unless `one_tensor.tune(True)` asks for it: the first call of a shape then takes seconds, in which the
candidates are compiled and timed on its own tensors. What was found is kept for the process.
"""

import statistics
import time
from collections.abc import Callable, Hashable, Sequence

import torch

from triune.kernels.one_tensor.tiles import Tiles

SAMPLES = 5

_enabled = False
_found: dict[Hashable, Tiles | None] = {}
_trying = False


def enable(enabled: bool) -> None:
    global _enabled
    _enabled = enabled


def is_enabled() -> bool:
    """Whether a call may try; not while it is tried itself, nor while a CUDA graph is captured."""
    return _enabled and not _trying and not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def found() -> dict[Hashable, Tiles | None]:
    """What was tried so far: the fastest tiles for each kind of call; None is what the table says."""
    return dict(_found)


def fastest(
    key: Hashable, candidates: Sequence[Tiles], run: Callable[[Tiles | None], object], device: torch.device
) -> Tiles | None:
    """Of the table's choice (None) and candidates that run at all (one may need more shared memory than there is), the
    one with the least time."""
    global _trying
    if key not in _found:
        _trying = True
        try:
            times = {tiles: _seconds(run, tiles, device) for tiles in (None, *candidates)}
        finally:
            _trying = False
        _found[key] = min(times, key=lambda tiles: times[tiles])
    return _found[key]


def _seconds(run: Callable[[Tiles | None], object], tiles: Tiles | None, device: torch.device) -> float:
    from triton.runtime.errors import OutOfResources, PTXASError

    try:
        run(tiles)  # compiled here
    except (OutOfResources, PTXASError):
        return float("inf")
    return statistics.median(_once(run, tiles, device) for _ in range(SAMPLES))


def _once(run: Callable[[Tiles | None], object], tiles: Tiles | None, device: torch.device) -> float:
    if device.type != "cuda":
        began = time.perf_counter()
        run(tiles)
        return time.perf_counter() - began
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run(tiles)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3
