"""What the kernels share: where a sequence lies, loads, masks, rotation, dropout."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
TINY = tl.constexpr(1.0e-12)


@triton.jit
def sequence_bounds(Cu, sequence, length, PACKED: tl.constexpr):
    """First token of a sequence, as int64 so that offsets do not overflow, and its number of tokens."""
    if PACKED:
        begin = tl.load(Cu + sequence).to(tl.int64)
        count = (tl.load(Cu + sequence + 1) - begin).to(tl.int32)
    else:
        begin = tl.cast(sequence, tl.int64) * length
        count = length
    return begin, count


@triton.jit
def load_rows(base, rows, dims, stride, count, EVEN: tl.constexpr):
    """Rows of one head; those beyond the sequence are zero."""
    places = base + rows[:, None] * stride + dims[None, :]
    if EVEN:
        tile = tl.load(places)
    else:
        tile = tl.load(places, mask=(rows < count)[:, None], other=0.0)
    return tile


@triton.jit
def load_numbers(base, rows, count, EVEN: tl.constexpr, OTHER: tl.constexpr):
    if EVEN:
        numbers = tl.load(base + rows)
    else:
        numbers = tl.load(base + rows, mask=rows < count, other=OTHER)
    return numbers


@triton.jit
def rotated(tile, base, Cos, Sin, rows, stride, count, D: tl.constexpr, ROTARY: tl.constexpr):
    """The tile turned by its positions: pairs are (i, i + D/2), so the other of a pair is loaded from there."""
    turned = tile
    if ROTARY:
        dims = tl.arange(0, D)
        other = load_rows(base, rows, (dims + D // 2) % D, stride, count, False).to(tl.float32)
        places = rows[:, None] * (D // 2) + (dims % (D // 2))[None, :]
        inside = (rows < count)[:, None]
        cos = tl.load(Cos + places, mask=inside, other=1.0)
        sin = tl.load(Sin + places, mask=inside, other=0.0) * tl.where(dims < D // 2, -1.0, 1.0)[None, :]
        turned = (tile.to(tl.float32) * cos + other * sin).to(tile.dtype)
    return turned


@triton.jit
def turned_back(gradient, Cos, Sin, rows, count, D: tl.constexpr, ROWS: tl.constexpr):
    """The gradient of a turned tile as one of the tile before; the two of a pair are split apart and joined again."""
    places = rows[:, None] * (D // 2) + tl.arange(0, D // 2)[None, :]
    inside = (rows < count)[:, None]
    cos = tl.load(Cos + places, mask=inside, other=1.0)
    sin = tl.load(Sin + places, mask=inside, other=0.0)
    first, second = tl.split(tl.permute(tl.reshape(gradient, (ROWS, 2, D // 2)), (0, 2, 1)))
    back = tl.join(first * cos + second * sin, second * cos - first * sin)
    return tl.reshape(tl.permute(back, (0, 2, 1)), (ROWS, D))


@triton.jit
def seen(queries, keys, count, NO_SELF: tl.constexpr, CAUSAL: tl.constexpr):
    """Whether a query may see a key, by their places alone."""
    allowed = (queries < count) & (keys < count)
    if CAUSAL:
        allowed = allowed & (keys <= queries)
    if NO_SELF:
        # A token that has no other to look at looks at itself.
        alone = count == 1
        if CAUSAL:
            alone = (queries == 0) | alone
        allowed = allowed & ((queries != keys) | alone)
    return allowed


@triton.jit
def visible(
    scores, rows, cols, count, KeyMask,
    EVEN: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr, NO_SELF: tl.constexpr,
):  # fmt: skip
    """Scores with minus infinity where the query of a row may not see the key of a column."""
    if CAUSAL or NO_SELF:
        scores = tl.where(seen(rows[:, None], cols[None, :], count, NO_SELF, CAUSAL), scores, float("-inf"))
    elif not EVEN:
        scores = tl.where((cols < count)[None, :], scores, float("-inf"))
    if MASKED:
        shown = tl.load(KeyMask + cols, mask=cols < count, other=0) != 0
        scores = tl.where(shown[None, :], scores, float("-inf"))
    return scores


@triton.jit
def dropout_rows(Seed, head_of_all, queries, DROPOUT: tl.constexpr):
    """A random number for each query of a sequence and head; `dropout_keep` makes one for each weight of it."""
    numbers = queries
    if DROPOUT:
        zero = queries * 0
        numbers, _, _, _ = tl.philox(tl.load(Seed), queries, zero + tl.cast(head_of_all, tl.int32), zero, zero)
    return numbers


@triton.jit
def dropout_keep(row_number, keys, keep_share):
    """Which weights stay. A counter-based generator (philox) a weight would cost more than the attention itself, so
    it is run once a row, and an integer hash (two multiplications) spreads it over the keys."""
    mixed = row_number + keys.to(tl.uint32) * 0x9E3779B9
    mixed = (mixed ^ (mixed >> 16)) * 0x7FEB352D
    mixed = (mixed ^ (mixed >> 15)) * 0x846CA68B
    mixed = mixed ^ (mixed >> 16)
    return (mixed >> 8).to(tl.float32) * (1.0 / 16777216.0) < keep_share


@triton.jit
def value_factors(V, dims):
    """The value vector as the kernels use it: its gradient is divided by it, so zero becomes a tiny number."""
    v = tl.load(V + dims).to(tl.float32)
    return tl.where(tl.abs(v) < TINY, TINY, v)


@triton.jit
def sum_parts_kernel(
    PartsC, PartsV, V, DC, DV, parts_c, parts_v, stride_c, stride_v, heads,
    D: tl.constexpr, CHUNK: tl.constexpr, SCALED_VALUES: tl.constexpr,
):  # fmt: skip
    """dc and dv of one head from the parts that the programs of a backward kernel left."""
    head = tl.program_id(0)
    dims = tl.arange(0, D)
    parts = PartsC
    count = parts_c
    stride = stride_c
    if tl.program_id(1) == 1:
        parts = PartsV
        count = parts_v
        stride = stride_v
    total = tl.zeros((CHUNK, D), tl.float32)
    for start in range(0, count, CHUNK):
        rows = start + tl.arange(0, CHUNK).to(tl.int64)  # many parts may pass 2^31
        places = parts + rows[:, None] * stride + head * D + dims[None, :]
        total += tl.load(places, mask=(rows < count)[:, None], other=0.0)
    result = tl.sum(total, 0)
    if tl.program_id(1) == 0:
        tl.store(DC + head * D + dims, 0.5 * result)
    elif SCALED_VALUES:
        tl.store(DV + head * D + dims, result / value_factors(V + head * D, dims))
