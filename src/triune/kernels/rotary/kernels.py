"""The Triton kernel of `rotate_in_one_pass`: the way back is a turn by the opposite angle."""

import triton
import triton.language as tl


@triton.jit
def rotate_kernel(
    X, Cos, Sin, Y, rows, length, x_batch, x_head, x_token, table_batch,
    BACK: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
    ROWS: tl.constexpr, GROUP: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Some tokens, and of each a group of heads, which share its angles. Y is (rows, HEADS, 2·HALF), without gaps.

    Groups of the same tokens come one after the other, so that what they share is read from memory once. HEADS and HALF
    are constants: the compiler then knows that rows begin at multiples of 16 bytes, and moves as many at a time.
    """
    groups: tl.constexpr = (HEADS + GROUP - 1) // GROUP
    row = tl.program_id(0) // groups * ROWS + tl.arange(0, ROWS)
    batch, token = (row // length).to(tl.int64), (row % length).to(tl.int64)  # divided in 32 bits, which is faster
    col = tl.arange(0, COLS)
    inside = (row < rows)[:, None] & (col < HALF)[None, :]
    angles = batch[:, None] * table_batch + token[:, None] * HALF + col[None, :]
    cos = tl.load(Cos + angles, mask=inside, other=0.0)
    sin = tl.load(Sin + angles, mask=inside, other=0.0)
    if BACK:
        sin = -sin
    sources = X + batch[:, None] * x_batch + token[:, None] * x_token + col[None, :]
    targets = Y + row.to(tl.int64)[:, None] * (HEADS * 2 * HALF) + col[None, :]
    for number in tl.static_range(GROUP):
        head = (tl.program_id(0) % groups * GROUP + number).to(tl.int64)
        there = inside & (col < tl.where(head < HEADS, HALF, 0))[None, :]
        first = tl.load(sources + head * x_head, mask=there, other=0.0).to(tl.float32)
        second = tl.load(sources + head * x_head + HALF, mask=there, other=0.0).to(tl.float32)
        places = targets + head * (2 * HALF)
        tl.store(places, (first * cos - second * sin).to(Y.dtype.element_ty), mask=there)
        tl.store(places + HALF, (second * cos + first * sin).to(Y.dtype.element_ty), mask=there)
