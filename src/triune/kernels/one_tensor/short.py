"""Sequences that fit into one tile: forward and backward of a whole sequence and head at once.

A program stays with one head and walks through the sequences, so that the next tile is on its way from memory while
this one is computed. Forward needs no running maximum. Backward (`one_way` of backward.py with rows and columns the
same tokens) needs neither the output nor a pass before it: δ comes from sums over rows of what is there anyway.
Sequences whose levels lie too far apart for `one_way` are marked in `Middle` and left to `short_safe_kernel`.
"""

import triton
import triton.language as tl

from triune.kernels.one_tensor.backward import TOO_WIDE, both_ways, middle_level, store_gradients
from triune.kernels.one_tensor.forward import store_rows
from triune.kernels.one_tensor.pieces import (
    LOG2_E,
    dropout_keep,
    dropout_rows,
    load_rows,
    rotated,
    seen,
    sequence_bounds,
    value_factors,
    visible,
)

SAFE_COLS = tl.constexpr(16)


@triton.jit
def short_forward_kernel(
    S, C, V, Out, L, Cu, KeyMask, Cos, Sin, Seed,
    stride_token, stride_head, tokens, length, sequences, heads, keep_share,
    D: tl.constexpr, TILE: tl.constexpr, EVEN: tl.constexpr, PACKED: tl.constexpr, SCALED_VALUES: tl.constexpr,
    MASKED: tl.constexpr, ROTARY: tl.constexpr, CAUSAL: tl.constexpr, NO_SELF: tl.constexpr, DROPOUT: tl.constexpr,
    SAVE: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    head = (program % heads).to(tl.int64)  # its offsets may pass 2^31
    dims = tl.arange(0, D)
    rows = tl.arange(0, TILE)
    S += head * stride_head
    Out += head * D
    L += head * tokens
    V += head * D
    c = tl.load(C + head * D + dims).to(tl.float32) * LOG2_E
    for sequence in tl.range(program // heads, sequences, tl.num_programs(0) // heads, num_stages=STAGES):
        begin, count = sequence_bounds(Cu, sequence, length, PACKED)
        base = S + begin * stride_token
        tile = load_rows(base, rows, dims, stride_token, count, EVEN)
        turned = rotated(
            tile, base, Cos + begin * (D // 2), Sin + begin * (D // 2), rows, stride_token, count, D, ROTARY
        )
        query = (turned * c[None, :]).to(tile.dtype)
        scores = tl.dot(query, tl.trans(turned), input_precision=PRECISION)
        scores = visible(scores, rows, rows, count, KeyMask + begin, EVEN, MASKED, CAUSAL, NO_SELF)
        top = tl.max(scores, 1)
        if MASKED or CAUSAL or NO_SELF or not EVEN:
            top = tl.where(top == float("-inf"), 0.0, top)
        weights = tl.exp2(scores - top[:, None])
        total = tl.sum(weights, 1)
        if DROPOUT:
            random = dropout_rows(Seed, sequence * heads + head, rows, DROPOUT)
            weights = tl.where(dropout_keep(random[:, None], rows[None, :], keep_share), weights, 0.0)
        sums = tl.dot(weights.to(tile.dtype), tile, input_precision=PRECISION)
        store_rows(
            top, total, sums, V, Out + begin * heads * D, L + begin, rows, count, heads, keep_share,
            D, EVEN, SCALED_VALUES, DROPOUT, SAVE, MASKED,
        )  # fmt: skip


@triton.jit
def short_backward_kernel(
    S, C, V, DOut, L, Middle, Cu, Cos, Sin, DS, Partial,
    stride_token, stride_head, stride_d_out_token, stride_d_out_head, tokens, length, sequences, heads,
    D: tl.constexpr, TILE: tl.constexpr, EVEN: tl.constexpr, PACKED: tl.constexpr, SCALED_VALUES: tl.constexpr,
    ROTARY: tl.constexpr, NO_SELF: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    head = (program % heads).to(tl.int64)  # its offsets may pass 2^31
    dims = tl.arange(0, D)
    rows = tl.arange(0, TILE)
    S += head * stride_head
    DOut += head * stride_d_out_head
    DS += head * D
    L += head * tokens
    c = tl.load(C + head * D + dims).to(tl.float32)
    v = c
    if SCALED_VALUES:
        v = value_factors(V + head * D, dims)
    d_c = tl.zeros((D,), tl.float32)
    d_v = tl.zeros((D,), tl.float32)
    for sequence in tl.range(program // heads, sequences, tl.num_programs(0) // heads, num_stages=STAGES):
        begin, count = sequence_bounds(Cu, sequence, length, PACKED)
        base = S + begin * stride_token
        tile = load_rows(base, rows, dims, stride_token, count, EVEN)
        d_out = load_rows(DOut + begin * stride_d_out_token, rows, dims, stride_d_out_token, count, EVEN)
        level = tl.load(L + begin + rows, mask=rows < count, other=0.0)
        kind: tl.constexpr = tile.dtype
        cos = Cos + begin * (D // 2)
        sin = Sin + begin * (D // 2)
        turned = rotated(tile, base, cos, sin, rows, stride_token, count, D, ROTARY)
        if EVEN:
            middle = middle_level(tl.min(level, 0), tl.max(level, 0))
        else:
            low = tl.min(tl.where(rows < count, level, float("inf")), 0)
            middle = middle_level(low, tl.max(tl.where(rows < count, level, float("-inf")), 0))
        tl.store(Middle + sequence * heads + head, middle)
        # Of a sequence that is left to the other kernel all factors are zero, so that it adds nothing here.
        fits = middle != TOO_WIDE
        middle = tl.where(fits, middle, 0.0)
        share = tl.where(fits, tl.exp2(middle - level), 0.0)
        score_factors = tl.where(fits, c * LOG2_E, 0.0)
        if SCALED_VALUES:
            scaled = (d_out * share[:, None] * v[None, :]).to(kind)
        else:
            scaled = (d_out * share[:, None]).to(kind)
        query = (turned * score_factors[None, :]).to(kind)
        scores = tl.dot(query, tl.trans(turned), input_precision=PRECISION)
        even = tl.exp2(scores - middle)
        if NO_SELF:
            even = tl.where(seen(rows[:, None], rows[None, :], count, NO_SELF, False), even, 0.0)
        change = tl.dot(scaled, tl.trans(tile), input_precision=PRECISION)
        delta = share * tl.sum(even * change, 1)
        change = tl.dot(tile, tl.trans(scaled), change, input_precision=PRECISION)
        value = tl.dot(even.to(kind), scaled, input_precision=PRECISION)
        change = even * (change - delta[:, None] - delta[None, :])
        pair = tl.dot(change.to(kind), turned, input_precision=PRECISION)
        d_c += tl.sum(turned.to(tl.float32) * pair, 0)
        if SCALED_VALUES:
            d_v += tl.sum(tile.to(tl.float32) * value, 0)
        store_gradients(value, pair, c, DS + begin * heads * D, cos, sin, rows, count, heads, D, TILE, EVEN, ROTARY)
    places = Partial + ((program // heads) * 2 * heads + head) * D + dims
    tl.store(places, d_c)
    if SCALED_VALUES:
        tl.store(places + heads * D, d_v)


@triton.jit
def safe_tile(
    c, v, S, DOut, L, Delta, Cos, Sin, stride, stride_d_out, count,
    D: tl.constexpr, TILE: tl.constexpr, SCALED_VALUES: tl.constexpr, ROTARY: tl.constexpr, NO_SELF: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """δ by a loop of its own, since no output was read; then `both_ways`."""
    rows = tl.arange(0, TILE)
    dims = tl.arange(0, D)
    own = load_rows(S, rows, dims, stride, count, False)
    kind: tl.constexpr = own.dtype
    own_turned = rotated(own, S, Cos, Sin, rows, stride, count, D, ROTARY)
    own_scaled = load_rows(DOut, rows, dims, stride_d_out, count, False)
    if SCALED_VALUES:
        own_scaled = (own_scaled * v[None, :]).to(kind)
    query = (own_turned * (c * LOG2_E)[None, :]).to(kind)
    level = tl.load(L + rows, mask=rows < count, other=float("inf"))
    delta = tl.zeros((TILE,), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    for start in range(0, count, SAFE_COLS):
        cols = start + tl.arange(0, SAFE_COLS)
        tile = load_rows(S, cols, dims, stride, count, False)
        turned = rotated(tile, S, Cos, Sin, cols, stride, count, D, ROTARY)
        scores = tl.dot(query, tl.trans(turned), input_precision=PRECISION)
        weights = tl.exp2(tl.minimum(scores - level[:, None], 0.0))
        weights = tl.where(seen(rows[:, None], cols[None, :], count, NO_SELF, False), weights, 0.0)
        delta += tl.sum(weights * tl.dot(own_scaled, tl.trans(tile), input_precision=PRECISION), 1)
        total += tl.sum(weights, 1)
    # Levels this high are rounded so coarsely that weights do not sum to one: divided by their sum, δ is exact again.
    tl.store(Delta + rows, delta / tl.where(total == 0.0, 1.0, total), mask=rows < count)
    tl.debug_barrier()  # all threads of the block read what all wrote
    return both_ways(
        own, own_turned, own_scaled, c, v, S, DOut, L, Delta, S, Cos, Sin, S, rows, count, stride, stride_d_out, 0, 1.0,
        D, TILE, SAFE_COLS, SCALED_VALUES, False, ROTARY, False, NO_SELF, False, PRECISION, 1, True,
    )  # fmt: skip


@triton.jit
def short_safe_kernel(
    S, C, V, DOut, L, Delta, Middle, Cu, Cos, Sin, DS, Partial,
    stride_token, stride_head, stride_d_out_token, stride_d_out_head, tokens, length, sequences, heads,
    D: tl.constexpr, TILE: tl.constexpr, PACKED: tl.constexpr, SCALED_VALUES: tl.constexpr, ROTARY: tl.constexpr,
    NO_SELF: tl.constexpr, PRECISION: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The sequences that `short_backward_kernel` marked: usually none, and then one look is all it takes."""
    program = tl.program_id(0)
    head = (program % heads).to(tl.int64)  # its offsets may pass 2^31
    dims = tl.arange(0, D)
    rows = tl.arange(0, TILE)
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
                cos = Cos + begin * (D // 2)
                sin = Sin + begin * (D // 2)
                value, pair = safe_tile(
                    c, v, base, d_out, L + head * tokens + begin, Delta + head * tokens + begin, cos, sin, stride_token,
                    stride_d_out_token, count, D, TILE, SCALED_VALUES, ROTARY, NO_SELF, PRECISION,
                )  # fmt: skip
                own = load_rows(base, rows, dims, stride_token, count, False)
                turned = rotated(own, base, cos, sin, rows, stride_token, count, D, ROTARY)
                d_c += tl.sum(turned.to(tl.float32) * pair, 0)
                d_v += tl.sum(own.to(tl.float32) * value, 0)
                store_gradients(
                    value, pair, c, DS + (begin * heads + head) * D, cos, sin, rows, count, heads, D, TILE, False,
                    ROTARY,
                )  # fmt: skip
    places = Partial + ((program // heads) * 2 * heads + head) * D + dims
    tl.store(places, d_c)
    if SCALED_VALUES:
        tl.store(places + heads * D, d_v)
