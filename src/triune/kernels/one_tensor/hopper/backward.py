"""The backward kernel for Hopper GPUs: `one_way` of ../backward.py with a whole sequence in shared memory.

S, dO and O of a sequence are brought there once. A first pass over them makes δ~ and puts dO~ in the place of dO; then
blocks of rows take all columns in turn. The gradient of a block takes the place of its O and is copied out from there.
Sequences whose levels lie too far apart are marked in `Middle` and left to `safe_kernel`.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from triune.kernels.one_tensor.hopper.pieces import (
    LOG2_E,
    barrier,
    halves,
    load_tile,
    seen_as,
    store_tile,
    times,
    value_factors,
)

WIDEST = gl.constexpr(50.0)  # as in ../backward.py
TOO_WIDE = gl.constexpr(1.0e30)


@gluon.jit
def fetch(S, DOut, Out, tiles, ready, sequence, sequences, column, TILES: gl.constexpr):
    """Starts the copies of a sequence: S, then dO, then O."""
    inside = sequence < sequences
    mbarrier.expect(ready, 3 * TILES * 64 * 64 * 2, pred=inside)
    for tile in gl.static_range(TILES):
        row = (sequence * TILES + tile) * 64
        load_tile(DOut, [row, column], ready, tiles.index(TILES + tile), pred=inside)
        load_tile(Out, [row, column], ready, tiles.index(2 * TILES + tile), pred=inside)
        load_tile(S, [row, column], ready, tiles.index(tile), pred=inside)


@gluon.jit
def middle_of(L, TILES: gl.constexpr, WARPS: gl.constexpr):
    """μ of a sequence, or `TOO_WIDE` (../backward.py, `middle_level`)."""
    SIZE: gl.constexpr = 64 * (2 if TILES == 2 else 4 if TILES <= 4 else 8)
    places = gl.arange(0, SIZE, gl.BlockedLayout([SIZE // (32 * WARPS)], [32], [WARPS], [0]))
    low = gl.min(gl.load(L + places, mask=places < TILES * 64, other=float("inf")), 0)
    high = gl.max(gl.load(L + places, mask=places < TILES * 64, other=float("-inf")), 0)
    fits = (low <= high) & (high - low <= 2 * WIDEST) & (low >= -WIDEST) & (high <= 2 * WIDEST)
    return gl.where(fits, (low + high) * 0.5, TOO_WIDE)


@gluon.jit
def row_pairs(products, WARPS: gl.constexpr):
    """A sum over rows as far as a thread has them (r and r + 8): no exchange between threads."""
    return gl.sum(gl.reshape(products, [WARPS, 2, 8, 64]), 1)


@gluon.jit
def store_sum(parts, place, WARPS: gl.constexpr):
    """The rest of that sum, and its place in memory."""
    line: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    parts = gl.convert_layout(gl.sum(gl.reshape(parts, [8 * WARPS, 64]), 0), line)
    gl.store(place + gl.arange(0, 64, line), parts)


@gluon.jit
def hopper_backward_kernel(
    S, DOut, Out, DS, C, V, L, Middle, Partial, tokens, sequences, heads,
    TILES: gl.constexpr, SCALED_VALUES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """The first four are tensor descriptors, in tiles of 64 by 64, `DS` in blocks of 16 rows a warp."""
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, 64, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    numbers: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    kind: gl.constexpr = S.dtype
    swizzled: gl.constexpr = S.layout
    ROWS: gl.constexpr = 16 * WARPS
    BLOCKS: gl.constexpr = TILES * 64 // ROWS
    head = gl.program_id(0) % heads
    first = gl.program_id(0) // heads
    step = gl.num_programs(0) // heads
    # The same memory twice: tiles of 64 rows as right sides, blocks of as many rows as the warps have as left sides.
    tiles = gl.allocate_shared_memory(kind, [3 * TILES, 64, 64], swizzled)
    blocks = seen_as(tiles, [3 * BLOCKS, ROWS, 64], swizzled)
    deltas = gl.allocate_shared_memory(gl.float32, [TILES, 64], numbers)
    block_deltas = seen_as(deltas, [BLOCKS, ROWS], numbers)
    all_ready = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    ready = all_ready.index(0)
    mbarrier.init(ready, count=1)
    fetch(S, DOut, Out, tiles, ready, first, sequences, head * 64, TILES)
    c = gl.load(C + head * 64 + gl.arange(0, 64, gl.SliceLayout(0, left))).to(gl.float32) * LOG2_E
    c_high, c_low = halves(c, kind)
    zero = gl.zeros([ROWS, 64], gl.float32, mma)
    d_c = row_pairs(zero, WARPS)
    d_v = row_pairs(zero, WARPS)
    L += head.to(gl.int64) * tokens
    phase = 0
    for sequence in range(first, sequences, step):
        levels = L + sequence * TILES * 64
        middle = middle_of(levels, TILES, WARPS)
        gl.store(Middle + sequence * heads + head, middle)
        mbarrier.wait(ready, phase)
        for block in range(BLOCKS):
            d_out = blocks.index(BLOCKS + block).load(left)
            out = blocks.index(2 * BLOCKS + block).load(left)
            level = gl.load(levels + block * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, left)))
            # A sequence left to the other kernel adds nothing: its shares are zero, and E is 2^-TOO_WIDE, zero too.
            share = gl.where(middle == TOO_WIDE, 0.0, gl.exp2(middle - level))
            block_deltas.index(block).store(gl.sum(d_out.to(gl.float32) * out.to(gl.float32), 1) * -share)
            if SCALED_VALUES:
                v = gl.expand_dims(value_factors(V + head * 64, gl.SliceLayout(0, left)), 0)
                scaled = (d_out.to(gl.float32) * gl.expand_dims(share, 1) * v).to(kind)
            else:
                share_high, share_low = halves(share, kind)
                scaled = times(d_out, gl.expand_dims(share_high, 1), gl.expand_dims(share_low, 1))
            blocks.index(BLOCKS + block).store(scaled)
        fence_async_shared()
        barrier()
        for block in range(BLOCKS):
            own = blocks.index(block)
            own_scaled = blocks.index(BLOCKS + block)
            query = times(own.load(left), gl.expand_dims(c_high, 0), gl.expand_dims(c_low, 0))
            own_delta = gl.expand_dims(block_deltas.index(block).load(gl.SliceLayout(1, mma)), 1)
            value = zero
            pair = zero
            for col in range(TILES):
                tile = tiles.index(col)
                other = tiles.index(TILES + col)
                scores = warpgroup_mma(query, tile.permute((1, 0)), zero, use_acc=False, is_async=True)
                change = own_delta + gl.expand_dims(deltas.index(col).load(gl.SliceLayout(0, mma)), 0)
                change = warpgroup_mma(own, other.permute((1, 0)), change, is_async=True)
                change = warpgroup_mma(own_scaled, tile.permute((1, 0)), change, is_async=True)
                scores = warpgroup_mma_wait(2, deps=(scores,))
                even = gl.exp2(scores - middle)
                change = warpgroup_mma_wait(0, deps=(change,))
                weights = gl.convert_layout(even.to(kind), left)
                value = warpgroup_mma(weights, other, value, use_acc=col > 0, is_async=True)
                weights = gl.convert_layout((even * change).to(kind), left)
                pair = warpgroup_mma(weights, tile, pair, use_acc=col > 0, is_async=True)
                value, pair = warpgroup_mma_wait(0, deps=(value, pair))
            own = own.load(mma).to(gl.float32)
            d_c += row_pairs(own * pair, WARPS)
            if SCALED_VALUES:
                d_v += row_pairs(own * value, WARPS)
            score_scale = gl.load(C + head * 64 + gl.arange(0, 64, gl.SliceLayout(0, mma))).to(gl.float32)
            gradient = blocks.index(2 * BLOCKS + block)
            gradient.store((value + pair * gl.expand_dims(score_scale, 0)).to(kind))
            fence_async_shared()
            barrier()
            store_tile(DS, [sequence * TILES * 64 + block * ROWS, head * 64], gradient)
        tma.store_wait(0)
        barrier()
        fetch(S, DOut, Out, tiles, ready, sequence + step, sequences, head * 64, TILES)
        phase = phase ^ 1
    place = Partial + (first * 2 * heads + head) * 64
    store_sum(d_c, place, WARPS)
    if SCALED_VALUES:
        store_sum(d_v, place + heads * 64, WARPS)
