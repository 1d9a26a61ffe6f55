"""`rotate_in_one_pass` as an operator of PyTorch."""

import torch
import triton

from triune.kernels.rotary.kernels import rotate_kernel

ROWS, GROUP, WARPS = 32, 4, 4  # tokens and heads of a tile; others were not tried


@torch.library.custom_op("triune::rotate", mutates_args=())
def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, back: bool) -> torch.Tensor:
    """x (B, N, T, D), cos and sin (B or 1, 1, T, D/2); `back` turns the other way."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    cos, sin = cos.float().contiguous(), sin.float().contiguous()
    batch, heads, length, width = x.shape
    y = x.new_empty((batch, length, heads, width))
    rows, half = batch * length, width // 2
    if y.numel():
        grid = (triton.cdiv(rows, ROWS) * triton.cdiv(heads, GROUP),)
        table_batch = length * half if len(cos) > 1 else 0
        with torch.cuda.device_of(x):  # Triton launches on the current device
            rotate_kernel[grid](
                x, cos, sin, y, rows, length, x.stride(0), x.stride(1), x.stride(2), table_batch,
                BACK=back, HEADS=heads, HALF=half,
                ROWS=ROWS, GROUP=GROUP, COLS=triton.next_power_of_2(half), num_warps=WARPS,
            )  # fmt: skip
    return y.transpose(1, 2)


@rotate.register_fake
def _(x, cos, sin, back):  # type: ignore[no-untyped-def]
    batch, heads, length, width = x.shape
    return x.new_empty((batch, length, heads, width)).transpose(1, 2)


def _remember(ctx, inputs, output):  # type: ignore[no-untyped-def]
    _x, cos, sin, back = inputs
    ctx.save_for_backward(cos, sin)
    ctx.back = back


def _differentiate(ctx, dy):  # type: ignore[no-untyped-def]
    return rotate(dy, *ctx.saved_tensors, not ctx.back), None, None, None


rotate.register_autograd(_differentiate, setup_context=_remember)
