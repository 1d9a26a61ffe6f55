"""The contract of an attention operator: how X becomes queries, keys and values.

An operator is one file and one `@register("name")`. It states what it does (`forward`) and what is true of it
(formulas, symmetry, decoder cache); `triune.testing` checks the second against the first.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from triune.operators.formula import Costs
from triune.operators.roles import AttentionShape, OneTensor, Roles, Rotate


@dataclass
class NoSettings:
    """Of an operator that has nothing to set."""


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


class Operator(nn.Module):
    """Base of all operators. Its parameters lie under `attention.self` of each BERT layer.

    Subclasses build their parameters in `__init__(shape, settings, folded)`, where `settings` is an instance of
    their own `Settings` dataclass, and implement `forward` and `costs`. The class attributes below describe them.
    """

    Settings: ClassVar[type] = NoSettings

    name: ClassVar[str]  # set by `register`
    source_sha256: ClassVar[str | None] = None  # likewise; None for an operator of Triune
    summary: ClassVar[str]
    scores: ClassVar[str]
    symmetric_scores: ClassVar[bool] = False
    is_one_tensor: ClassVar[bool] = False  # queries, keys and values are one tensor: `one_tensor` gives it
    in_reproduction: ClassVar[bool] = True  # listed by the parameter study of `triune reproduce`
    decoder_cache: ClassVar[str]
    fold_note: ClassVar[str] = "nothing to merge"

    def __init__(self, shape: AttentionShape, settings: object, folded: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.settings = settings
        self.folded = folded

    def forward(self, hidden_BTd: torch.Tensor, rotate: Rotate) -> Roles:
        raise NotImplementedError

    def one_tensor(self, hidden_BTd: torch.Tensor) -> OneTensor:
        """The same attention as `forward` describes, where `is_one_tensor`: S and its scales, with nothing computed."""
        raise NotImplementedError

    def initialize(self, std: float) -> None:
        """Start parameters that are not in a submodule (Linear layers are started by transformers).

        Use the functions of `transformers.initialization`: they leave tensors alone that came from a checkpoint.
        """

    def fold(self, output: nn.Linear) -> None:
        """Merge, in place, what inference need not keep apart; `output` is the projection after attention.

        Afterwards the parameters are those of an instance built with `folded=True`.
        """
        self.folded = True

    @classmethod
    def costs(cls, settings: object) -> Costs:
        """Parameters, FLOPs and cache a layer, as formulas in d and m."""
        raise NotImplementedError

    # Helpers for subclasses.

    def projection(self) -> nn.Linear:
        return nn.Linear(self.shape.width, self.shape.width)

    def split_heads(self, x_BTd: torch.Tensor) -> torch.Tensor:
        """(B, T, d) → (B, N, T, D), a view."""
        return self.heads_last(x_BTd).transpose(1, 2)

    def heads_last(self, x_BTd: torch.Tensor) -> torch.Tensor:
        """(B, T, d) → (B, T, N, D), a view."""
        return x_BTd.unflatten(-1, (self.shape.heads, self.shape.head_width))

    def even_scale(self, like: torch.Tensor) -> torch.Tensor:
        """1/√D for every dimension, (N, D): the score scale of an operator that has no vectors."""
        shape = (self.shape.heads, self.shape.head_width)
        return torch.full(shape, self.shape.default_scale, device=like.device, dtype=at_least_float32(like.dtype))

    def extra_repr(self) -> str:
        return f"{type(self).name}, {self.settings}" + (", folded" if self.folded else "")
