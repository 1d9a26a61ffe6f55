"""The sequences that the kernels with one exponential left, since their levels lie too far apart: both ways, exactly.

Usually there are none, and one look at the marks is all it takes.
"""

import triton
import triton.language as tl

from triune.kernels.one_tensor.backward import TOO_WIDE, both_ways, store_gradients
from triune.kernels.one_tensor.pieces import LOG2_E, load_rows, rotated, seen, sequence_bounds, value_factors

COLS = tl.constexpr(16)


@triton.jit
def store_levels(
    c, v, S, DOut, L, Delta, Cos, Sin, stride, stride_d_out, rows, count,
    D: tl.constexpr, ROWS: tl.constexpr, SCALED_VALUES: tl.constexpr, ROTARY: tl.constexpr, NO_SELF: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Levels once more, and δ. Where scores are in the thousands, levels of a kernel that rounds S∘c another way are
    not those of these weights, and δ from its output would not be theirs either."""
    dims = tl.arange(0, D)
    own = load_rows(S, rows, dims, stride, count, False)
    kind: tl.constexpr = own.dtype
    own_scaled = load_rows(DOut, rows, dims, stride_d_out, count, False)
    if SCALED_VALUES:
        own_scaled = (own_scaled * v[None, :]).to(kind)
    own_turned = rotated(own, S, Cos, Sin, rows, stride, count, D, ROTARY)
    query = (own_turned * (c * LOG2_E)[None, :]).to(kind)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    delta = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, count, COLS):
        cols = start + tl.arange(0, COLS)
        tile = load_rows(S, cols, dims, stride, count, False)
        turned = rotated(tile, S, Cos, Sin, cols, stride, count, D, ROTARY)
        scores = tl.dot(query, tl.trans(turned), input_precision=PRECISION)
        allowed = seen(rows[:, None], cols[None, :], count, NO_SELF, False)
        scores = tl.where(allowed, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        fade = tl.exp2(top - shift)
        weights = tl.exp2(scores - shift[:, None])
        changes = tl.dot(own_scaled, tl.trans(tile), input_precision=PRECISION)
        delta = delta * fade + tl.sum(weights * changes, 1)
        total = total * fade + tl.sum(weights, 1)
        top = higher
    tl.store(L + rows, top + tl.log2(total), mask=rows < count)
    tl.store(Delta + rows, delta / total, mask=rows < count)


@triton.jit
def safe_kernel(
    S, C, V, DOut, L, Delta, Middle, Cu, Cos, Sin, DS, Partial,
    stride_token, stride_head, stride_d_out_token, stride_d_out_head, tokens, length, sequences, heads,
    D: tl.constexpr, ROWS: tl.constexpr, PACKED: tl.constexpr, SCALED_VALUES: tl.constexpr, ROTARY: tl.constexpr,
    NO_SELF: tl.constexpr, PRECISION: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """A program looks at the marks of `CHUNK` sequences of a head. `L` and `Delta` are scratch."""
    program = tl.program_id(0)
    head = (program % heads).to(tl.int64)  # its offsets may pass 2^31
    dims = tl.arange(0, D)
    d_c = tl.zeros((D,), tl.float32)
    d_v = tl.zeros((D,), tl.float32)
    first = program // heads * CHUNK
    chunk = first + tl.arange(0, CHUNK)
    marks = tl.load(Middle + chunk * heads + head, mask=chunk < sequences, other=0.0) == TOO_WIDE
    if tl.max(marks.to(tl.int32), 0) != 0:
        c = tl.load(C + head * D + dims).to(tl.float32)
        v = c
        if SCALED_VALUES:
            v = value_factors(V + head * D, dims)
        for sequence in range(first, tl.minimum(first + CHUNK, sequences)):
            begin, count = sequence_bounds(Cu, sequence, length, PACKED)
            if (tl.load(Middle + sequence * heads + head) == TOO_WIDE) & (count > 0):
                base = S + begin * stride_token + head * stride_head
                d_out = DOut + begin * stride_d_out_token + head * stride_d_out_head
                levels = L + head * tokens + begin
                deltas = Delta + head * tokens + begin
                cos = Cos + begin * (D // 2)
                sin = Sin + begin * (D // 2)
                for start in range(0, count, ROWS):
                    rows = start + tl.arange(0, ROWS)
                    store_levels(
                        c, v, base, d_out, levels, deltas, cos, sin, stride_token, stride_d_out_token, rows, count,
                        D, ROWS, SCALED_VALUES, ROTARY, NO_SELF, PRECISION,
                    )  # fmt: skip
                tl.debug_barrier()  # all threads of the block read what all wrote
                for start in range(0, count, ROWS):
                    rows = start + tl.arange(0, ROWS)
                    own = load_rows(base, rows, dims, stride_token, count, False)
                    turned = rotated(own, base, cos, sin, rows, stride_token, count, D, ROTARY)
                    scaled = load_rows(d_out, rows, dims, stride_d_out_token, count, False)
                    if SCALED_VALUES:
                        scaled = (scaled * v[None, :]).to(own.dtype)
                    value, pair = both_ways(
                        own, turned, scaled, c, v, base, d_out, levels, deltas, S, cos, sin, S, rows, count,
                        stride_token, stride_d_out_token, 0, 1.0,
                        D, ROWS, COLS, SCALED_VALUES, False, ROTARY, False, NO_SELF, False, PRECISION, 1, True,
                    )  # fmt: skip
                    d_c += tl.sum(turned.to(tl.float32) * pair, 0)
                    d_v += tl.sum(own.to(tl.float32) * value, 0)
                    store_gradients(
                        value, pair, c, DS + (begin * heads + head) * D, cos, sin, rows, count, heads, D, ROWS, False,
                        ROTARY,
                    )  # fmt: skip
    places = Partial + ((program // heads) * 2 * heads + head) * D + dims
    tl.store(places, d_c)
    if SCALED_VALUES:
        tl.store(places + heads * D, d_v)
