"""`bias_gelu` as an operator of PyTorch."""

import torch
import triton

from triune.kernels.bias_gelu.kernels import bias_gelu_backward_kernel, bias_gelu_forward_kernel

ROWS, COLS, BACKWARD_COLS = 4, 1024, 512  # of a tile; measured on an H200
PARTS = 256  # programs that walk down the same columns


def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return bias_gelu_forward(x, bias)


@torch.library.custom_op("triune::bias_gelu_forward", mutates_args=())
def bias_gelu_forward(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    x, bias = x.contiguous(), bias.contiguous()
    y = torch.empty_like(x)
    width = x.shape[-1]
    rows = x.numel() // width
    if rows:
        grid = (triton.cdiv(rows, ROWS), triton.cdiv(width, COLS))
        with torch.cuda.device_of(x):  # Triton launches on the current device
            bias_gelu_forward_kernel[grid](x, bias, y, rows, width, ROWS=ROWS, COLS=COLS, num_warps=4)
    return y


@bias_gelu_forward.register_fake
def _(x, bias):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape)


@torch.library.custom_op("triune::bias_gelu_backward", mutates_args=())
def bias_gelu_backward(dy: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    dy, x, bias = dy.contiguous(), x.contiguous(), bias.contiguous()
    dx = torch.empty_like(x)
    width = x.shape[-1]
    rows = x.numel() // width
    parts = min(PARTS, triton.cdiv(rows, ROWS))
    sums = torch.empty((parts, width), dtype=torch.float32, device=x.device)
    if parts:
        each = triton.cdiv(triton.cdiv(rows, parts), ROWS) * ROWS
        grid = (parts, triton.cdiv(width, BACKWARD_COLS))
        with torch.cuda.device_of(x):
            bias_gelu_backward_kernel[grid](
                x, bias, dy, dx, sums, rows, width, each, ROWS=ROWS, COLS=BACKWARD_COLS, num_warps=4
            )
    return dx, sums.sum(0)


@bias_gelu_backward.register_fake
def _(dy, x, bias):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape), bias.new_empty(bias.shape, dtype=torch.float32)


def _remember(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _differentiate(ctx, dy):  # type: ignore[no-untyped-def]
    x, bias = ctx.saved_tensors
    dx, d_bias = bias_gelu_backward(dy, x, bias)
    return dx, d_bias.to(bias.dtype)


bias_gelu_forward.register_autograd(_differentiate, setup_context=_remember)
