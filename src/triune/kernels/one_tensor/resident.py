"""Sequences of a few tiles that all stay in shared memory: backward up to 128 tokens, forward up to 256.

As in short.py a program stays with one head and walks through the sequences. A sequence is taken apart into tiles of 64
rows, so that four warps have few enough registers for two or three programs on a multiprocessor. The loop over
sequences is the only loop: with another inside it, tiles would not be loaded ahead. For uniform lengths without masks,
rotation and dropout.

Backward is `one_way` of backward.py with δ from the output. E and dS + dSᵀ are symmetric: what the first half of the
tokens has with the second is computed once and serves, transposed, the second half too. Sequences whose levels lie too
far apart are marked in `Middle` and left to `safe_kernel`.
"""

import triton
import triton.language as tl

from triune.kernels.one_tensor.backward import TOO_WIDE, middle_level
from triune.kernels.one_tensor.forward import store_rows
from triune.kernels.one_tensor.pieces import LOG2_E, load_numbers, load_rows, value_factors

TILE = tl.constexpr(64)


@triton.jit
def wider(low, high, other_low, other_high):
    return tl.minimum(low, other_low), tl.maximum(high, other_high)


@triton.jit
def tile_weights(query, own, own_scaled, own_delta, tile, scaled, delta, middle, PRECISION: tl.constexpr):
    """E and E∘(S_j·dO~_i + dO~_j·S_i − δ~_j − δ~_i) of two tiles. The δ~ come negated, as what the products add to."""
    kind: tl.constexpr = own.dtype
    scores = tl.dot(query, tl.trans(tile), input_precision=PRECISION)
    change = own_delta[:, None] + delta[None, :]
    change = tl.dot(own, tl.trans(scaled), change, input_precision=PRECISION)
    change = tl.dot(own_scaled, tl.trans(tile), change, input_precision=PRECISION)
    even = tl.exp2(scores * LOG2_E - middle)
    return even.to(kind), (even * change).to(kind)


@triton.jit
def store_tile(value, pair, c, DS, rows, count, stride, D: tl.constexpr, EVEN: tl.constexpr):
    places = DS + rows[:, None] * stride + tl.arange(0, D)[None, :]
    gradient = (value + pair * c[None, :]).to(DS.dtype.element_ty)
    if EVEN:
        tl.store(places, gradient)
    else:
        tl.store(places, gradient, mask=(rows < count)[:, None])


@triton.jit
def row_pairs(products, D: tl.constexpr):
    """A sum over rows as far as a thread of four warps has them (r and r + 8): no exchange between threads."""
    return tl.sum(tl.reshape(products, (4, 2, 8, D)), 1)


