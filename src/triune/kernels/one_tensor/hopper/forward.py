"""The forward kernel for Hopper GPUs: a program stays with a head and walks through sequences.

A sequence lies in shared memory as tiles of 64 tokens, each key and value of all rows. The shift of a row is the
maximum over its first tile, or over both where there are two: its sum of weights is at least one. Where a later score
lies so far above it that the sum passes `LIMIT`, the rows are computed again with a running maximum.
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
    log2_of,
    one_over,
    store_tile,
    times,
    value_factors,
)


@gluon.jit
def fetch(S, tiles, ready, stage, sequence, sequences, column, TILES: gl.constexpr):
    """Starts the copy of a sequence; `ready` hears when it is there."""
    inside = sequence < sequences
    mbarrier.expect(ready.index(stage), TILES * 64 * 64 * 2, pred=inside)
    for tile in gl.static_range(TILES):
        row = (sequence * TILES + tile) * 64
        place = tiles.index(stage * TILES + tile)
        load_tile(S, [row, column], ready.index(stage), place, pred=inside)


@gluon.jit
def weights_of(scores, top, total):
    weights = gl.exp2(scores - gl.expand_dims(top, 1))
    return weights, total + gl.sum(weights, 1)


@gluon.jit
def two_tiles(query, tiles, base, mma: gl.constexpr, left: gl.constexpr):
    """Shift, sum of weights and weighted sum of S for 64 rows of a sequence of two tiles."""
    kind: gl.constexpr = tiles.dtype
    zero = gl.zeros([64, 64], gl.float32, mma)
    near = warpgroup_mma(query, tiles.index(base).permute((1, 0)), zero, use_acc=False, is_async=True)
    far = warpgroup_mma(query, tiles.index(base + 1).permute((1, 0)), zero, use_acc=False, is_async=True)
    near, far = warpgroup_mma_wait(0, deps=(near, far))
    top = gl.max(gl.maximum(near, far), 1)
    near = gl.exp2(near - gl.expand_dims(top, 1))
    far = gl.exp2(far - gl.expand_dims(top, 1))
    total = gl.sum(near + far, 1)
    near = gl.convert_layout(near.to(kind), left)
    far = gl.convert_layout(far.to(kind), left)
    sums = warpgroup_mma(near, tiles.index(base), zero, use_acc=False, is_async=True)
    sums = warpgroup_mma(far, tiles.index(base + 1), sums, is_async=True)
    return top, total, warpgroup_mma_wait(0, deps=(sums,))


@gluon.jit
def more_tiles(query, tiles, base, TILES: gl.constexpr, AHEAD: gl.constexpr, mma: gl.constexpr, left: gl.constexpr):
    """As `two_tiles`, for more of them."""
    kind: gl.constexpr = tiles.dtype
    zero = gl.zeros([64, 64], gl.float32, mma)
    total = gl.zeros([64], gl.float32, gl.SliceLayout(1, mma))
    scores = warpgroup_mma(query, tiles.index(base).permute((1, 0)), zero, use_acc=False)
    top = gl.max(scores, 1)
    weights, total = weights_of(scores, top, total)
    weights = gl.convert_layout(weights.to(kind), left)
    if AHEAD:
        sums = zero
        for tile in range(1, TILES):
            # In this order: ptxas makes products wait for each other where a left side is made while others are open.
            coming = warpgroup_mma(query, tiles.index(base + tile).permute((1, 0)), zero, use_acc=False, is_async=True)
            adding = warpgroup_mma(weights, tiles.index(base + tile - 1), sums, is_async=True)
            scores = warpgroup_mma_wait(1, deps=(coming,))
            scores, total = weights_of(scores, top, total)
            sums = warpgroup_mma_wait(0, deps=(adding,))
            weights = gl.convert_layout(scores.to(kind), left)
        sums = warpgroup_mma(weights, tiles.index(base + TILES - 1), sums)
    else:
        sums = warpgroup_mma(weights, tiles.index(base), zero, use_acc=False)
        for tile in range(1, TILES):
            scores = warpgroup_mma(query, tiles.index(base + tile).permute((1, 0)), zero, use_acc=False)
            scores, total = weights_of(scores, top, total)
            sums = warpgroup_mma(gl.convert_layout(scores.to(kind), left), tiles.index(base + tile), sums)
    return top, total, sums


@gluon.jit
def running_maximum(query, tiles, base, TILES: gl.constexpr, mma: gl.constexpr, left: gl.constexpr):
    """As `more_tiles`, for any scores."""
    top = gl.full([64], float("-inf"), gl.float32, gl.SliceLayout(1, mma))
    total = gl.zeros([64], gl.float32, gl.SliceLayout(1, mma))
    zero = gl.zeros([64, 64], gl.float32, mma)
    sums = zero
    for tile in range(TILES):
        scores = warpgroup_mma(query, tiles.index(base + tile).permute((1, 0)), zero, use_acc=False)
        higher = gl.maximum(top, gl.max(scores, 1))
        fade = gl.exp2(top - higher)
        weights, total = weights_of(scores, higher, total * fade)
        weights = gl.convert_layout(weights.to(tiles.dtype), left)
        sums = warpgroup_mma(weights, tiles.index(base + tile), sums * gl.expand_dims(fade, 1))
        top = higher
    return top, total, sums


@gluon.jit
def hopper_forward_kernel(
    S, Out, C, V, L, tokens, sequences, heads,
    TILES: gl.constexpr, STAGES: gl.constexpr, SCALED_VALUES: gl.constexpr, SAVE: gl.constexpr, AHEAD: gl.constexpr,
    LIMIT: gl.constexpr,
):  # fmt: skip
    """`S` and `Out` are tensor descriptors, (tokens, heads·64) in tiles of 64 by 64; for four warps."""
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    kind: gl.constexpr = S.dtype
    head = gl.program_id(0) % heads
    first = gl.program_id(0) // heads
    step = gl.num_programs(0) // heads
    tiles = gl.allocate_shared_memory(kind, [STAGES * TILES, 64, 64], S.layout)
    out_tile = gl.allocate_shared_memory(kind, [64, 64], Out.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for start in gl.static_range(STAGES):
        mbarrier.init(ready.index(start), count=1)
    for start in gl.static_range(STAGES):
        fetch(S, tiles, ready, start, first + start * step, sequences, head * 64, TILES)
    c = gl.load(C + head * 64 + gl.arange(0, 64, gl.SliceLayout(0, left))).to(gl.float32) * LOG2_E
    c_high, c_low = halves(c, kind)
    if SCALED_VALUES:
        # Kept in shared memory: registers are what programs are short of.
        line: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
        v = gl.allocate_shared_memory(gl.float32, [64], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        v.store(value_factors(V + head * 64, line))
    L += head.to(gl.int64) * tokens
    rows = gl.arange(0, 64, gl.SliceLayout(1, mma))
    stage = 0
    phase = 0
    for sequence in range(first, sequences, step):
        mbarrier.wait(ready.index(stage), phase)
        base = stage * TILES
        for block in range(TILES):
            own = tiles.index(base + block).load(left)
            query = times(own, gl.expand_dims(c_high, 0), gl.expand_dims(c_low, 0))
            if TILES == 2:
                top, total, sums = two_tiles(query, tiles, base, mma, left)
            else:
                top, total, sums = more_tiles(query, tiles, base, TILES, AHEAD, mma, left)
                if gl.max(total, 0) > LIMIT:
                    top, total, sums = running_maximum(query, tiles, base, TILES, mma, left)
            row = (sequence * TILES + block) * 64
            if SAVE:
                gl.store(L + row + rows, top + log2_of(total))
            sums = sums * gl.expand_dims(one_over(total), 1)
            if SCALED_VALUES:
                sums = sums * gl.expand_dims(v.load(gl.SliceLayout(0, mma)), 0)
            tma.store_wait(0)  # the copy before this one has read the tile
            barrier()
            out_tile.store(sums.to(kind))
            fence_async_shared()
            barrier()
            store_tile(Out, [row, head * 64], out_tile)
        # Since the last barrier no thread reads this sequence any more.
        fetch(S, tiles, ready, stage, sequence + STAGES * step, sequences, head * 64, TILES)
        stage += 1
        if stage == STAGES:
            stage = 0
            phase = phase ^ 1
    tma.store_wait(0)
