"""What a benchmark keeps: where it ran, the ceilings, and a result for each contestant and shape."""

import json
import platform
import statistics
from collections.abc import Collection, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from triune.benchmarks.ceilings import Ceilings
from triune.benchmarks.timing import Entry
from triune.errors import TriuneError
from triune.files import write_text
from triune.version import __version__

Result = dict[str, Any]
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def bench_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def dtype_named(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise TriuneError(f"unknown dtype '{name}': there are {', '.join(DTYPES)}")
    return DTYPES[name]


def surroundings(device: torch.device) -> dict[str, Any]:
    """Where it ran: what a figure means nothing without."""
    packages: dict[str, str | None] = {}
    for name in ("torch", "triton", "transformers"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": None if device.type == "cuda" else torch.get_num_threads(),
        "versions": {"triune": __version__, "python": platform.python_version(), **packages},
    }


def result_of(entry: Entry, flops: float, moved: float, ceilings: Ceilings, **place: Any) -> Result:
    """`flops` and `moved` (bytes) are those of one call: what the computation needs, however it is done."""
    result: Result = {**place, "contestant": entry.name, **entry.about, "failed": entry.failed}
    result |= {"flops": flops, "bytes": moved, "peak_bytes": entry.peak_bytes}
    if entry.failed is not None:
        return result
    median = statistics.median(entry.seconds)
    quartiles = statistics.quantiles(entry.seconds, n=4, method="inclusive") if len(entry.seconds) > 1 else [median] * 3
    return result | {
        "milliseconds": 1e3 * median,
        "spread": [1e3 * min(entry.seconds), 1e3 * max(entry.seconds)],
        "quartiles": [1e3 * quartiles[0], 1e3 * quartiles[2]],
        "samples": len(entry.seconds),
        "flops_per_second": flops / median,
        "bytes_per_second": moved / median,
        "share_of_ceiling": ceilings.least_seconds(flops, moved) / median,
        "nearer_ceiling": ceilings.nearer(flops, moved),
        "warm_up_seconds": entry.warm_up_seconds,
    }


def add_ratios(results: Iterable[Result], references: Collection[str]) -> None:
    """Each against the fastest, and the one with the smallest peak, of the references; all of one shape."""
    results = list(results)
    those = [one for one in results if one["contestant"] in references and one["failed"] is None]
    fastest = min(those, key=lambda one: one["milliseconds"], default=None)
    smallest = min((one["peak_bytes"] for one in those if one["peak_bytes"]), default=None)
    for one in results:
        if one["failed"] is None:
            one["reference"] = fastest and fastest["contestant"]
            one["times_faster"] = fastest and fastest["milliseconds"] / one["milliseconds"]
        one["memory_ratio"] = one["peak_bytes"] / smallest if one["peak_bytes"] and smallest else None


def record_of(benchmark: str, device: torch.device, ceilings: Ceilings, **parts: Any) -> dict[str, Any]:
    limits = {"flops_per_second": ceilings.flops_per_second, "bytes_per_second": ceilings.bytes_per_second}
    return {"benchmark": benchmark, "ran": surroundings(device), "ceilings": limits, **parts}


def write_results(record: dict[str, Any], out: Path) -> list[Path]:
    """OUT/NAME.json and OUT/NAME-roofline.svg; the record last, so that where it is all is."""
    from triune.benchmarks.roofline import draw_roofline

    written, figure = out / f"{record['benchmark']}.json", out / f"{record['benchmark']}-roofline.svg"
    draw_roofline(record, figure)
    write_text(written, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    return [written, figure]
