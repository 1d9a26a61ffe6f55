"""Shared attention with a low-rank correction of one role.

    S = X·Ws + b        Q = S∘dq + X·A·B        K = S∘dk        V = S∘dv        (or the correction on K, or on V)

B starts at zero, so the operator starts as `shared`. A correction of rank R costs 2dR parameters. Queries, keys and
values are no longer one tensor, so attention runs on SDPA.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from transformers import initialization as init

from triune.operators.base import Operator
from triune.operators.formula import Costs, d
from triune.operators.registry import register
from triune.operators.role_vectors import RoleVectorAttention
from triune.operators.roles import AttentionShape, Roles, Rotate
from triune.operators.shared import SharedSettings


@dataclass
class LowRankSettings(SharedSettings):
    low_rank: int = 16
    low_rank_role: Literal["query", "key", "value"] = "query"

    def validate_rank(self) -> None:
        if self.low_rank < 1:
            raise ValueError(f"low_rank must be at least 1, not {self.low_rank}")


@register("shared-low-rank")
class LowRankAttention(RoleVectorAttention):
    Settings = LowRankSettings
    settings: LowRankSettings
    in_reproduction = False

    summary = "shared, with a low-rank correction X·A·B of one role (SDPA only)"
    scores = "(S∘dq + X·A·B)·(S∘dk)ᵀ"
    decoder_cache = "S, and X·A where K or V is corrected"
    fold_note = "nothing is merged"

    def __init__(self, shape: AttentionShape, settings: LowRankSettings, folded: bool = False) -> None:
        super().__init__(shape, settings, folded)
        self.shared = self.projection()
        self.down_dR = nn.Parameter(torch.empty(shape.width, settings.low_rank))
        self.up_Rd = nn.Parameter(torch.empty(settings.low_rank, shape.width))

    def _vectors_kept(self, folded: bool) -> list[str]:
        return self.settings.vectors

    def initialize(self, std: float) -> None:
        super().initialize(std)
        init.normal_(self.down_dR, mean=0.0, std=std)
        init.zeros_(self.up_Rd)

    def forward(self, hidden_BTd: torch.Tensor, rotate: Rotate) -> Roles:
        shared_BNTD = self.split_heads(self.shared(hidden_BTd))
        correction_BNTD = self.split_heads(hidden_BTd @ self.down_dR @ self.up_Rd)
        turned_BNTD = rotate(shared_BNTD)
        scaled_BNTD = self._times(turned_BNTD, self._score_scales())
        scale, output_scale = self.shape.default_scale, self._output_scale(shared_BNTD)
        if self.settings.low_rank_role == "value":
            # The correction is not scaled by dv, which is therefore no factor on the output.
            value_BNTD = self._times(shared_BNTD, getattr(self, "value_scale", None)) + correction_BNTD
            return Roles(scaled_BNTD, turned_BNTD, value_BNTD, scale)
        # (S∘dq + X·A·B)·(S∘dk)ᵀ = (S∘c + X·A·B∘dk)·Sᵀ: the other side stays S as it is. Likewise for keys, with dq.
        corrects_query = self.settings.low_rank_role == "query"
        other = getattr(self, "key_scale" if corrects_query else "query_scale", None)
        corrected_BNTD = scaled_BNTD + rotate(self._times(correction_BNTD, other))
        query_BNTD, key_BNTD = (corrected_BNTD, turned_BNTD) if corrects_query else (turned_BNTD, corrected_BNTD)
        return Roles(query_BNTD, key_BNTD, shared_BNTD, scale, output_scale)

    def _times(self, x_BNTD: torch.Tensor, vector: torch.Tensor | None) -> torch.Tensor:
        return x_BNTD if vector is None else x_BNTD * self._per_head(vector, x_BNTD).unsqueeze(-2)

    def fold(self, output: nn.Linear) -> None:
        Operator.fold(self, output)

    @classmethod
    def costs(cls, settings: LowRankSettings) -> Costs:  # type: ignore[override]
        rank, corrects_query = settings.low_rank, settings.low_rank_role == "query"
        corrected_scores = settings.low_rank_role != "value" and (
            "key_scale" in settings.vectors if corrects_query else "query_scale" in settings.vectors
        )
        return Costs(
            weights=d**2 + len(settings.vectors) * d + 2 * rank * d,
            biases=d,
            # Both products of the correction, its sum with the role, and its own factor where it has one.
            role_flops=2 * d**2 + 4 * rank * d + (settings.scalings + 1 + corrected_scores) * d,
            cached=d if corrects_query else d + rank,
        )
