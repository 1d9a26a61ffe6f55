"""What the Hopper kernels share."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

LOG2_E = gl.constexpr(1.4426950408889634)
TINY = gl.constexpr(1.0e-12)
# Triton 3.6 has other names: all threads of a program wait for each other; a tile from memory, and back to it.
barrier = getattr(gl, "barrier", None) or gl.thread_barrier
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
REINTERPRET = gl.constexpr(hasattr(gl.shared_memory_descriptor, "reinterpret"))


@gluon.jit
def seen_as(memory, shape: gl.constexpr, layout: gl.constexpr):
    """The same shared memory in another shape."""
    if REINTERPRET:
        same = memory.reinterpret(memory.dtype, shape, layout)
    else:
        same = memory._reinterpret(memory.dtype, shape, layout)
    return same


@gluon.jit
def halves(numbers, KIND: gl.constexpr):
    """Numbers as the sum of two of half precision."""
    high = numbers.to(KIND)
    return high, (numbers - high.to(gl.float32)).to(KIND)


@gluon.jit
def times(tile, high, low):
    """tile∘(high + low), rounded once: two instructions for two elements, where a detour through float32 takes five."""
    if tile.dtype == gl.bfloat16:
        product = gl.inline_asm_elementwise(
            "{ .reg .b32 rest; mul.rn.bf16x2 rest, $1, $3; fma.rn.bf16x2 $0, $1, $2, rest; }",
            "=r,r,r,r", [tile, high, low], dtype=gl.bfloat16, is_pure=True, pack=2,
        )  # fmt: skip
    else:
        product = gl.inline_asm_elementwise(
            "{ .reg .b32 rest; mul.rn.f16x2 rest, $1, $3; fma.rn.f16x2 $0, $1, $2, rest; }",
            "=r,r,r,r", [tile, high, low], dtype=gl.float16, is_pure=True, pack=2,
        )  # fmt: skip
    return product


@gluon.jit
def value_factors(V, layout: gl.constexpr):
    """The value vector as all kernels use it: its gradient is divided by it, so zero becomes a tiny number."""
    v = gl.load(V + gl.arange(0, 64, layout)).to(gl.float32)
    return gl.where(gl.abs(v) < TINY, TINY, v)


@gluon.jit
def log2_of(numbers):
    """The hardware's own; the library's costs as much as a tenth of a block of 128 keys."""
    return gl.inline_asm_elementwise(
        "lg2.approx.ftz.f32 $0, $1;", "=f,f", [numbers], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def one_over(numbers):
    return gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [numbers], dtype=gl.float32, is_pure=True, pack=1
    )
