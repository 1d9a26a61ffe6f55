"""Times taken side by side: contestants take turns, so that a device that slows down does so for all of them.

On CUDA a sample is the time between two events around several calls; warming up lies before all samples. A contestant
that cannot run is an entry with the reason, and the others go on.
"""

import gc
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from triune.errors import TriuneError, one_line
from triune.kernels import one_tensor

Run = Callable[[], Any]
SPAN = 3e-3  # seconds that a sample takes at least: many times what a clock or an event can tell apart
MOST_CALLS = 64
WARM_CALLS = 2  # after the first
LONGEST_REASON = 200
FIRST_SLEEP, LONGEST_SLEEP = 4e-3, 1.0  # seconds
CYCLES_A_SECOND = 2e9  # no GPU of today is faster: it sleeps at least so long
_wanted: ContextVar[tuple[str, ...]] = ContextVar("wanted", default=())


@dataclass
class Entry:
    """A contestant: how it is made, and after its warm-up what to call, or why it cannot be called."""

    name: str
    make: Callable[[], Run]
    own_bytes: Callable[[], int] = lambda: 0  # memory that it holds between calls: inputs, weights, optimiser
    about: dict[str, Any] = field(default_factory=dict)  # what else its record says; `make` may add to it
    times_itself: bool = False  # `make` warms it up too, and a call returns the seconds that count
    run: Run | None = None
    failed: str | None = None
    peak_bytes: int | None = None
    warm_up_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def only(texts: Sequence[str]) -> Iterator[None]:
    """Within it, benchmarks keep those contestants whose name contains one of the texts; without texts all."""
    before = _wanted.set(tuple(texts))
    try:
        yield
    finally:
        _wanted.reset(before)


def _leave_out(entries: list[Entry]) -> None:
    """Those that `only` does not name; they are nobody's reference either."""
    texts, names = _wanted.get(), [entry.name for entry in entries]
    for text in texts:
        if not any(text in name for name in names):
            raise TriuneError(f"no contestant's name contains '{text}': there are {'; '.join(names)}")
    if texts:
        entries[:] = [entry for entry in entries if any(text in entry.name for text in texts)]


def warm_up(entries: list[Entry], device: torch.device, where: str = "") -> None:
    """Make and call each, and say so on standard error: kernels are chosen and compiled here.

    Entries that `only` leaves out are taken off the list. `where` is the shape, if there are several.

    The peak of memory is that of the calls after the first, as if no other contestant were alive: what a call adds to
    what was allocated before it, and what this contestant holds between calls. A CUDA graph is recorded in the second
    call; what it replays later is not seen by the allocator.
    """
    _leave_out(entries)
    for entry in entries:
        began = time.perf_counter()
        one_tensor.launched()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                (_make_warm if entry.times_itself else _make_and_call)(entry, device)
            except Exception as error:  # whatever a backend raises: the others are still to be measured
                entry.failed = _reason(error, [str(one.message) for one in said])
        entry.warm_up_seconds = time.perf_counter() - began
        if kernels := sorted(one_tensor.launched()):
            entry.about["kernels"] = kernels
        if entry.failed is not None:
            entry.own_bytes = int  # what it held can go
            release(device)
        state = "warm" if entry.failed is None else "not measured"
        place = f"{where}, " if where else ""
        print(f"{state}: {place}{entry.name} ({entry.warm_up_seconds:.1f} s)", file=sys.stderr, flush=True)


def _make_and_call(entry: Entry, device: torch.device) -> None:
    run = entry.make()
    run()
    before = _start_peak(device)
    for _ in range(WARM_CALLS):
        run()
    wait_for(device)
    if before is not None:
        entry.peak_bytes = torch.cuda.max_memory_allocated(device) - before + entry.own_bytes()
    entry.run = run


def _make_warm(entry: Entry, device: torch.device) -> None:
    """The peak is all that it adds, from before it is made to the end of its warm-up."""
    release(device)  # what others left would be given back meanwhile, and be missing from the sum
    before = _start_peak(device)
    entry.run = entry.make()
    wait_for(device)
    if before is not None:
        entry.peak_bytes = torch.cuda.max_memory_allocated(device) - before


def take_turns(entries: Sequence[Entry], rounds: int, device: torch.device, queued: bool = False) -> None:
    """A sample of each in every round, into its `seconds`; each round begins with another.

    `queued`: a CUDA device sleeps before each sample until all calls wait in its queue: what is timed is then the
    device's work, and not Python's.
    """
    calls: dict[str, int] = {}
    sleeps = {entry.name: FIRST_SLEEP for entry in entries} if queued and device.type == "cuda" else {}

    def sample(entry: Entry, times: int) -> float:
        assert entry.run is not None
        if entry.times_itself:
            return float(entry.run())
        while True:
            sleep = sleeps.get(entry.name, 0.0)
            seconds, launching = _sample(entry.run, times, device, sleep)
            if not sleep or launching < 0.8 * sleep or sleep > LONGEST_SLEEP:
                return seconds
            sleeps[entry.name] = 2 * launching

    for number in range(rounds):
        begin = number % len(entries)
        for entry in [*entries[begin:], *entries[:begin]]:
            if entry.run is None:
                continue
            try:
                if entry.name not in calls and not entry.times_itself:
                    once = sample(entry, 1)
                    calls[entry.name] = max(1, min(MOST_CALLS, math.ceil(SPAN / max(once, 1e-9))))
                entry.seconds.append(sample(entry, calls.get(entry.name, 1)))
            except Exception as error:  # out of memory, now that all others are alive
                entry.failed, entry.run, entry.seconds = _reason(error, []), None, []
                release(device)


def best_seconds(run: Run, device: torch.device, tries: int = 8) -> float:
    run()
    return min(_sample(run, 1, device)[0] for _ in range(tries))


def _sample(run: Run, calls: int, device: torch.device, sleep: float = 0.0) -> tuple[float, float]:
    """Seconds of one call, the mean of several in a row; and how long it took to launch them all."""
    if device.type != "cuda":
        began = time.perf_counter()
        for _ in range(calls):
            run()
        took = time.perf_counter() - began
        return took / calls, took
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    wait_for(device)
    if sleep:
        torch.cuda._sleep(int(sleep * CYCLES_A_SECOND))
    began = time.perf_counter()
    start.record()
    for _ in range(calls):
        run()
    end.record()
    launching = time.perf_counter() - began
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / calls, launching


def _start_peak(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    wait_for(device)
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


def release(device: torch.device) -> None:
    """Give back what contestants held that nobody asks for any more; an entry and how it is made hold each other."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _reason(error: Exception, warned: list[str]) -> str:
    """One line; PyTorch says in warnings why a backend does not take an input, and in the error only that none does."""
    said = [one_line(error)]
    if "No available kernel" in said[0] or "No viable backend" in said[0]:
        besides = ("not used because", "runtime disabled", "warn-only")
        why = [text.split(" (Triggered")[0] for text in dict.fromkeys(warned)]
        said = [text for text in why if not any(part in text for part in besides)] or said
    text = " ".join(" ".join(said).split())
    return text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + " …"
