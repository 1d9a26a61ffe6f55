"""Sequences that fit into one tile: forward and backward of a whole sequence and head at once.

A program stays with one head and walks through the sequences, so that the next tile is on its way from memory while
this one is computed. Forward needs no running maximum. Backward (`one_way` of backward.py with rows and columns the
same tokens) needs neither the output nor a pass before it: δ comes from sums over rows of what is there anyway.
Sequences whose levels lie too far apart for `one_way` are marked in `Middle` and left to `safe_kernel`.
"""

import triton
import triton.language as tl

from triune.kernels.one_tensor.backward import TOO_WIDE, middle_level, store_gradients
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
        if PACKED:
            count = tl.where(count > TILE, 0, count)  # left to the kernels that loop over columns
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
        if PACKED:
            count = tl.where(count > TILE, 0, count)  # left to the kernels that loop over columns
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
        tl.store(Middle + sequence * heads + head, tl.where(count == 0, 0.0, middle) if PACKED else middle)
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
