"""Triton kernels of `add_norm`. A tile is some whole rows, so that mean and variance need no second pass.

onward = x + bias + residual + next_bias        h = onward − next_bias        n = (h − mean)·rstd
normed = n·weight + beta

g = d_normed·weight        d_h = rstd·(g − mean(g) − n·mean(g·n))        d_x = d_residual = d_onward + d_h
"""

import triton
import triton.language as tl


@triton.jit
def add_norm_forward_kernel(
    X, Bias, Residual, Weight, Beta, NextBias, Onward, Normed, Mean, Rstd, rows, width, eps,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, COLS)
    inside = (row < rows)[:, None] & (col < width)[None, :]
    places = row[:, None] * width + col[None, :]
    bias = tl.load(Bias + col, mask=col < width, other=0.0).to(tl.float32)
    next_bias = tl.load(NextBias + col, mask=col < width, other=0.0).to(tl.float32)
    x = tl.load(X + places, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(Residual + places, mask=inside, other=0.0).to(tl.float32)
    onward = (x + bias[None, :] + residual + next_bias[None, :]).to(Onward.dtype.element_ty)
    tl.store(Onward + places, onward, mask=inside)
    h = onward.to(tl.float32) - next_bias[None, :]  # as the backward pass finds it
    mean = tl.sum(h, 1) / width
    centred = tl.where(inside, h - mean[:, None], 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / width + eps)
    tl.store(Mean + row, mean, mask=row < rows)
    tl.store(Rstd + row, rstd, mask=row < rows)
    weight = tl.load(Weight + col, mask=col < width, other=0.0).to(tl.float32)
    beta = tl.load(Beta + col, mask=col < width, other=0.0).to(tl.float32)
    normed = centred * rstd[:, None] * weight[None, :] + beta[None, :]
    tl.store(Normed + places, normed.to(Normed.dtype.element_ty), mask=inside)


@triton.jit
def add_norm_backward_kernel(
    DOnward, DNormed, Onward, Mean, Rstd, Weight, NextBias, DSum, Parts, rows, width, rows_each,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A program walks down its rows: it keeps the sums of the vectors' gradients."""
    col = tl.arange(0, COLS)
    weight = tl.load(Weight + col, mask=col < width, other=0.0).to(tl.float32)
    next_bias = tl.load(NextBias + col, mask=col < width, other=0.0).to(tl.float32)
    d_bias = tl.zeros((ROWS, COLS), tl.float32)
    d_next_bias = tl.zeros((ROWS, COLS), tl.float32)
    d_weight = tl.zeros((ROWS, COLS), tl.float32)
    d_beta = tl.zeros((ROWS, COLS), tl.float32)
    first = tl.program_id(0).to(tl.int64) * rows_each
    for start in tl.range(0, rows_each, ROWS):
        row = first + start + tl.arange(0, ROWS)
        here = (row < rows) & (row < first + rows_each)
        inside = here[:, None] & (col < width)[None, :]
        places = row[:, None] * width + col[None, :]
        onward = tl.load(Onward + places, mask=inside, other=0.0).to(tl.float32)
        d_onward = tl.load(DOnward + places, mask=inside, other=0.0).to(tl.float32)
        d_normed = tl.load(DNormed + places, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(Mean + row, mask=here, other=0.0)
        rstd = tl.load(Rstd + row, mask=here, other=0.0)
        n = tl.where(inside, (onward - next_bias[None, :] - mean[:, None]) * rstd[:, None], 0.0)
        g = d_normed * weight[None, :]
        along = tl.sum(g * n, 1) / width
        level = tl.sum(g, 1) / width
        d_sum = tl.where(inside, d_onward + rstd[:, None] * (g - level[:, None] - n * along[:, None]), 0.0)
        tl.store(DSum + places, d_sum.to(DSum.dtype.element_ty), mask=inside)
        d_bias += d_sum
        d_next_bias += d_onward
        d_weight += d_normed * n
        d_beta += d_normed
    part = Parts + tl.program_id(0) * 4 * width + col
    tl.store(part, tl.sum(d_bias, 0), mask=col < width)
    tl.store(part + width, tl.sum(d_weight, 0), mask=col < width)
    tl.store(part + 2 * width, tl.sum(d_beta, 0), mask=col < width)
    tl.store(part + 3 * width, tl.sum(d_next_bias, 0), mask=col < width)
