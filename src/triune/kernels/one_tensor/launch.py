"""From tensors to kernel launches: strides, grids, what is compiled in."""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import torch
import triton

from triune.kernels.one_tensor import hopper, tiles, tuning
from triune.kernels.one_tensor.backward import backward_kernel, prepare_kernel
from triune.kernels.one_tensor.call import (
    ALL_FLAGS,
    LARGEST_SUM,
    LAUNCHED,
    SYMMETRIC_FLAGS,
    Call,
    fills_gpu,
    pointer,
    programs_a_head,
)
from triune.kernels.one_tensor.forward import forward_kernel
from triune.kernels.one_tensor.pieces import sum_parts_kernel
from triune.kernels.one_tensor.resident import resident_backward_kernel, resident_forward_kernel
from triune.kernels.one_tensor.safe import safe_kernel
from triune.kernels.one_tensor.short import short_backward_kernel, short_forward_kernel
from triune.kernels.one_tensor.tiles import Tiles

SAFE_TOKENS = 4096  # of the sequences whose marks one program of `safe_kernel` looks at, and 64 sequences at most


Whole = Literal["hopper", "resident", "short"]


class Gradients(NamedTuple):
    shared: torch.Tensor
    score_scale: torch.Tensor
    value_scale: torch.Tensor


