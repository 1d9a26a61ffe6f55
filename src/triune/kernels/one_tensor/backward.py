"""The backward kernels: a block of tokens gathers its gradient as value, key and query in one pass, without atomics.

Scores are symmetric, so one tile of them serves both directions. For the block's tokens j and all tokens i of its
sequence, with dO the gradient of the output, P the weights, δ_i = dO_i·O_i and dS_ij = P_ij∘(dP_ij − δ_i):

    value_j = Σ_i P_ij·dO_i            G_j = Σ_i (dS_ij + dS_ji)·S_i
    dS_j = value_j + c∘G_j             dc = ½·Σ_j S_j∘G_j             dv = Σ_i dO'_i∘O'_i / v

The kernels work on dO = dO'∘v, the gradient before the value vector v (dO' and O' are those after it). The vector's
own gradient then has v as a divisor; where v is zero a tiny number stands for it everywhere (`value_factors`).

`both_ways` computes that as it stands: three score-like products and two exponentials a pair of tokens. The scores of
the two directions are the same number, but not the same after rounding: (S_i∘c)·S_j in the forward pass of row i,
(S_j∘c)·S_i here. That matters only where scores are so large that a rounding error of them is a factor in a weight;
there (`EXACT`) the other direction gets a product of its own, rounded as in the forward pass.

`one_way` needs one exponential and half the element-wise work. Weights are E_ij·r_i with the symmetric E = 2^(s − μ)
and r_i = 2^(μ − L_i), for any number μ that all tokens of a sequence share. With dO~ = r∘dO and δ~ = r∘δ,

    value_j = Σ_i E_ij·dO~_i           dS_ij + dS_ji = E_ij∘(S_j·dO~_i + dO~_j·S_i − δ~_i − δ~_j)

where the two inner products are one accumulation. It is exact as long as r stays far inside the range of the exponent,
that is while the levels L of a sequence lie within ±50 of μ, above -50 and below 100; the kernels look at L and take
`both_ways`, exact, where they do not. Dropout, causal and key masks differ by direction: they take `both_ways` as well.
"""

import triton
import triton.language as tl

from triune.kernels.one_tensor.pieces import (
    LOG2_E,
    dropout_keep,
    dropout_rows,
    load_numbers,
    load_rows,
    rotated,
    seen,
    sequence_bounds,
    turned_back,
    value_factors,
)

WIDEST = tl.constexpr(50.0)  # how far levels may lie from μ, in powers of two
TOO_WIDE = tl.constexpr(1.0e30)  # stands for μ where they lie further


@triton.jit
def middle_level(low, high):
    """μ, or `TOO_WIDE` where levels lie too far apart or scores are too large to be the same in both directions."""
    middle = (low + high) * 0.5
    # Beyond the end of a sequence E is 2^-μ and meets δ~, 2^(μ - L) at most: their product must be a number.
    fits = (low <= high) & (high - low <= 2 * WIDEST) & (low >= -WIDEST) & (high <= 2 * WIDEST)
    return tl.where(fits, middle, TOO_WIDE)


