"""Attention alone: PyTorch's on queries, keys and values of their own, and ours on one shared tensor.

All get the same number of tokens, heads and widths. Separate queries, keys and values are views of one product's
output (tokens, 3d), gradients are taken for each of them and need not be put together again: the kindest case for
PyTorch. The shared tensor is (tokens, d), with the scale c of the scores and the scale v of the output:

    softmax((S∘c)·Sᵀ)·S ∘ v
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

from triune.benchmarks.ceilings import Ceilings, measure_ceilings
from triune.benchmarks.packed import Packing, packings
from triune.benchmarks.record import Result, add_ratios, bench_device, dtype_named, record_of, result_of
from triune.benchmarks.timing import Entry, Run, bytes_of, release, take_turns, warm_up
from triune.errors import TriuneError
from triune.evaluation.comparing import REFERENCE
from triune.kernels import one_tensor

Tensors = tuple[torch.Tensor, ...]
Attend = Callable[..., torch.Tensor]  # from the inputs to (rows…, tokens, heads, width)
DIRECTIONS = ("forward", "forward + backward")
KERNEL = "one-tensor kernel"
SHARED = "SDPA, shared"
MOST_SETS = 64


@dataclass(frozen=True)
class AttentionSettings:
    tokens: int
    lengths: tuple[int, ...]  # of the sequences; empty where they are packed
    heads: int
    head_width: int
    dtype: str
    causal: bool = False
    dropout: float = 0.0
    packed: bool = False
    repeats: int = 10

    def check(self) -> None:
        dtype_named(self.dtype)
        sizes = {"--tokens": self.tokens, "--heads": self.heads, "--head-width": self.head_width}
        for name, value in sizes.items():
            if value < 1:
                raise TriuneError(f"{name} must be at least 1, not {value}")
        if not 0 <= self.dropout < 1:
            raise TriuneError(f"--dropout lies between 0 and 1, and below 1: it cannot be {self.dropout}")
        if self.packed and self.lengths:
            raise TriuneError("--packed draws its lengths: leave --lengths out")
        for length in self.lengths:
            if length < 1 or self.tokens % length:
                raise TriuneError(
                    f"sequences of {length} do not divide {self.tokens:,} tokens: change --lengths or --tokens"
                )

    @property
    def width(self) -> int:
        return self.heads * self.head_width


@dataclass
class Shape:
    """The sequences of one comparison: rows that are full, or packed ones, or the same padded."""

    name: str
    settings: AttentionSettings
    device: torch.device
    rows: int
    length: int
    packing: Packing | None = None
    bounds: torch.Tensor | None = None  # cumulative lengths of packed sequences
    mask: torch.Tensor | None = None  # which key a padded query sees
    sets: dict[str, list[Tensors]] = field(default_factory=dict)

    @property
    def pairs(self) -> float:
        """Queries times the keys that they see."""
        full = self.packing.pairs if self.packing else self.rows * self.length**2
        return full / 2 if self.settings.causal else full

    def inputs(self, kind: str) -> list[Tensors]:
        """Sets of inputs of one kind; so many that no cache holds all of them. Kept for those that share them."""
        if kind not in self.sets:
            first = self._make(kind)
            count = max(1, min(MOST_SETS, -(-3 * _cache_bytes(self.device) // bytes_of(first))))
            self.sets[kind] = [first, *(self._make(kind) for _ in range(count - 1))]
        return self.sets[kind]

    def _make(self, kind: str) -> Tensors:
        """`kind` is separate or shared; "…, padded" has a place for every row's longest."""
        s, device, dtype = self.settings, self.device, dtype_named(self.settings.dtype)
        padded = self.packing is None or kind.endswith("padded")
        lead = (self.rows, self.length) if padded else (s.tokens,)
        gradient = torch.randn(*lead, s.heads, s.head_width, device=device, dtype=dtype)
        if kind.startswith("separate"):
            fused = torch.randn(*lead, 3, s.heads, s.head_width, device=device, dtype=dtype)
            return (*(one.detach().requires_grad_() for one in fused.unbind(-3)), gradient)
        shared = torch.randn(*lead, s.heads, s.head_width, device=device, dtype=dtype)
        score = (1 + 0.1 * torch.randn(s.heads, s.head_width, device=device)) * s.head_width**-0.5
        value = 1 + 0.1 * torch.randn(s.heads, s.head_width, device=device)
        return (*(one.requires_grad_() for one in (shared, score, value)), gradient)


