"""Rolled attention: one projection S, of which every head takes three different slices.

    S = X·Ws + b        Qₕ = Sₕ₊ₐ∘dqₕ        Kₕ = Sₕ∘dkₕ        Vₕ = Sₕ₊ᵦ∘dvₕ        (heads modulo their number)

Both ties of `shared` are broken at no parameter: scores need not be symmetric, and what a token is found by is not what
it gives. Each slice serves three heads, in three roles; a decoder still keeps S alone. Keys stay where they are because
only differences count: rolling all three by the same number renames the heads.

The three are not one tensor, so attention runs on SDPA. c = dq∘dk and dv are factors as in `shared`, and fold alike.
"""

from dataclasses import dataclass

import torch

from triune.operators.formula import Costs, d
from triune.operators.registry import register
from triune.operators.role_vectors import RoleVectorAttention, RoleVectorSettings
from triune.operators.roles import AttentionShape, Roles, Rotate


@dataclass
class RolledSettings(RoleVectorSettings):
    # How many heads further queries and values lie than keys, modulo the number of heads: a multiple of it (2 in a
    # model of two heads, anything in one of one) is no roll.
    query_roll: int = 1
    value_roll: int = 2

    def validate_rolls(self) -> None:
        if self.query_roll == 0 and self.value_roll == 0:
            raise ValueError("query_roll and value_roll are both 0, which is the operator 'shared': use that")


@register("rolled")
class RolledAttention(RoleVectorAttention):
    Settings = RolledSettings
    settings: RolledSettings
    in_reproduction = False

    summary = "one projection S, of which each head takes Q, K and V from three different slices (SDPA only)"
    scores = "(roll(S)∘dq)·(S∘dk)ᵀ"
    decoder_cache = "S"

    def __init__(self, shape: AttentionShape, settings: RolledSettings, folded: bool = False) -> None:
        super().__init__(shape, settings, folded)
        # Not called as in `shared`: a checkpoint of one must not load as the other.
        self.slices = self.projection()

    def forward(self, hidden_BTd: torch.Tensor, rotate: Rotate) -> Roles:
        shared_BTND = self.heads_last(self.slices(hidden_BTd))
        query_BTND = _from_head(shared_BTND, self.settings.query_roll)
        value_BTND = _from_head(shared_BTND, self.settings.value_roll)
        score_scale = self._score_scales()
        if score_scale is not None:
            # Before the rotation, so that a rotated score depends on the distance of two tokens only.
            query_BTND = query_BTND * self._per_head(score_scale, query_BTND)
        return Roles(
            rotate(query_BTND.transpose(1, 2)),
            rotate(shared_BTND.transpose(1, 2)),
            value_BTND.transpose(1, 2),
            self._scale_left(),
            self._output_scale(shared_BTND),
        )

    @classmethod
    def costs(cls, settings: RolledSettings) -> Costs:  # type: ignore[override]
        vectors = len(settings.vectors)
        return Costs(weights=d**2 + vectors * d, biases=d, role_flops=2 * d**2 + settings.scalings * d, cached=d)


def _from_head(shared_BTND: torch.Tensor, further: int) -> torch.Tensor:
    """Head h of the result is head h + `further`; rolled where tokens lie in memory, and only if there is need."""
    return shared_BTND.roll(-further, dims=2) if further % shared_BTND.shape[2] else shared_BTND
