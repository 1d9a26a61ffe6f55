"""Results as tables for the terminal."""

from typing import Any

from triune.benchmarks.record import Result
from triune.report.tables import Table


def conditions(record: dict[str, Any]) -> list[str]:
    """What ran where, and the ceilings: notes under a table."""
    ran = record["ran"]
    packages = ", ".join(f"{name} {number or 'not installed'}" for name, number in ran["versions"].items())
    threads = "" if ran["threads"] is None else f" ({ran['threads']} threads)"
    lines = [f"{ran['device']}{threads}: {packages}."]
    flops, moved = record["ceilings"]["flops_per_second"], record["ceilings"]["bytes_per_second"]
    lines.append(
        f"Ceilings measured in this run: {rate(flops)}FLOP/s in a large matrix product, {rate(moved)}B/s in a "
        "large copy (read and written). Share: of the nearer one, a for arithmetic, m for memory."
    )
    return lines


def failures(results: list[Result]) -> list[str]:
    """A line for each reason, with the contestants that it stopped."""
    stopped: dict[tuple[str, str], list[str]] = {}
    for one in results:
        if one["failed"] is not None:
            stopped.setdefault((one["contestant"], one["failed"]), []).append(str(one.get("shape", "")))
    lines = []
    for (contestant, reason), shapes in stopped.items():
        where = ", ".join(dict.fromkeys(shapes))
        lines.append(f"not measured: {contestant}{f' at {where}' if where else ''}: {reason}")
    return lines


def figures(result: Result, what: list[str]) -> list[str]:
    """Cells of a result; those of one that was not measured are dashes."""
    return [_CELLS[name](result) if _is_there(result, name) else "–" for name in what]


TITLES = {
    "rows": "rows",
    "mean_tokens": "tokens a row",
    "seconds": "s an epoch",
    "spread_seconds": "min – max",
    "milliseconds_a_step": "ms a step",
    "milliseconds": "ms",
    "spread": "min – max",
    "times_faster": "faster",
    "flops_per_second": "FLOP/s",
    "bytes_per_second": "B/s",
    "share_of_ceiling": "share",
    "peak_bytes": "peak MiB",
    "memory_ratio": "ratio",
    "tokens_per_second": "tokens/s",
    "sequences_per_second": "sequences/s",
}


def result_table(title: str, results: list[Result], text: dict[str, str], what: list[str]) -> Table:
    """`text` names columns of text by the keys of a result, `what` the figures beside them."""
    table = Table(title, [*text.values(), *(TITLES[name] for name in what)], text_columns=len(text))
    table.rows = [[*(str(one[key]) for key in text), *figures(one, what)] for one in results]
    return table


def attention_tables(record: dict[str, Any]) -> list[Table]:
    s = record["settings"]
    what = ["milliseconds", "spread", "times_faster", "flops_per_second", "bytes_per_second", "share_of_ceiling"]
    more = "".join([", causal" if s["causal"] else "", f", dropout {s['dropout']:g}" if s["dropout"] else ""])
    tables = []
    for direction in dict.fromkeys(one["direction"] for one in record["results"]):
        title = f"Attention, {direction}: {s['tokens']:,} tokens, {s['heads']} heads × {s['head_width']}, {s['dtype']}"
        rows = [one for one in record["results"] if one["direction"] == direction]
        text = {"shape": "tokens a sequence" if record["packings"] is None else "lengths", "contestant": "contestant"}
        tables.append(result_table(title + more, rows, text, [*what, "peak_bytes"]))
    notes = [
        f"Median of {s['repeats']} samples each, taken in turn; not compiled. One-tensor kernel: {record['kernel']}.",
        "Faster: so many times, than the best that ran here on separate queries, keys and values.",
    ]
    for one in record["packings"] or []:
        notes.append(
            f"{one['name']}: {one['sequences']:,} sequences of {one['mean']:.1f} tokens, at most {one['longest']}; "
            f"padded to that, {one['padding']:.0%} would be padding."
        )
    tables[-1].notes = [*failures(record["results"]), *notes, *conditions(record)]
    return tables


def step_tables(record: dict[str, Any]) -> list[Table]:
    s = record["settings"]
    what = ["milliseconds", "spread", "tokens_per_second", "times_faster", "flops_per_second", "share_of_ceiling"]
    title = (
        f"Training step, {s['recipe']}: {s['sequences']:,} sequences of {s['length']:,} tokens, {s['layers']} layers × "
        f"{s['width']}, {s['precision']}"
    )
    text = {"contestant": "contestant", "compiled": "compiled", "attention": "attention"}
    table = result_table(title, record["results"], text, [*what, "peak_bytes", "memory_ratio"])
    table.notes = [
        *failures(record["results"]),
        *_reasons(record["results"]),
        f"Median of {s['rounds']} samples of {s['steps_a_round']} steps or more, taken in turn, on {s['source']}.",
        *_against(
            record["results"],
            "Faster (so many times) and ratio (of peak memory): against the better of transformers' rows, whose head "
            f"computes logits at every position. Layers of ours are {s['norm_position']}-norm, BERT's post-norm.",
        ),
        *conditions(record),
    ]
    return [table]


