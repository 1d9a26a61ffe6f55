"""What an operator hands to the attention core.

Shapes: B rows · T tokens · N heads · D head width · d = N·D model width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch


@dataclass(frozen=True)
class AttentionShape:
    width: int
    heads: int

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def default_scale(self) -> float:
        """1/√D, per head as in BERT (the paper writes √d, but its heads are D wide)."""
        return self.head_width**-0.5


class Roles(NamedTuple):
    """Attention is `softmax(scale · query·keyᵀ)·value ∘ output_scale`.

    One tensor may serve several roles: the core never copies a role, so `key_BNTD is value_BNTD` is how an
    operator says that the two are tied. A factor on the values goes into `output_scale_ND` (it commutes with the
    attention-weighted sum), which saves a scaled copy of the values.
    """

    query_BNTD: torch.Tensor
    key_BNTD: torch.Tensor
    value_BNTD: torch.Tensor
    scale: float
    output_scale_ND: torch.Tensor | None = None


class OneTensor(NamedTuple):
    """What an operator gives whose queries, keys and values are one tensor S, for kernels that read it once.

    Attention is `softmax((S∘score_scale)·Sᵀ)·S ∘ value_scale`, 1/√D being in `score_scale_ND`. Scales are float32 (or
    float64, as parameters may be in tests).
    """

    shared_BTND: torch.Tensor  # the projection's output as it lies, neither turned nor scaled
    score_scale_ND: torch.Tensor
    value_scale_ND: torch.Tensor | None = None


# Turns (B, N, T, D) by its position, or gives it back unchanged where the model has absolute positions. An
# operator applies it to what becomes queries and keys, never to values.
Rotate: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