def bench_attention(settings: AttentionSettings) -> dict[str, Any]:
    settings.check()
    device, dtype = bench_device(), dtype_named(settings.dtype)
    torch.manual_seed(0)
    ceilings = measure_ceilings(device, dtype)
    results: list[Result] = []
    for shape in _shapes(settings, device):
        for direction in DIRECTIONS:
            results += _measure(shape, direction, ceilings)
        shape.sets.clear()
        release(device)
    parts = {"settings": asdict(settings), "compiled": False, "kernel": _kernel_state(settings, device)}
    packed = [one.describe() for one in packings(settings.tokens)] if settings.packed else None
    return record_of("attention", device, ceilings, **parts, packings=packed, results=results)


def _measure(shape: Shape, direction: str, ceilings: Ceilings) -> list[Result]:
    settings = shape.settings
    entries = [_entry(shape, direction, *one) for one in _contestants(shape)]
    warm_up(entries, shape.device, f"{shape.name}, {direction}")
    take_turns(entries, settings.repeats, shape.device, queued=True)
    results = []
    for entry in entries:
        flops, moved = attention_work(settings, shape.pairs, direction, entry.about["operator"])
        results.append(result_of(entry, flops, moved, ceilings, shape=shape.name, direction=direction))
    add_ratios(results, [one["contestant"] for one in results if one["operator"] == REFERENCE])
    return results


def attention_work(settings: AttentionSettings, pairs: float, direction: str, operator: str) -> tuple[float, float]:
    """FLOPs and bytes of one call: matrix products only, and every tensor moved once.

    Forward two products; backward five, with the scores made once more, as FlashAttention counts. Forward reads the
    inputs and writes the output; backward reads both and the output's gradient, and writes gradients.
    """
    inputs = 3 if operator == REFERENCE else 1
    tensors, products = inputs + 1, 2
    if direction != DIRECTIONS[0]:
        tensors, products = tensors + (inputs + 2) + inputs, products + 5
    element = dtype_named(settings.dtype).itemsize
    return products * 2.0 * pairs * settings.width, float(tensors * settings.tokens * settings.width * element)


def _shapes(settings: AttentionSettings, device: torch.device) -> Iterator[Shape]:
    for length in settings.lengths:
        yield Shape(f"{length:,}", settings, device, settings.tokens // length, length)
    if not settings.packed:
        return
    for packing in packings(settings.tokens):
        bounds = torch.tensor([0, *itertools.accumulate(packing.lengths)], dtype=torch.int32, device=device)
        longest = max(packing.lengths)
        seen = torch.arange(longest, device=device) < torch.tensor(packing.lengths, device=device)[:, None]
        mask = seen[:, None, None, :]
        if settings.causal:
            mask = mask & torch.ones(longest, longest, dtype=torch.bool, device=device).tril()
        yield Shape(packing.name, settings, device, len(packing.lengths), longest, packing, bounds, mask)


def _contestants(shape: Shape) -> list[tuple[str, str, Attend]]:
    """Name, kind of inputs, what to call."""
    on_cuda = shape.device.type == "cuda"
    if shape.packing is None:
        backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION if on_cuda else SDPBackend.MATH]
        separate = [(f"SDPA {_SPELLED[one]}", "separate", _separate(shape, one)) for one in backends]
        ours = [(KERNEL, "shared", _kernel(shape)), (f"{KERNEL}, without v", "shared", _kernel(shape, values=False))]
        return [*separate, (SHARED, "shared", _through_sdpa(shape)), *ours]
    backends = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION] if on_cuda else [SDPBackend.MATH]
    separate = [(f"SDPA {_SPELLED[one]}, padded", "separate, padded", _separate(shape, one)) for one in backends]
    return [
        *separate,
        ("flash varlen_attn, packed", "separate", _varlen(shape)),
        (f"{SHARED}, padded", "shared, padded", _through_sdpa(shape)),
        (f"{KERNEL}, packed", "shared", _kernel(shape)),
    ]