def inference_tables(record: dict[str, Any]) -> list[Table]:
    s = record["settings"]
    what = ["milliseconds", "spread", "sequences_per_second", "times_faster", "flops_per_second", "bytes_per_second"]
    text = {"shape": "rows × tokens", "contestant": "contestant", "compiled": "compiled", "attention": "attention"}
    title = f"Encoder, forward: {s['size']} ({s['layers']} layers × {s['width']}), {s['dtype']}"
    table = result_table(title, record["results"], text, [*what, "share_of_ceiling", "peak_bytes"])
    table.notes = [
        *failures(record["results"]),
        *_reasons(record["results"]),
        f"Median of {s['repeats']} samples each, taken in turn; calls follow each other without a pause.",
        *_against(record["results"], "Faster: so many times, than the faster of transformers' rows of the same shape."),
        *conditions(record),
    ]
    return [table]


def finetune_tables(record: dict[str, Any]) -> list[Table]:
    s = record["settings"]
    what = ["rows", "mean_tokens", "seconds", "spread_seconds", "milliseconds_a_step", "times_faster"]
    what += ["flops_per_second", "bytes_per_second", "share_of_ceiling", "peak_bytes", "memory_ratio"]
    title = f"An epoch of fine-tuning: {s['size']}, batch {s['batch']}, {s['precision']}"
    rows = [one | {"task": one["task"] + (" (subset)" if one["subset"] else "")} for one in record["results"]]
    table = result_table(title, rows, {"task": "task", "contestant": "contestant"}, what)
    how = dict.fromkeys(f"{one['contestant']}: {one['how']}." for one in record["results"] if one["how"])
    table.notes = [
        *failures(record["results"]),
        f"Median of {s['rounds']} warm epochs each, taken in turn. Faster (so many times) and ratio (of peak memory): "
        "against transformers. FLOP/s: of the real tokens, without padding.",
        *how,
        *conditions(record),
    ]
    return [table]


def rate(value: float) -> str:
    """With the prefix of its unit: 4.1e12 → "4.1 T"."""
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g} "


def _reasons(results: list[Result]) -> list[str]:
    """Why each attention ran, and which kernels that were."""
    said = []
    for one in results:
        if one.get("reason"):
            said.append(f"attention {one['attention']}: {one['reason']}.")
        if one.get("kernels"):
            shape = f" at {one['shape']}" if "shape" in one else ""
            said.append(f"one-tensor kernels of {one['contestant']}{shape}: {', '.join(one['kernels'])}.")
    return list(dict.fromkeys(said))


def _against(results: list[Result], text: str) -> list[str]:
    """What ratios mean, where there are any."""
    return [text] if any(one["library"] for one in results) else []


def _is_there(result: Result, name: str) -> bool:
    key = "spread" if name == "spread_seconds" else name
    return result["failed"] is None and result.get(key) is not None


def _spread(result: Result) -> str:
    low, high = result["spread"]
    return f"{low:.4g} – {high:.4g}"


def _spread_seconds(result: Result) -> str:
    low, high = result["spread"]
    return f"{low / 1e3:.2f} – {high / 1e3:.2f}"


_CELLS = {
    "rows": lambda one: f"{one['rows']:,}",
    "mean_tokens": lambda one: f"{one['mean_tokens']:.1f}",
    "seconds": lambda one: f"{one['seconds']:.2f}",
    "spread_seconds": _spread_seconds,
    "milliseconds_a_step": lambda one: f"{one['milliseconds_a_step']:.1f}",
    "milliseconds": lambda one: f"{one['milliseconds']:.4g}",
    "spread": _spread,
    "times_faster": lambda one: f"{one['times_faster']:.2f}",
    "flops_per_second": lambda one: rate(one["flops_per_second"]),
    "bytes_per_second": lambda one: rate(one["bytes_per_second"]),
    "share_of_ceiling": lambda one: f"{one['share_of_ceiling']:.0%} {one['nearer_ceiling'][0]}",
    "peak_bytes": lambda one: f"{one['peak_bytes'] / 2**20:,.0f}",
    "memory_ratio": lambda one: f"{one['memory_ratio']:.2f}",
    "tokens_per_second": lambda one: f"{one['tokens_per_second']:,.0f}",
    "sequences_per_second": lambda one: f"{one['sequences_per_second']:,.1f}",
}
