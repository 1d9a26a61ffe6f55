"""The forward kernel: a block of rows against all keys of its sequence, with the key tile serving as values too.

Shapes in names: M tokens of all sequences · N heads · D head width. Scores are kept in units of log2, so that the
exponential is the hardware's own.

Without masks a token sees itself, so its own score is a shift under which a row's sum of weights is at least one: no
maximum has to be kept and no sum rescaled (`own_shift`). Only where another score lies so far above it that the sum
grows beyond `LIMIT` are the rows computed again with a running maximum (`running_maximum`), as they are under masks.
"""

import triton
import triton.language as tl

from triune.kernels.one_tensor.pieces import (
    LOG2_E,
    dropout_keep,
    dropout_rows,
    load_rows,
    rotated,
    sequence_bounds,
    value_factors,
    visible,
)


@triton.jit
def own_shift(
    S, C, KeyMask, Cos, Sin, Seed, stride, rows, count, last, head_of_all, keep_share,
    D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr, ROTARY: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Shift, sum of weights and weighted sum of S for each row."""
    dims = tl.arange(0, D)
    own = load_rows(S, rows, dims, stride, count, EVEN)
    kind: tl.constexpr = own.dtype
    own_turned = rotated(own, S, Cos, Sin, rows, stride, count, D, ROTARY)
    query = (own_turned * (tl.load(C + dims).to(tl.float32) * LOG2_E)[None, :]).to(kind)
    top = tl.sum(query.to(tl.float32) * own_turned.to(tl.float32), 1)
    random = dropout_rows(Seed, head_of_all, rows, DROPOUT)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, D), tl.float32)
    tl.assume(last > 0)  # a loop that may not run makes ptxas wait after each matrix instruction (C7515)
    for start in tl.range(0, last, COLS, num_stages=STAGES):
        cols = start + tl.arange(0, COLS)
        tile = load_rows(S, cols, dims, stride, count, EVEN)
        turned = rotated(tile, S, Cos, Sin, cols, stride, count, D, ROTARY)
        scores = tl.dot(query, tl.trans(turned), input_precision=PRECISION)
        scores = visible(scores, rows, cols, count, KeyMask, EVEN, False, CAUSAL, False)
        weights = tl.exp2(scores - top[:, None])
        total += tl.sum(weights, 1)
        if DROPOUT:
            weights = tl.where(dropout_keep(random[:, None], cols[None, :], keep_share), weights, 0.0)
        sums = tl.dot(weights.to(kind), tile, sums, input_precision=PRECISION)
    return top, total, sums


@triton.jit
def running_maximum(
    S, C, KeyMask, Cos, Sin, Seed, stride, rows, count, last, head_of_all, keep_share,
    D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, MASKED: tl.constexpr, ROTARY: tl.constexpr,
    CAUSAL: tl.constexpr, NO_SELF: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As `own_shift`, for any mask and any scores."""
    dims = tl.arange(0, D)
    own = load_rows(S, rows, dims, stride, count, False)
    kind: tl.constexpr = own.dtype
    own_turned = rotated(own, S, Cos, Sin, rows, stride, count, D, ROTARY)
    query = (own_turned * (tl.load(C + dims).to(tl.float32) * LOG2_E)[None, :]).to(kind)
    random = dropout_rows(Seed, head_of_all, rows, DROPOUT)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, D), tl.float32)
    tl.assume(last > 0)
    for start in tl.range(0, last, COLS, num_stages=STAGES):
        cols = start + tl.arange(0, COLS)
        tile = load_rows(S, cols, dims, stride, count, False)
        turned = rotated(tile, S, Cos, Sin, cols, stride, count, D, ROTARY)
        scores = tl.dot(query, tl.trans(turned), input_precision=PRECISION)
        scores = visible(scores, rows, cols, count, KeyMask, False, MASKED, CAUSAL, NO_SELF)
        higher = tl.maximum(top, tl.max(scores, 1))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - shift[:, None])
        fade = tl.exp2(top - shift)
        total = total * fade + tl.sum(weights, 1)
        if DROPOUT:
            weights = tl.where(dropout_keep(random[:, None], cols[None, :], keep_share), weights, 0.0)
        sums = sums * fade[:, None]
        sums = tl.dot(weights.to(kind), tile, sums, input_precision=PRECISION)
        top = higher
    return top, total, sums