_SPELLED = {
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.CUDNN_ATTENTION: "cuDNN",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.MATH: "math",
}


def _separate(shape: Shape, backend: SDPBackend) -> Attend:
    options = _sdpa_options(shape)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel([backend]):
            output = sdpa(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), **options)
        return output.transpose(1, 2)

    return attend


def _through_sdpa(shape: Shape) -> Attend:
    """One tensor through PyTorch's attention, which chooses the backend: c is multiplied in before, v after."""
    options = _sdpa_options(shape)

    def attend(shared: torch.Tensor, score: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        query = (shared * score.to(shared.dtype)).transpose(1, 2)
        key = shared.transpose(1, 2)
        return sdpa(query, key, key, scale=1.0, **options).transpose(1, 2) * value.to(shared.dtype)

    return attend


def _sdpa_options(shape: Shape) -> dict[str, Any]:
    causal = shape.settings.causal and shape.mask is None  # a mask has it already
    return {"attn_mask": shape.mask, "is_causal": causal, "dropout_p": shape.settings.dropout}


def _varlen(shape: Shape) -> Attend:
    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention.varlen import varlen_attn

        if shape.settings.dropout:
            raise TriuneError("varlen_attn has no dropout")
        if shape.device.type != "cuda":
            raise TriuneError("varlen_attn needs a CUDA device")
        options: dict[str, Any] = {"window_size": (-1, 0)} if shape.settings.causal else {}
        bounds: Any = shape.bounds
        longest = shape.length
        output: Any = varlen_attn(query, key, value, bounds, bounds, longest, longest, **options)
        return output

    return attend


def _kernel(shape: Shape, values: bool = True) -> Attend:
    """Without the value vector it is what models run: there it is a factor on the output projection."""
    s = shape.settings

    def attend(shared: torch.Tensor, score: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        reason = one_tensor.unsupported(shape.device, shared.dtype, s.head_width)
        if reason is not None:
            raise TriuneError(reason)
        output: torch.Tensor = one_tensor.attention(
            shared.view(-1, s.heads, s.head_width),
            score,
            value if values else None,
            max_length=shape.length,
            cu_seqlens=shape.bounds,
            dropout=s.dropout,
            causal=s.causal,
        )
        return output.view(shared.shape)

    return attend


def _entry(shape: Shape, direction: str, name: str, kind: str, attend: Attend) -> Entry:
    operator = REFERENCE if kind.startswith("separate") else "shared"
    entry = Entry(name, lambda: _run(entry, shape, direction, kind, attend), about={"operator": operator})
    return entry


def _run(entry: Entry, shape: Shape, direction: str, kind: str, attend: Attend) -> Run:
    sets = shape.inputs(kind)
    turn = itertools.cycle(sets)
    entry.own_bytes = lambda: bytes_of(sets[0][:-1])  # the gradient that comes in is not its own

    def forward() -> None:
        *inputs, _ = next(turn)
        with torch.no_grad():
            attend(*inputs)

    def both() -> None:
        *inputs, gradient = next(turn)
        torch.autograd.grad(attend(*inputs), inputs, gradient, allow_unused=True)

    return forward if direction == DIRECTIONS[0] else both


def _kernel_state(settings: AttentionSettings, device: torch.device) -> str:
    dtype = dtype_named(settings.dtype)
    reason = one_tensor.unsupported(device, dtype, settings.head_width)
    if reason is not None:
        return f"absent: {reason}"
    symmetric = not (settings.causal or settings.dropout)
    tiles = {
        length: one_tensor.describe(dtype, settings.head_width, length, symmetric=symmetric)
        for length in settings.lengths
    }
    return "runs" + "".join(f". {length:,} tokens: {text}" for length, text in tiles.items())


def _cache_bytes(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).L2_cache_size) if device.type == "cuda" else 0