@triton.jit
def prepare_kernel(
    Out, DOut, V, L, Delta, Scaled, Middle, Partial, Cu,
    stride_out_token, stride_out_head, stride_token, stride_head, tokens, length, row_blocks, heads,
    D: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, EVEN: tl.constexpr, PACKED: tl.constexpr,
    SYMMETRIC: tl.constexpr, SCALED_VALUES: tl.constexpr, SHORTEST: tl.constexpr,
):  # fmt: skip
    """μ of each sequence, δ of each token, dO, and parts of dv; for `one_way` dO~ and δ~ in the place of dO and δ."""
    program = tl.program_id(0)
    head = (program % heads).to(tl.int64)  # its offsets may pass 2^31
    sequence = program // heads // row_blocks
    block = program // heads % row_blocks
    part = (program // heads).to(tl.int64)
    begin, count = sequence_bounds(Cu, sequence, length, PACKED)
    dims = tl.arange(0, D)
    if (block * ROWS >= count) | (count < SHORTEST):
        if SCALED_VALUES:
            tl.store(Partial + (part * heads + head) * D + dims, 0.0)
        return
    rows = block * ROWS + tl.arange(0, ROWS)
    out = load_rows(Out + begin * stride_out_token + head * stride_out_head, rows, dims, stride_out_token, count, EVEN)
    d_out = load_rows(DOut + begin * stride_token + head * stride_head, rows, dims, stride_token, count, EVEN)
    L += head * tokens + begin
    products = out.to(tl.float32) * d_out.to(tl.float32)
    delta = tl.sum(products, 1)
    if SCALED_VALUES:
        tl.store(Partial + (part * heads + head) * D + dims, tl.sum(products, 0))
    inside = rows < count
    share = tl.full((ROWS,), 1.0, tl.float32)
    low = tl.full((CHUNK,), float("inf"), tl.float32)
    high = tl.full((CHUNK,), float("-inf"), tl.float32)
    for start in range(0, count, CHUNK):
        places = start + tl.arange(0, CHUNK)
        low = tl.minimum(low, tl.load(L + places, mask=places < count, other=float("inf")))
        high = tl.maximum(high, tl.load(L + places, mask=places < count, other=float("-inf")))
    middle = middle_level(tl.min(low, 0), tl.max(high, 0))
    if block == 0:
        tl.store(Middle + sequence * heads + head, middle)
    if SYMMETRIC:
        if middle != TOO_WIDE:
            share = tl.exp2(middle - tl.load(L + rows, mask=inside, other=0.0))
    if SYMMETRIC or SCALED_VALUES:
        scaled = d_out * share[:, None]
        if SCALED_VALUES:
            scaled = scaled * value_factors(V + head * D, dims)[None, :]
        places = Scaled + ((begin + rows)[:, None] * heads + head) * D + dims[None, :]
        tl.store(places, scaled.to(d_out.dtype), mask=inside[:, None])
    delta = delta * share
    tl.store(Delta + head * tokens + begin + rows, delta, mask=inside)


@triton.jit
def store_gradients(
    value, pair, c, DS, Cos, Sin, rows, count, heads,
    D: tl.constexpr, ROWS: tl.constexpr, EVEN: tl.constexpr, ROTARY: tl.constexpr,
):  # fmt: skip
    score_part = pair * c[None, :]
    if ROTARY:
        score_part = turned_back(score_part, Cos, Sin, rows, count, D, ROWS)
    places = DS + rows[:, None] * (heads * D) + tl.arange(0, D)[None, :]
    gradient = (value + score_part).to(DS.dtype.element_ty)
    if EVEN:
        tl.store(places, gradient)
    else:
        tl.store(places, gradient, mask=(rows < count)[:, None])


@triton.jit
def both_ways(
    own, own_turned, own_scaled, c, v, S, Scaled, L, Delta, KeyMask, Cos, Sin, Seed,
    rows, count, stride, stride_scaled, head_of_all, keep_share,
    D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, SCALED_VALUES: tl.constexpr, MASKED: tl.constexpr,
    ROTARY: tl.constexpr, CAUSAL: tl.constexpr, NO_SELF: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, STAGES: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    kind: tl.constexpr = own.dtype
    dims = tl.arange(0, D)
    inside = rows < count
    own_level = tl.load(L + rows, mask=inside, other=float("inf"))
    own_delta = tl.load(Delta + rows, mask=inside, other=0.0)
    own_random = dropout_rows(Seed, head_of_all, rows, DROPOUT)
    query = (own_turned * (c * LOG2_E)[None, :]).to(kind)
    value = tl.zeros((ROWS, D), tl.float32)
    pair = tl.zeros((ROWS, D), tl.float32)
    if MASKED:
        own_shown = tl.load(KeyMask + rows, mask=inside, other=0) != 0
    tl.assume(count > 0)  # see forward.py
    for start in tl.range(0, count, COLS, num_stages=STAGES):
        cols = start + tl.arange(0, COLS)
        tile = load_rows(S, cols, dims, stride, count, False)
        scaled = load_rows(Scaled, cols, dims, stride_scaled, count, False)
        if SCALED_VALUES:
            scaled = (scaled * v[None, :]).to(kind)
        level = load_numbers(L, cols, count, False, float("inf"))
        delta = load_numbers(Delta, cols, count, False, 0.0)
        turned = rotated(tile, S, Cos, Sin, cols, stride, count, D, ROTARY)
        scores = tl.dot(query, tl.trans(turned), input_precision=PRECISION)
        key_scores = scores
        if EXACT:
            other_query = (turned * (c * LOG2_E)[None, :]).to(kind)
            key_scores = tl.dot(own_turned, tl.trans(other_query), input_precision=PRECISION)
        as_key = seen(cols[None, :], rows[:, None], count, NO_SELF, CAUSAL)  # the column's token asks
        as_query = seen(rows[:, None], cols[None, :], count, NO_SELF, CAUSAL)  # the row's token asks
        if MASKED:
            as_key = as_key & own_shown[:, None]
            as_query = as_query & (load_numbers(KeyMask, cols, count, False, 0) != 0)[None, :]
        above_key = key_scores - level[None, :]
        above_query = scores - own_level[:, None]
        if EXACT:  # a level of millions is rounded to whole numbers: a weight is still at most one
            above_key = tl.minimum(above_key, 0.0)
            above_query = tl.minimum(above_query, 0.0)
        key_weights = tl.where(as_key, tl.exp2(above_key), 0.0)
        query_weights = tl.where(as_query, tl.exp2(above_query), 0.0)
        d_key = tl.dot(own, tl.trans(scaled), input_precision=PRECISION)
        d_query = tl.dot(own_scaled, tl.trans(tile), input_precision=PRECISION)
        kept_weights = key_weights
        if DROPOUT:
            kept = dropout_keep(dropout_rows(Seed, head_of_all, cols, DROPOUT)[None, :], rows[:, None], keep_share)
            kept_weights = tl.where(kept, key_weights / keep_share, 0.0)
            d_key = tl.where(kept, d_key / keep_share, 0.0)
            kept = dropout_keep(own_random[:, None], cols[None, :], keep_share)
            d_query = tl.where(kept, d_query / keep_share, 0.0)
        d_scores = key_weights * (d_key - delta[None, :]) + query_weights * (d_query - own_delta[:, None])
        value = tl.dot(kept_weights.to(kind), scaled, value, input_precision=PRECISION)
        pair = tl.dot(d_scores.to(kind), turned, pair, input_precision=PRECISION)
    return value, pair


@triton.jit
def one_way(
    own, own_turned, own_scaled, c, S, Scaled, Delta, Cos, Sin, middle, rows, count, stride, stride_scaled,
    D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr, ROTARY: tl.constexpr,
    NO_SELF: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    kind: tl.constexpr = own.dtype
    dims = tl.arange(0, D)
    own_delta = load_numbers(Delta, rows, count, EVEN, 0.0)
    query = (own_turned * (c * LOG2_E)[None, :]).to(kind)
    value = tl.zeros((ROWS, D), tl.float32)
    pair = tl.zeros((ROWS, D), tl.float32)
    tl.assume(count > 0)  # see forward.py
    for start in tl.range(0, count, COLS, num_stages=STAGES):
        cols = start + tl.arange(0, COLS)
        tile = load_rows(S, cols, dims, stride, count, EVEN)
        scaled = load_rows(Scaled, cols, dims, stride_scaled, count, EVEN)
        delta = load_numbers(Delta, cols, count, EVEN, 0.0)
        turned = rotated(tile, S, Cos, Sin, cols, stride, count, D, ROTARY)
        scores = tl.dot(query, tl.trans(turned), input_precision=PRECISION)
        change = tl.dot(own, tl.trans(scaled), input_precision=PRECISION)
        change = tl.dot(own_scaled, tl.trans(tile), change, input_precision=PRECISION)
        even = tl.exp2(scores - middle)
        if NO_SELF:
            even = tl.where(seen(rows[:, None], cols[None, :], count, True, False), even, 0.0)
        value = tl.dot(even.to(kind), scaled, value, input_precision=PRECISION)
        change = even * (change - own_delta[:, None] - delta[None, :])
        pair = tl.dot(change.to(kind), turned, pair, input_precision=PRECISION)
    return value, pair


@triton.jit
def backward_kernel(
    S, C, L, Delta, Scaled, Middle, Cu, KeyMask, Cos, Sin, Seed, DS, Partial,
    stride_token, stride_head, stride_scaled_token, stride_scaled_head, tokens, length, row_blocks, heads, keep_share,
    D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, SAFE_COLS: tl.constexpr, EVEN: tl.constexpr,
    PACKED: tl.constexpr, SYMMETRIC: tl.constexpr, MASKED: tl.constexpr, ROTARY: tl.constexpr, CAUSAL: tl.constexpr,
    NO_SELF: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
    SHORTEST: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    head = (program % heads).to(tl.int64)  # its offsets may pass 2^31
    sequence = program // heads // row_blocks
    block = program // heads % row_blocks
    part = (program // heads).to(tl.int64)
    begin, count = sequence_bounds(Cu, sequence, length, PACKED)
    dims = tl.arange(0, D)
    Partial += (part * heads + head) * D
    if (block * ROWS >= count) | (count < SHORTEST):
        tl.store(Partial + dims, 0.0)  # every program owns a place for its part of dc
        return
    rows = block * ROWS + tl.arange(0, ROWS)
    S += begin * stride_token + head * stride_head
    Scaled += begin * stride_scaled_token + head * stride_scaled_head
    DS += (begin * heads + head) * D
    L += head * tokens + begin
    Delta += head * tokens + begin
    KeyMask += begin
    Cos += begin * (D // 2)
    Sin += begin * (D // 2)
    c = tl.load(C + head * D + dims).to(tl.float32)
    own = load_rows(S, rows, dims, stride_token, count, EVEN)
    own_scaled = load_rows(Scaled, rows, dims, stride_scaled_token, count, EVEN)
    own_turned = rotated(own, S, Cos, Sin, rows, stride_token, count, D, ROTARY)
    middle = tl.load(Middle + sequence * heads + head)
    if middle == TOO_WIDE:
        value, pair = both_ways(
            own, own_turned, own_scaled, c, c, S, Scaled, L, Delta, KeyMask, Cos, Sin, Seed, rows, count, stride_token,
            stride_scaled_token, sequence * heads + head, keep_share, D, ROWS, SAFE_COLS, False, MASKED, ROTARY,
            CAUSAL, NO_SELF, DROPOUT, PRECISION, 1, True,
        )  # fmt: skip
    elif SYMMETRIC:
        value, pair = one_way(
            own, own_turned, own_scaled, c, S, Scaled, Delta, Cos, Sin, middle, rows, count, stride_token,
            stride_scaled_token, D, ROWS, COLS, EVEN, ROTARY, NO_SELF, PRECISION, STAGES,
        )  # fmt: skip
    else:
        value, pair = both_ways(
            own, own_turned, own_scaled, c, c, S, Scaled, L, Delta, KeyMask, Cos, Sin, Seed, rows, count, stride_token,
            stride_scaled_token, sequence * heads + head, keep_share, D, ROWS, COLS, False, MASKED, ROTARY,
            CAUSAL, NO_SELF, DROPOUT, PRECISION, STAGES, False,
        )  # fmt: skip
    store_gradients(value, pair, c, DS, Cos, Sin, rows, count, heads, D, ROWS, EVEN, ROTARY)
    # Loaded once more, past the first-level cache so that the compiler does not keep the first load in registers.
    # Rows beyond the sequence have S = 0: they add nothing.
    places = S + rows[:, None] * stride_token + dims[None, :]
    own = tl.load(places, mask=(rows < count)[:, None], other=0.0, cache_modifier=".cg")
    own_turned = rotated(own, S, Cos, Sin, rows, stride_token, count, D, ROTARY)
    tl.store(Partial + dims, tl.sum(own_turned.to(tl.float32) * pair, 0))
