"""Whole sequences on a Hopper GPU, in Gluon, the language below Triton's.

A sequence of up to 512 tokens fits into the shared memory of a multiprocessor. The tensor-copy engine brings it there
once, products take their right sides from it as it lies and their left sides from registers, and several are on their
way while scores become weights. Triton's own language has no way to say the last two (docs/kernels.md).

For whole tiles of 64 tokens, heads 64 wide, and nothing but c and v. All else is left to the other kernels.
"""

from functools import cache
from typing import Any, NamedTuple

import torch

from triune.kernels.one_tensor.call import LARGEST_SUM, Call, fills_gpu, pointer, programs_a_head
from triune.kernels.triton_here import capability, interpreted, no_triton

TILE = 64
# Gluon may change with any version of Triton. The first was measured on a GPU, the last compiles in the tests.
TRITON_VERSIONS = ("3.6", "3.9")


class Shape(NamedTuple):
    """How a kernel is compiled: warps of a program, programs that share a multiprocessor, sequences held at a time."""

    warps: int
    programs: int
    stages: int = 1
    registers: int | None = None
    ahead: bool = False  # scores of the next tile before the weights of this one are used


# By the number of tiles of a sequence. Those of 2, 4 and 8 were measured on an H200, the others go by them.
FORWARD = {
    2: Shape(4, 4, 2, 128),
    3: Shape(4, 4, 1, 128),
    4: Shape(4, 4, 1, 128),
    **{tiles: Shape(4, 3, 1, 168, ahead=True) for tiles in (5, 6, 7, 8)},
}
BACKWARD = {2: Shape(4, 2), 3: Shape(4, 2), 4: Shape(4, 2), 6: Shape(8, 1), 8: Shape(8, 1)}


@cache
def unusable(device: torch.device) -> str | None:
    """Why these kernels cannot run there, in a few words, or None where they can."""
    if (reason := no_triton(device)) is not None:
        return reason
    if interpreted():
        return "Triton's interpreter has no Gluon"
    if capability(device)[0] != 9:
        return "no Hopper GPU"
    import triton

    first, last = map(_minor, TRITON_VERSIONS)
    if not first <= _minor(triton.__version__) <= last:
        return f"Triton {triton.__version__} is not one of {' to '.join(TRITON_VERSIONS)}"
    return None


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def takes_shape(length: int, head_width: int, dtype: torch.dtype, plain: bool) -> bool:
    return plain and head_width == TILE and dtype.itemsize == 2 and length % TILE == 0 and length // TILE in FORWARD


def takes(shared: torch.Tensor, call: Call, save_levels: bool) -> bool:
    """Whether the forward kernel runs this call; for training, only where the backward kernel does so too.

    It rounds S∘c a little differently from the other kernels. Where scores are in the thousands that is a factor in
    weights, and levels must be those of the kernel that uses them.
    """
    if save_levels and (shared.dtype != torch.bfloat16 or call.max_length // TILE not in BACKWARD):
        return False
    if not takes_shape(call.max_length, shared.shape[2], shared.dtype, call.plain) or not _copied_by_engine(shared):
        return False
    return unusable(shared.device) is None and fills_gpu(call.sequences(shared.shape[0]), shared)


def takes_back(shared: torch.Tensor, call: Call, symmetric: bool) -> bool:
    """Whether the backward kernel does; `symmetric`: one exponential serves both directions (backward.py)."""
    return symmetric and takes(shared, call, save_levels=True)


def _copied_by_engine(tensor: torch.Tensor) -> bool:
    """Whether the tensor-copy engine can read it: heads beside each other, all in steps of 16 bytes."""
    beside = tensor.stride(1) == TILE and tensor.stride(0) >= tensor.shape[1] * TILE
    return beside and tensor.stride(0) % 8 == 0 and tensor.data_ptr() % 16 == 0


def run_forward(shared: torch.Tensor, call: Call, output: torch.Tensor, levels: torch.Tensor) -> None:
    from triune.kernels.one_tensor.hopper.forward import hopper_forward_kernel

    tokens, heads, _ = shared.shape
    tiles, sequences = call.max_length // TILE, call.sequences(tokens)
    shape = FORWARD[tiles]
    hopper_forward_kernel[(programs_a_head(shape.programs, sequences, shared) * heads,)](
        _described(shared, TILE), _described(output, TILE), call.score_scale, pointer(call.value_scale, shared), levels,
        tokens, sequences, heads, TILES=tiles, STAGES=shape.stages, SCALED_VALUES=call.value_scale is not None,
        SAVE=levels.numel() > 0, AHEAD=shape.ahead, LIMIT=LARGEST_SUM[shared.dtype],
        **_options(shape),
    )  # fmt: skip


def run_backward(
    d_output: torch.Tensor,
    shared: torch.Tensor,
    output: torch.Tensor,
    levels: torch.Tensor,
    d_shared: torch.Tensor,
    middle: torch.Tensor,
    parts: torch.Tensor,
    call: Call,
) -> None:
    """`parts`, (programs a head, 2, heads, width), gets what each program adds to dc and dv."""
    from triune.kernels.one_tensor.hopper.backward import hopper_backward_kernel

    tokens, heads, _ = shared.shape
    tiles = call.max_length // TILE
    shape = BACKWARD[tiles]
    d_output = d_output if _copied_by_engine(d_output) else d_output.contiguous()
    hopper_backward_kernel[(parts.shape[0] * heads,)](
        _described(shared, TILE), _described(d_output, TILE), _described(output, TILE),
        _described(d_shared, 16 * shape.warps), call.score_scale, pointer(call.value_scale, shared), levels, middle,
        parts, tokens, call.sequences(tokens), heads, TILES=tiles, SCALED_VALUES=call.value_scale is not None,
        WARPS=shape.warps, **_options(shape),
    )  # fmt: skip


def described(length: int, symmetric: bool) -> dict[str, str]:
    """What runs in each direction of a training step, in words; nothing where other kernels run."""
    tiles = length // TILE
    kernels = {"forward": FORWARD, "backward": BACKWARD} if symmetric and tiles in BACKWARD else {}
    return {
        direction: f"Hopper, {tiles} tiles resident, {shapes[tiles].warps} warps, {shapes[tiles].programs} programs"
        for direction, shapes in kernels.items()
        if tiles in shapes
    }


def _described(tensor: torch.Tensor, rows: int) -> Any:
    """For the tensor-copy engine: (tokens, heads·64) in tiles of `rows` by 64."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    shape = [tensor.shape[0], tensor.shape[1] * TILE]
    return TensorDescriptor(tensor, shape, [tensor.stride(0), 1], [rows, TILE], _layout())


@cache
def _layout() -> Any:
    from triton.experimental.gluon.language import NVMMASharedLayout

    return NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)


def _options(shape: Shape) -> dict[str, int]:
    return {"num_warps": shape.warps, **({"maxnreg": shape.registers} if shape.registers else {})}
