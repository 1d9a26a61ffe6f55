"""Attention for operators whose queries, keys and values are one tensor: one load, two products.

    scores = (S∘c)·Sᵀ        output = (softmax(scores)·S)∘v

`reference.py` says what is computed. `forward.py`, `backward.py`, `short.py`, `resident.py` and `safe.py` are kernels
in Triton, `hopper/` has those in Gluon; `launch.py` chooses among them, `ops.py` makes them operators of PyTorch.
Importing this package needs no Triton.
"""

import torch

from triune.kernels.one_tensor.call import LAUNCHED
from triune.kernels.triton_here import interpreted, no_triton

HEAD_WIDTHS = (32, 64, 128)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def unsupported(device: torch.device, dtype: torch.dtype, head_width: int) -> str | None:
    """Why the kernels cannot run there, in a few words, or None where they can."""
    if (reason := no_triton(device)) is not None:
        return reason
    if dtype not in DTYPES:
        return f"{dtype} is not one of bfloat16, float16, float32"
    if interpreted() and dtype == torch.bfloat16:
        return "Triton's interpreter has no bfloat16 products"
    if head_width not in HEAD_WIDTHS:
        return f"heads are {head_width} wide, the kernels have {', '.join(map(str, HEAD_WIDTHS))}"
    return None


def attention(
    shared_MND: torch.Tensor,
    score_scale_ND: torch.Tensor,
    value_scale_ND: torch.Tensor | None = None,
    *,
    max_length: int,
    cu_seqlens: torch.Tensor | None = None,
    key_mask: torch.Tensor | None = None,
    rotary: tuple[torch.Tensor, torch.Tensor] | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    mask_diagonal: bool = False,
) -> torch.Tensor:
    """Attention over sequences that lie one after another; (tokens, heads, width), contiguous.

    Args:
        shared_MND: S, (tokens, heads, head width); its last dimension lies dense, the others as they like.
        score_scale_ND: c, (heads, head width), with 1/√D in it.
        value_scale_ND: v, (heads, head width), or None for ones.
        max_length: the length of every sequence; with `cu_seqlens`, one that none exceeds.
        cu_seqlens: int32, where each sequence starts and where the last ends: sequences of different lengths.
        key_mask: (tokens,), true for the keys that may be seen; not together with `cu_seqlens` or `mask_diagonal`.
        rotary: cosines and sines, each (tokens, head width / 2): scores are made of turned S, values are not turned.
        dropout: share of the weights that is dropped; drawn from PyTorch's generator.
        causal: a token sees itself and those before it.
        mask_diagonal: no token sees itself, unless there is no other.
    """
    from triune.kernels.one_tensor import ops

    return ops.attention(
        shared_MND, score_scale_ND, value_scale_ND, max_length, cu_seqlens, key_mask, rotary, dropout, causal,
        mask_diagonal,
    )  # fmt: skip


def describe(
    dtype: torch.dtype,
    head_width: int,
    max_length: int,
    packed: bool = False,
    plain: bool = True,
    symmetric: bool = True,
    mean_length: float | None = None,
) -> str:
    """Which kernels and tiles a shape gets in training, on the current GPU, with sequences enough to fill it.

    `symmetric` is false with dropout, causal or key masks; `plain` with these, rotary positions or mask_diagonal.
    `mean_length` is that of a packed batch; unless it is given, half of the longest.
    """
    from triune.kernels.one_tensor import hopper
    from triune.kernels.one_tensor.tiles import described

    one_way, plain = symmetric and dtype == torch.bfloat16, plain and symmetric and not packed
    mean = (mean_length or max_length / 2) if packed else None
    parts = described(dtype.itemsize, one_way, head_width, max_length, plain, packed, mean)
    if torch.cuda.is_available() and hopper.takes_shape(max_length, head_width, dtype, plain):
        if hopper.unusable(torch.device("cuda", torch.cuda.current_device())) is None:
            parts.update(hopper.described(max_length, one_way))
    return "; ".join(f"{direction} {how}" for direction, how in parts.items())


def launched() -> dict[str, int]:
    """How often each kernel was launched in this process, and from then on from zero again."""
    counts = dict(LAUNCHED)
    LAUNCHED.clear()
    return counts


def tune(enabled: bool = True) -> None:
    """Whether tiles are found by trial at the first call of each shape, in the place of the table; off by default."""
    from triune.kernels.one_tensor import tuning

    tuning.enable(enabled)