@triton.jit
def store_rows(
    top, total, sums, V, Out, L, rows, count, heads, keep_share,
    D: tl.constexpr, EVEN: tl.constexpr, SCALED_VALUES: tl.constexpr, DROPOUT: tl.constexpr, SAVE: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    dims = tl.arange(0, D)
    if MASKED:
        empty = total == 0.0  # a row that sees nothing
        total = tl.where(empty, 1.0, total)
    scale = 1.0 / total
    if DROPOUT:
        scale = scale / keep_share
    result = sums * scale[:, None]
    if SCALED_VALUES:
        result = result * value_factors(V, dims)[None, :]
    places = Out + rows[:, None] * (heads * D) + dims[None, :]
    if EVEN:
        tl.store(places, result.to(Out.dtype.element_ty))
    else:
        tl.store(places, result.to(Out.dtype.element_ty), mask=(rows < count)[:, None])
    if SAVE:
        level = top + tl.log2(total)
        if MASKED:
            level = tl.where(empty, float("inf"), level)  # every weight is then zero in the backward kernels
        tl.store(L + rows, level, mask=rows < count)


@triton.jit
def forward_kernel(
    S, C, V, Out, L, Cu, KeyMask, Cos, Sin, Seed,
    stride_token, stride_head, tokens, length, row_blocks, heads, keep_share,
    D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr,
    PACKED: tl.constexpr, SCALED_VALUES: tl.constexpr, MASKED: tl.constexpr, ROTARY: tl.constexpr,
    CAUSAL: tl.constexpr, NO_SELF: tl.constexpr, DROPOUT: tl.constexpr, SAVE: tl.constexpr, LIMIT: tl.constexpr,
    PRECISION: tl.constexpr, STAGES: tl.constexpr, SAFE_COLS: tl.constexpr, SHORTEST: tl.constexpr,
):  # fmt: skip
    """Sequences of fewer tokens than `SHORTEST` are left to another kernel."""
    program = tl.program_id(0)
    head = (program % heads).to(tl.int64)  # its offsets may pass 2^31
    sequence = program // heads // row_blocks
    block = program // heads % row_blocks
    begin, count = sequence_bounds(Cu, sequence, length, PACKED)
    first = block * ROWS
    if (first >= count) | (count < SHORTEST):
        return
    rows = first + tl.arange(0, ROWS)
    S += begin * stride_token + head * stride_head
    Out += (begin * heads + head) * D
    L += head * tokens + begin
    C += head * D
    V += head * D
    KeyMask += begin
    Cos += begin * (D // 2)
    Sin += begin * (D // 2)
    last = tl.minimum(count, first + ROWS) if CAUSAL else count
    head_of_all = sequence * heads + head
    if MASKED or NO_SELF:
        top, total, sums = running_maximum(
            S, C, KeyMask, Cos, Sin, Seed, stride_token, rows, count, last, head_of_all, keep_share, D, ROWS, COLS,
            MASKED, ROTARY, CAUSAL, NO_SELF, DROPOUT, PRECISION, STAGES,
        )  # fmt: skip
        store_rows(
            top, total, sums, V, Out, L, rows, count, heads, keep_share, D, EVEN, SCALED_VALUES, DROPOUT, SAVE, MASKED
        )  # fmt: skip
    else:
        top, total, sums = own_shift(
            S, C, KeyMask, Cos, Sin, Seed, stride_token, rows, count, last, head_of_all, keep_share, D, ROWS, COLS,
            EVEN, ROTARY, CAUSAL, DROPOUT, PRECISION, STAGES,
        )  # fmt: skip
        # Stored before the look at it: what is computed again overwrites it, and nothing has to be kept for that.
        store_rows(
            top, total, sums, V, Out, L, rows, count, heads, keep_share, D, EVEN, SCALED_VALUES, DROPOUT, SAVE, MASKED
        )  # fmt: skip
        # Below one it lies only where its own score was rounded another way than the product rounds it.
        if tl.max(tl.where((total > 0.5) & (total < LIMIT) | (rows >= count), 0, 1), 0) != 0:
            top, total, sums = running_maximum(
                S, C, KeyMask, Cos, Sin, Seed, stride_token, rows, count, last, head_of_all, keep_share, D, ROWS,
                SAFE_COLS, False, ROTARY, CAUSAL, False, DROPOUT, PRECISION, 1,
            )  # fmt: skip
            store_rows(
                top, total, sums, V, Out, L, rows, count, heads, keep_share, D, EVEN, SCALED_VALUES, DROPOUT, SAVE,
                MASKED,
            )  # fmt: skip
