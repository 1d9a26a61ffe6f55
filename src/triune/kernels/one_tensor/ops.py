"""The kernels as operators of PyTorch: they can be compiled, captured, checkpointed, differentiated."""

import torch

from triune.kernels.one_tensor.call import Call
from triune.kernels.one_tensor.launch import run_backward, run_forward


def attention(
    shared: torch.Tensor,
    score_scale: torch.Tensor,
    value_scale: torch.Tensor | None,
    max_length: int,
    cu_seqlens: torch.Tensor | None,
    key_mask: torch.Tensor | None,
    rotary: tuple[torch.Tensor, torch.Tensor] | None,
    dropout: float,
    causal: bool,
    mask_diagonal: bool,
) -> torch.Tensor:
    _check(shared, score_scale, value_scale, max_length, cu_seqlens, key_mask, mask_diagonal)
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout is a share: {dropout} is none")
    if dropout == 1:
        return (shared * 0.0).contiguous()
    if value_scale is not None and shared.dtype == torch.float16:
        # Its exponents are too few for products with a small v that are divided by it again (launch.py).
        plain = attention(
            shared, score_scale, None, max_length, cu_seqlens, key_mask, rotary, dropout, causal, mask_diagonal
        )
        return (plain * value_scale).to(plain.dtype)
    differentiated = [shared, score_scale, *([] if value_scale is None else [value_scale])]
    save_levels = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in differentiated)
    cos, sin = (None, None) if rotary is None else rotary
    seed = None
    if dropout > 0:
        # On the device, so that nothing waits for it, a captured graph draws a new one at each replay, and a
        # checkpointed layer the same one again.
        seed = torch.randint(2**62, (1,), device=shared.device)
    output, _ = one_tensor_forward(
        shared, score_scale, value_scale, cu_seqlens, key_mask, cos, sin, seed, max_length, dropout, causal,
        mask_diagonal, save_levels,
    )  # fmt: skip
    return output


def _check(
    shared: torch.Tensor,
    score_scale: torch.Tensor,
    value_scale: torch.Tensor | None,
    max_length: int,
    cu_seqlens: torch.Tensor | None,
    key_mask: torch.Tensor | None,
    mask_diagonal: bool,
) -> None:
    if shared.ndim != 3:
        raise ValueError(f"the tensor must be (tokens, heads, width), not {tuple(shared.shape)}")
    for name, vector in (("score_scale", score_scale), ("value_scale", value_scale)):
        if vector is not None and vector.shape != shared.shape[1:]:
            raise ValueError(f"{name} must be (heads, width), {tuple(shared.shape[1:])}, not {tuple(vector.shape)}")
    if max_length < 1:
        raise ValueError(f"max_length must be at least 1, not {max_length}")
    if cu_seqlens is None and shared.shape[0] % max_length:
        raise ValueError(f"{shared.shape[0]} tokens are no whole number of sequences of {max_length}")
    if cu_seqlens is not None and cu_seqlens.dtype != torch.int32:
        raise ValueError(f"cu_seqlens must be int32, not {cu_seqlens.dtype}")
    if key_mask is not None and (cu_seqlens is not None or mask_diagonal):
        raise ValueError("key_mask goes neither with cu_seqlens nor with mask_diagonal")
    if key_mask is not None and key_mask.shape != shared.shape[:1]:
        raise ValueError(f"key_mask must be (tokens,), {tuple(shared.shape[:1])}, not {tuple(key_mask.shape)}")


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The kernels take any strides but the last."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _call(
    score_scale: torch.Tensor,
    value_scale: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    key_mask: torch.Tensor | None,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    seed: torch.Tensor | None,
    max_length: int,
    dropout: float,
    causal: bool,
    mask_diagonal: bool,
) -> Call:
    def flat(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else tensor.contiguous()

    return Call(
        score_scale.contiguous(), flat(value_scale), max_length, flat(cu_seqlens), flat(key_mask), flat(cos), flat(sin),
        seed, dropout, causal, mask_diagonal,
    )  # fmt: skip


@torch.library.custom_op("triune::one_tensor_forward", mutates_args=())
def one_tensor_forward(
    shared: torch.Tensor,
    score_scale: torch.Tensor,
    value_scale: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    key_mask: torch.Tensor | None,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    seed: torch.Tensor | None,
    max_length: int,
    dropout: float,
    causal: bool,
    mask_diagonal: bool,
    save_levels: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    call = _call(
        score_scale, value_scale, cu_seqlens, key_mask, cos, sin, seed, max_length, dropout, causal, mask_diagonal
    )
    with torch.cuda.device_of(shared):  # Triton launches on the current device
        return run_forward(_dense(shared), call, save_levels)


@one_tensor_forward.register_fake
def _(shared, *args):  # type: ignore[no-untyped-def]
    tokens, heads, _width = shared.shape
    saved = tokens if args[-1] else 0
    return shared.new_empty(shared.shape), shared.new_empty((heads, saved), dtype=torch.float32)


@torch.library.custom_op("triune::one_tensor_backward", mutates_args=())
def one_tensor_backward(
    d_output: torch.Tensor,
    shared: torch.Tensor,
    output: torch.Tensor,
    levels: torch.Tensor,
    score_scale: torch.Tensor,
    value_scale: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    key_mask: torch.Tensor | None,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    seed: torch.Tensor | None,
    max_length: int,
    dropout: float,
    causal: bool,
    mask_diagonal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    call = _call(
        score_scale, value_scale, cu_seqlens, key_mask, cos, sin, seed, max_length, dropout, causal, mask_diagonal
    )
    with torch.cuda.device_of(shared):
        grads = run_backward(_dense(d_output), _dense(shared), output.contiguous(), levels, call)
    return tuple(grads)  # type: ignore[return-value]


@one_tensor_backward.register_fake
def _(d_output, shared, output, levels, score_scale, value_scale, *args):  # type: ignore[no-untyped-def]
    heads, width = shared.shape[1:]
    number = {"dtype": torch.float32}
    return (
        shared.new_empty(shared.shape),
        shared.new_empty((heads, width), **number),
        shared.new_empty((0 if value_scale is None else heads, width), **number),
    )


def _remember(ctx, inputs, output):  # type: ignore[no-untyped-def]
    shared, score_scale, value_scale, *rest = inputs
    *tensors, max_length, dropout, causal, mask_diagonal, _save_levels = rest
    ctx.save_for_backward(shared, *output, score_scale, value_scale, *tensors)
    ctx.options = (max_length, dropout, causal, mask_diagonal)


def _differentiate(ctx, d_output, _d_levels):  # type: ignore[no-untyped-def]
    shared, output, levels, score_scale, value_scale, *tensors = ctx.saved_tensors
    d_shared, d_score, d_value = one_tensor_backward(
        d_output, shared, output, levels, score_scale, value_scale, *tensors, *ctx.options
    )
    d_score = d_score.to(score_scale.dtype)
    d_value = None if value_scale is None else d_value.to(value_scale.dtype)
    return d_shared, d_score, d_value, *([None] * 10)


one_tensor_forward.register_autograd(_differentiate, setup_context=_remember)