def run_forward(
    shared: torch.Tensor, call: Call, save_levels: bool, chosen: Tiles | None = None, short: bool | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output (M, N, D), and the levels L (N, M) that the backward pass needs (empty unless asked for)."""
    tokens, heads, width = shared.shape
    output = torch.empty((tokens, heads, width), dtype=shared.dtype, device=shared.device)
    levels = torch.empty((heads, tokens if save_levels else 0), dtype=torch.float32, device=shared.device)
    length, sequences = call.max_length, call.sequences(tokens)
    if not tokens or not sequences:
        return output, levels
    pointers = (
        shared, call.score_scale, pointer(call.value_scale, shared), output, levels, pointer(call.cu_seqlens, shared),
        pointer(call.key_mask, shared), pointer(call.cos, shared), pointer(call.sin, shared),
        pointer(call.seed, shared),
    )  # fmt: skip
    strides = (shared.stride(0), shared.stride(1), tokens, length)
    if chosen is None and short is None and tuning.is_enabled():
        usual = tiles.forward_tiles(length, width, shared.element_size())
        chosen = tuning.fastest(
            ("forward", _key(shared, call)),
            tiles.candidates(length, usual),
            lambda tried: run_forward(shared, call, save_levels, tried, None if tried is None else False),
            shared.device,
        )
        short = None if chosen is None else False
    if chosen is None and short is None and hopper.takes(shared, call, save_levels):
        LAUNCHED["hopper forward"] += 1
        hopper.run_forward(shared, call, output, levels)
        return output, levels
    if short is None and length > tiles.MIXED_TILE and not fills_gpu(sequences, shared):
        short = False
    if short is None and tiles.is_resident(length, width, shared.element_size(), call.plain, tiles.RESIDENT_FORWARD):
        chosen = chosen or tiles.RESIDENT_TILES
        LAUNCHED["resident forward"] += 1
        resident_forward_kernel[(programs_a_head(chosen.programs, sequences, shared) * heads,)](
            *pointers[:5], *strides, sequences, heads, D=width, EVEN=call.is_even(256), SAVE=save_levels,
            PRECISION="ieee", STAGES=chosen.stages, **call.flags("SCALED_VALUES"), **_options(chosen),
        )  # fmt: skip
        return output, levels
    compiled_in = {"D": width, "SAVE": save_levels, "PRECISION": _precision(shared.dtype), **call.flags(*ALL_FLAGS)}
    mixed = short is None and tiles.is_mixed(length, width, shared.element_size(), call.mean_length(tokens))
    if short is None:
        short = mixed or tiles.is_short(length, width, shared.element_size(), call.packed)
    if short:
        tile = _unhurried(chosen or tiles.short_forward_tiles(tiles.MIXED_TILE if mixed else length), call)
        LAUNCHED["short forward"] += 1
        short_forward_kernel[(programs_a_head(tile.programs, sequences, shared) * heads,)](
            *pointers, *strides, sequences, heads, 1.0 - call.dropout,
            TILE=tile.rows, EVEN=call.is_even(tile.rows), STAGES=tile.stages, **compiled_in, **_options(tile),
        )  # fmt: skip
        if not mixed:
            return output, levels
    chosen = _unhurried(chosen or tiles.forward_tiles(length, width, shared.element_size()), call)
    row_blocks = triton.cdiv(length, chosen.rows)
    LAUNCHED["forward"] += 1
    forward_kernel[(sequences * row_blocks * heads,)](
        *pointers, *strides, row_blocks, heads, 1.0 - call.dropout,
        ROWS=chosen.rows, COLS=chosen.cols, SAFE_COLS=min(chosen.cols, 32), STAGES=chosen.stages,
        EVEN=call.is_even(chosen.rows, chosen.cols), LIMIT=LARGEST_SUM[shared.dtype],
        SHORTEST=tiles.MIXED_TILE + 1 if mixed else 0, **compiled_in, **_options(chosen),
    )  # fmt: skip
    return output, levels


def run_backward(
    d_output: torch.Tensor,
    shared: torch.Tensor,
    output: torch.Tensor,
    levels: torch.Tensor,
    call: Call,
    chosen: Tiles | None = None,
    short: bool | None = None,
    symmetric: bool | None = None,
) -> Gradients:
    """Gradients of the tensor (M, N, D), of c and of v (N, D); the last is empty where there is no v."""
    tokens, heads, width = shared.shape
    number: dict[str, Any] = {"dtype": torch.float32, "device": shared.device}
    d_shared = torch.empty((tokens, heads, width), dtype=shared.dtype, device=shared.device)
    if not tokens or not call.sequences(tokens):
        nothing = torch.zeros((heads, width), **number)
        return Gradients(d_shared, nothing, nothing[: 0 if call.value_scale is None else heads].clone())
    bytes_each, length = shared.element_size(), call.max_length
    if symmetric is None:
        # float16 has too small an exponent for the rescaled gradient, and float32 gains little from it.
        symmetric = call.scores_stay_symmetric and shared.dtype == torch.bfloat16
    if chosen is None and short is None and tuning.is_enabled():
        usual, how = tiles.backward_tiles(length, width, bytes_each), symmetric
        chosen = tuning.fastest(
            ("backward", _key(shared, call)),
            tiles.candidates(length, usual),
            lambda tried: run_backward(
                d_output, shared, output, levels, call, tried, None if tried is None else False, how
            ),
            shared.device,
        )
        short = None if chosen is None else False
    tensors = (d_output, shared, output, levels, d_shared)
    free = chosen is None and short is None  # nothing is forced
    if short is None:
        short = symmetric and tiles.is_short(length, width, bytes_each, call.packed)
    if free and hopper.takes_back(shared, call, symmetric):
        parts = [_whole("hopper", *tensors, call, None)]
    elif free and symmetric and tiles.is_mixed(length, width, bytes_each, call.mean_length(tokens)):
        tile = tiles.short_backward_tiles(tiles.MIXED_TILE)
        parts = [_whole("short", *tensors, call, tile), _long(*tensors, call, None, True, tiles.MIXED_TILE + 1)]
    elif short:
        resident = tiles.is_resident(length, width, bytes_each, call.plain and symmetric, tiles.RESIDENT_BACKWARD)
        parts = [_whole("resident" if resident else "short", *tensors, call, chosen)]
    else:
        parts = [_long(*tensors, call, chosen, symmetric)]
    sums = [_sum(*both, shared, call) for both in parts]
    return Gradients(d_shared, _sum_of(one for one, _ in sums), _sum_of(one for _, one in sums))


def _sum_of(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    first, *others = tensors
    for other in others:
        first += other
    return first


def _sum(
    parts_c: torch.Tensor, parts_v: torch.Tensor, shared: torch.Tensor, call: Call
) -> tuple[torch.Tensor, torch.Tensor]:
    """dc and dv from what the programs of a kernel left."""
    heads, width = shared.shape[1:]
    scaled = call.value_scale is not None
    d_score = torch.empty((heads, width), dtype=torch.float32, device=shared.device)
    d_value = torch.empty((heads if scaled else 0, width), dtype=torch.float32, device=shared.device)
    sum_parts_kernel[(heads, 2 if scaled else 1)](
        parts_c, parts_v, pointer(call.value_scale, shared), d_score, d_value,
        parts_c.shape[0], parts_v.shape[0], parts_c.stride(0), parts_v.stride(0), heads,
        D=width, CHUNK=64, SCALED_VALUES=scaled, num_warps=8,
    )  # fmt: skip
    return d_score, d_value


def _whole(
    how: Whole,
    d_output: torch.Tensor,
    shared: torch.Tensor,
    output: torch.Tensor,
    levels: torch.Tensor,
    d_shared: torch.Tensor,
    call: Call,
    chosen: Tiles | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernels that hold a whole sequence, and after them the one for sequences that they leave."""
    tokens, heads, width = shared.shape
    sequences = call.sequences(tokens)
    usual = tiles.short_backward_tiles(call.max_length) if how == "short" else tiles.RESIDENT_TILES
    chosen = _unhurried(chosen or usual, call)
    if how == "hopper":
        shape = hopper.BACKWARD[call.max_length // hopper.TILE]
        programs = programs_a_head(shape.programs, sequences, shared)
    else:
        programs = programs_a_head(chosen.programs, sequences, shared)
    chunk = tiles.power_of_two(max(1, SAFE_TOKENS // call.max_length), 1, 64)
    checks = triton.cdiv(sequences, chunk)
    number: dict[str, Any] = {"dtype": torch.float32, "device": shared.device}
    parts = torch.empty((programs + checks, 2, heads, width), **number)
    middle = torch.empty((sequences, heads), **number)
    strides = (
        shared.stride(0), shared.stride(1), d_output.stride(0), d_output.stride(1), tokens, call.max_length, sequences,
        heads,
    )  # fmt: skip
    inputs = (shared, call.score_scale, pointer(call.value_scale, shared), d_output, levels)
    places = (middle, pointer(call.cu_seqlens, shared), pointer(call.cos, shared), pointer(call.sin, shared), d_shared)
    compiled_in: dict[str, Any] = {"D": width, "PRECISION": _precision(shared.dtype)}
    LAUNCHED[f"{how} backward"] += 1
    if how == "hopper":
        hopper.run_backward(d_output, shared, output, levels, d_shared, middle, parts[:programs], call)
    elif how == "short":
        short_backward_kernel[(programs * heads,)](
            *inputs, *places, parts, *strides, TILE=chosen.rows, EVEN=call.is_even(chosen.rows), STAGES=chosen.stages,
            **compiled_in, **call.flags(*SYMMETRIC_FLAGS), **_options(chosen),
        )  # fmt: skip
    else:
        resident_backward_kernel[(programs * heads,)](
            *inputs[:3], output, *inputs[3:], middle, d_shared, parts, *strides, EVEN=call.is_even(128),
            STAGES=chosen.stages, **compiled_in, **call.flags("SCALED_VALUES"), **_options(chosen),
        )  # fmt: skip
    scratch = torch.empty((2, heads, tokens), **number)
    safe_kernel[(checks * heads,)](
        *inputs[:4], *scratch, *places, parts[programs:], *strides, ROWS=tiles.power_of_two(call.max_length, 16, 64),
        CHUNK=chunk, **compiled_in, **call.flags(*SYMMETRIC_FLAGS), num_warps=4, num_stages=1,
    )  # fmt: skip
    return parts[:, 0], parts[:, 1]


def _long(
    d_output: torch.Tensor,
    shared: torch.Tensor,
    output: torch.Tensor,
    levels: torch.Tensor,
    d_shared: torch.Tensor,
    call: Call,
    chosen: Tiles | None,
    symmetric: bool,
    shortest: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernels that loop over columns; sequences of fewer tokens than `shortest` are not theirs."""
    tokens, heads, width = shared.shape
    length, sequences = call.max_length, call.sequences(tokens)
    chosen = _unhurried(chosen or tiles.backward_tiles(length, width, shared.element_size()), call)
    number: dict[str, Any] = {"dtype": torch.float32, "device": shared.device}
    delta = torch.empty((heads, tokens), **number)
    middle = torch.empty((sequences, heads), **number)
    rescaled = symmetric or call.value_scale is not None
    scaled = torch.empty_like(d_shared) if rescaled else d_output
    cu_seqlens, value_scale = pointer(call.cu_seqlens, shared), pointer(call.value_scale, shared)
    prepared_rows = tiles.power_of_two(length, 16, 64)
    blocks = triton.cdiv(length, prepared_rows)
    parts_v = torch.empty((sequences * blocks if call.value_scale is not None else 0, heads, width), **number)
    prepare_kernel[(sequences * blocks * heads,)](
        output, d_output, value_scale, levels, delta, scaled, middle, parts_v, cu_seqlens,
        output.stride(0), output.stride(1), d_output.stride(0), d_output.stride(1), tokens, length, blocks, heads,
        D=width, ROWS=prepared_rows, CHUNK=tiles.power_of_two(length, 16, 1024), EVEN=call.is_even(prepared_rows),
        SYMMETRIC=symmetric, SHORTEST=shortest, num_warps=4, **call.flags("PACKED", "SCALED_VALUES"),
    )  # fmt: skip
    row_blocks = triton.cdiv(length, chosen.rows)
    parts_c = torch.empty((sequences * row_blocks, heads, width), **number)
    LAUNCHED[f"backward, {'one way' if symmetric else 'both ways'}"] += 1
    backward_kernel[(sequences * row_blocks * heads,)](
        shared, call.score_scale, levels, delta, scaled, middle, cu_seqlens, pointer(call.key_mask, shared),
        pointer(call.cos, shared), pointer(call.sin, shared), pointer(call.seed, shared), d_shared, parts_c,
        shared.stride(0), shared.stride(1), scaled.stride(0), scaled.stride(1), tokens, length, row_blocks, heads,
        1.0 - call.dropout,
        D=width, ROWS=chosen.rows, COLS=chosen.cols, SAFE_COLS=min(chosen.cols, 32), STAGES=chosen.stages,
        EVEN=call.is_even(chosen.rows, chosen.cols), SYMMETRIC=symmetric, PRECISION=_precision(shared.dtype),
        SHORTEST=shortest, **call.flags("PACKED", "MASKED", "ROTARY", "CAUSAL", "NO_SELF", "DROPOUT"),
        **_options(chosen),
    )  # fmt: skip
    return parts_c, parts_v


def _unhurried(chosen: Tiles, call: Call) -> Tiles:
    """With rotary positions a tile is both turned and, as values, the right side of a product. Where the loop loads
    ahead, Triton (3.6, 3.9) overwrites it while that product still reads: results differed from call to call."""
    return chosen if call.cos is None else chosen._replace(stages=1)


def _key(shared: torch.Tensor, call: Call) -> tuple[Any, ...]:
    """What the best tiles depend on."""
    flags = tuple(call.flags(*ALL_FLAGS).values())
    tokens = 0 if call.packed else shared.shape[0]  # of packed batches each has another number
    mixed = tiles.is_mixed(call.max_length, shared.shape[2], shared.element_size(), call.mean_length(shared.shape[0]))
    return (shared.device, shared.dtype, tokens, mixed, *shared.shape[1:], call.max_length, *flags)


def _precision(dtype: torch.dtype) -> str:
    # Of float32 products only; the setting that PyTorch's own matrix products follow (reading the older `allow_tf32`
    # is an error where the newer one was set).
    asked = torch.backends.cuda.matmul.fp32_precision
    if asked == "none":
        asked = getattr(torch.backends, "fp32_precision", "none")
    return "tf32" if dtype == torch.float32 and asked == "tf32" else "ieee"


def _options(chosen: Tiles) -> dict[str, Any]:
    options: dict[str, Any] = {"num_warps": chosen.warps, "num_stages": chosen.stages}
    if chosen.registers:
        options["maxnreg"] = chosen.registers
    return options
