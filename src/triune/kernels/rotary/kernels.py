"""The Triton kernel of `rotate_in_one_pass`: the way back is a turn by the opposite angle."""

import triton
import triton.language as tl


@triton.jit
def rotate_kernel(
    X, Cos, Sin, Y, rows, length, heads, half, x_batch, x_head, x_token, table_batch,
    BACK: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Some tokens, and of each some heads, which share its angles. Y is (rows, heads, 2·half), without gaps."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    batch, token = row // length, row % length
    col = tl.arange(0, COLS)
    inside = (row < rows)[:, None] & (col < half)[None, :]
    angles = batch[:, None] * table_batch + token[:, None] * half + col[None, :]
    cos = tl.load(Cos + angles, mask=inside, other=0.0)
    sin = tl.load(Sin + angles, mask=inside, other=0.0)
    if BACK:
        sin = -sin
    sources = X + batch[:, None] * x_batch + token[:, None] * x_token + col[None, :]
    targets = Y + row[:, None] * (heads * 2 * half) + col[None, :]
    for number in tl.static_range(HEADS):
        head = tl.program_id(1).to(tl.int64) * HEADS + number
        there = inside & (col < tl.where(head < heads, half, 0))[None, :]
        first = tl.load(sources + head * x_head, mask=there, other=0.0).to(tl.float32)
        second = tl.load(sources + head * x_head + half, mask=there, other=0.0).to(tl.float32)
        places = targets + head * (2 * half)
        tl.store(places, (first * cos - second * sin).to(Y.dtype.element_ty), mask=there)
        tl.store(places + half, (second * cos + first * sin).to(Y.dtype.element_ty), mask=there)