@triton.jit
def resident_backward_kernel(
    S, C, V, Out, DOut, L, Middle, DS, Partial,
    stride_token, stride_head, stride_d_out_token, stride_d_out_head, tokens, length, sequences, heads,
    D: tl.constexpr, EVEN: tl.constexpr, SCALED_VALUES: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sequences of 65 to 128 tokens. `Out` is contiguous; for four warps."""
    program = tl.program_id(0)
    head = (program % heads).to(tl.int64)  # its offsets may pass 2^31
    dims = tl.arange(0, D)
    rows = tl.arange(0, TILE)
    rest = length - TILE
    S += head * stride_head
    Out += head * D
    DOut += head * stride_d_out_head
    DS += head * D
    L += head * tokens
    c = tl.load(C + head * D + dims).to(tl.float32)
    v = c
    if SCALED_VALUES:
        v = value_factors(V + head * D, dims)
    # S·1 is S as float32 in the layout of a product's result, without a detour through shared memory.
    one = tl.where(dims[:, None] == dims[None, :], 1.0, 0.0).to(S.dtype.element_ty)
    d_c = tl.zeros((4, 8, D), tl.float32)
    d_v = tl.zeros((D,), tl.float32)
    tl.assume(program // heads < sequences)  # see forward.py
    for sequence in tl.range(program // heads, sequences, tl.num_programs(0) // heads, num_stages=STAGES):
        begin = tl.cast(sequence, tl.int64) * length
        # The second tile starts at a pointer of its own, so that both have the same offsets: that saves registers.
        base = S + begin * stride_token
        tile_0 = load_rows(base, rows, dims, stride_token, length, True)
        tile_1 = load_rows(base + TILE * stride_token, rows, dims, stride_token, rest, EVEN)
        base = DOut + begin * stride_d_out_token
        d_out_0 = load_rows(base, rows, dims, stride_d_out_token, length, True)
        d_out_1 = load_rows(base + TILE * stride_d_out_token, rows, dims, stride_d_out_token, rest, EVEN)
        base = Out + begin * (heads * D)
        out_0 = load_rows(base, rows, dims, heads * D, length, True)
        out_1 = load_rows(base + TILE * heads * D, rows, dims, heads * D, rest, EVEN)
        level_0 = tl.load(L + begin + rows)
        level_1 = load_numbers(L + begin + TILE, rows, rest, EVEN, 0.0)
        kind: tl.constexpr = tile_0.dtype
        lowest = tl.minimum(level_0, level_1)
        highest = tl.maximum(level_0, level_1)
        if not EVEN:
            lowest = tl.where(rows < rest, lowest, level_0)
            highest = tl.where(rows < rest, highest, level_0)
        lowest, highest = tl.reduce((lowest, highest), 0, wider)
        middle = middle_level(lowest, highest)
        tl.store(Middle + sequence * heads + head, middle)
        # A sequence left to the other kernel adds nothing here: its shares are zero, and E is 2^-TOO_WIDE, zero too.
        fits = middle != TOO_WIDE
        share_0 = tl.where(fits, tl.exp2(middle - level_0), 0.0)
        share_1 = tl.where(fits, tl.exp2(middle - level_1), 0.0)
        products_0 = d_out_0.to(tl.float32) * out_0.to(tl.float32)
        products_1 = d_out_1.to(tl.float32) * out_1.to(tl.float32)
        delta_0 = tl.sum(products_0, 1) * -share_0
        delta_1 = tl.sum(products_1, 1) * -share_1
        if SCALED_VALUES:
            # Summed over all rows at once: a sum kept by thread would be put off to the end of the loop, and spilled.
            d_v += tl.where(fits, tl.sum(products_0 + products_1, 0), 0.0)
            scaled_0 = (d_out_0 * share_0[:, None] * v[None, :]).to(kind)
            scaled_1 = (d_out_1 * share_1[:, None] * v[None, :]).to(kind)
        else:
            scaled_0 = (d_out_0 * share_0[:, None]).to(kind)
            scaled_1 = (d_out_1 * share_1[:, None]).to(kind)

        query = (tl.dot(tile_0, one, input_precision=PRECISION) * c[None, :]).to(kind)
        even, change = tile_weights(query, tile_0, scaled_0, delta_0, tile_0, scaled_0, delta_0, middle, PRECISION)
        value = tl.dot(even, scaled_0, input_precision=PRECISION)
        pair = tl.dot(change, tile_0, input_precision=PRECISION)
        even, change = tile_weights(query, tile_0, scaled_0, delta_0, tile_1, scaled_1, delta_1, middle, PRECISION)
        value = tl.dot(even, scaled_1, value, input_precision=PRECISION)
        pair = tl.dot(change, tile_1, pair, input_precision=PRECISION)
        store_tile(value, pair, c, DS + begin * heads * D, rows, length, heads * D, D, True)
        d_c += row_pairs(tile_0.to(tl.float32) * pair, D)

        query = (tl.dot(tile_1, one, input_precision=PRECISION) * c[None, :]).to(kind)
        value = tl.dot(tl.trans(even), scaled_0, input_precision=PRECISION)
        pair = tl.dot(tl.trans(change), tile_0, input_precision=PRECISION)
        even, change = tile_weights(query, tile_1, scaled_1, delta_1, tile_1, scaled_1, delta_1, middle, PRECISION)
        value = tl.dot(even, scaled_1, value, input_precision=PRECISION)
        pair = tl.dot(change, tile_1, pair, input_precision=PRECISION)
        store_tile(value, pair, c, DS + (begin + TILE) * heads * D, rows, rest, heads * D, D, EVEN)
        d_c += row_pairs(tile_1.to(tl.float32) * pair, D)
    places = Partial + ((program // heads) * 2 * heads + head) * D + dims
    tl.store(places, tl.sum(tl.reshape(d_c, (32, D)), 0))
    if SCALED_VALUES:
        tl.store(places + heads * D, d_v)


@triton.jit
def resident_forward_kernel(
    S, C, V, Out, L,
    stride_token, stride_head, tokens, length, sequences, heads,
    D: tl.constexpr, EVEN: tl.constexpr, SCALED_VALUES: tl.constexpr, SAVE: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Sequences of 129 to 256 tokens. Two tiles at a time share a maximum, so that sums are rescaled only once."""
    program = tl.program_id(0)
    head = (program % heads).to(tl.int64)  # its offsets may pass 2^31
    dims = tl.arange(0, D)
    rows = tl.arange(0, TILE)
    third = length - 2 * TILE  # tokens from the third tile on
    fourth = length - 3 * TILE
    S += head * stride_head
    Out += head * D
    L += head * tokens
    V += head * D
    c = tl.load(C + head * D + dims).to(tl.float32) * LOG2_E
    tl.assume(program // heads < sequences)  # see forward.py
    for sequence in tl.range(program // heads, sequences, tl.num_programs(0) // heads, num_stages=STAGES):
        begin = tl.cast(sequence, tl.int64) * length
        base = S + begin * stride_token
        tiles = (
            load_rows(base, rows, dims, stride_token, length, True),
            load_rows(base + TILE * stride_token, rows, dims, stride_token, length, True),
            load_rows(base + 2 * TILE * stride_token, rows, dims, stride_token, third, EVEN),
            load_rows(base + 3 * TILE * stride_token, rows, dims, stride_token, fourth, EVEN),
        )
        kind: tl.constexpr = tiles[0].dtype
        for block in tl.static_range(4):
            query = (tiles[block] * c[None, :]).to(kind)
            left = tl.dot(query, tl.trans(tiles[0]), input_precision=PRECISION)
            right = tl.dot(query, tl.trans(tiles[1]), input_precision=PRECISION)
            top = tl.max(tl.maximum(left, right), 1)
            left = tl.exp2(left - top[:, None])
            right = tl.exp2(right - top[:, None])
            total = tl.sum(left + right, 1)
            sums = tl.dot(left.to(kind), tiles[0], input_precision=PRECISION)
            sums = tl.dot(right.to(kind), tiles[1], sums, input_precision=PRECISION)

            left = tl.dot(query, tl.trans(tiles[2]), input_precision=PRECISION)
            right = tl.dot(query, tl.trans(tiles[3]), input_precision=PRECISION)
            if not EVEN:
                left = tl.where((rows < third)[None, :], left, float("-inf"))
                right = tl.where((rows < fourth)[None, :], right, float("-inf"))
            higher = tl.maximum(top, tl.max(tl.maximum(left, right), 1))
            left = tl.exp2(left - higher[:, None])
            right = tl.exp2(right - higher[:, None])
            fade = tl.exp2(top - higher)
            total = total * fade + tl.sum(left + right, 1)
            sums = tl.dot(left.to(kind), tiles[2], sums * fade[:, None], input_precision=PRECISION)
            sums = tl.dot(right.to(kind), tiles[3], sums, input_precision=PRECISION)
            store_rows(
                higher, total, sums, V, Out + (begin + block * TILE) * heads * D, L + begin + block * TILE, rows,
                length - block * TILE, heads, 1.0, D, EVEN or block < 2, SCALED_VALUES, False, SAVE, False,
            )  # fmt: skip
