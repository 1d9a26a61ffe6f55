"""`add_norm` as an operator of PyTorch."""

import torch
import triton

from triune.kernels.add_norm.kernels import add_norm_backward_kernel, add_norm_forward_kernel

ROWS, CELLS, WARPS = 4, 4096, 4  # of a tile at most, in both directions; measured on an H200 at a width of 768
PARTS = 1056  # programs of the backward pass, among which rows are shared out


def _tile(width: int) -> tuple[int, int]:
    """Rows and columns: whole rows, and of wide ones fewer."""
    columns = triton.next_power_of_2(width)
    return min(ROWS, CELLS // columns), columns


@torch.library.custom_op("triune::add_norm_forward", mutates_args=())
def add_norm_forward(
    x: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    beta: torch.Tensor,
    next_bias: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Besides the two results: mean and 1/deviation of each row, for the backward pass."""
    x, residual = x.contiguous(), residual.contiguous()
    vectors = [vector.contiguous() for vector in (weight, beta, next_bias)]
    onward, normed = torch.empty_like(x), torch.empty_like(x)
    mean, rstd = (torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device) for _ in range(2))
    width = x.shape[-1]
    rows = x.numel() // width
    if rows:
        tile_rows, columns = _tile(width)
        with torch.cuda.device_of(x):  # Triton launches on the current device
            add_norm_forward_kernel[(triton.cdiv(rows, tile_rows),)](
                x, bias.contiguous(), residual, *vectors, onward, normed, mean, rstd, rows, width, eps,
                ROWS=tile_rows, COLS=columns, num_warps=WARPS,
            )  # fmt: skip
    return onward, normed, mean, rstd


@add_norm_forward.register_fake
def _(x, bias, residual, weight, beta, next_bias, eps):  # type: ignore[no-untyped-def]
    mean, rstd = (x.new_empty(x.shape[:-1], dtype=torch.float32) for _ in range(2))
    return x.new_empty(x.shape), x.new_empty(x.shape), mean, rstd


@torch.library.custom_op("triune::add_norm_backward", mutates_args=())
def add_norm_backward(
    d_onward: torch.Tensor,
    d_normed: torch.Tensor,
    onward: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor,
    next_bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient of x and residual, and those of bias, weight, beta and next_bias, (4, width) in float32."""
    given = [tensor.contiguous() for tensor in (d_onward, d_normed, onward, mean, rstd, weight, next_bias)]
    d_sum = torch.empty_like(given[2])
    width = onward.shape[-1]
    rows = onward.numel() // width
    tile_rows, columns = _tile(width)
    parts = min(PARTS, triton.cdiv(rows, tile_rows))
    sums = torch.empty((parts, 4, width), dtype=torch.float32, device=onward.device)
    if parts:
        each = triton.cdiv(triton.cdiv(rows, parts), tile_rows) * tile_rows
        with torch.cuda.device_of(onward):
            add_norm_backward_kernel[(parts,)](
                *given, d_sum, sums, rows, width, each,
                ROWS=tile_rows, COLS=columns, num_warps=WARPS,
            )  # fmt: skip
    return d_sum, sums.sum(0)


@add_norm_backward.register_fake
def _(d_onward, d_normed, onward, mean, rstd, weight, next_bias):  # type: ignore[no-untyped-def]
    return onward.new_empty(onward.shape), weight.new_empty((4, *weight.shape), dtype=torch.float32)


def _remember(ctx, inputs, output):  # type: ignore[no-untyped-def]
    _x, bias, _residual, weight, beta, next_bias, _eps = inputs
    onward, _normed, mean, rstd = output
    ctx.save_for_backward(onward, mean, rstd, weight, next_bias)
    ctx.dtypes = [vector.dtype for vector in (bias, weight, beta, next_bias)]


def _differentiate(ctx, d_onward, d_normed, _d_mean, _d_rstd):  # type: ignore[no-untyped-def]
    d_sum, sums = add_norm_backward(d_onward, d_normed, *ctx.saved_tensors)
    d_bias, d_weight, d_beta, d_next_bias = (part.to(to) for part, to in zip(sums.unbind(), ctx.dtypes, strict=True))
    return d_sum, d_bias, d_sum, d_weight, d_beta, d_next_bias, None


add_norm_forward.register_autograd(_differentiate, setup_context=_remember)
