"""Shared-weight attention, the paper's operator: one projection S, and three role vectors.

    S = X·Ws + b        Q = S∘dq        K = S∘dk        V = S∘dv

Only the product c = dq∘dk reaches the scores, and dv commutes with the attention-weighted sum. So the operator
runs as attention over (S∘c, S, S) with dv as a factor on the output: S is never copied as keys or values.
"""

from dataclasses import dataclass

import torch

from triune.operators.formula import Costs, d
from triune.operators.registry import register
from triune.operators.role_vectors import RoleStart, RoleVectorAttention, RoleVectorSettings
from triune.operators.roles import AttentionShape, OneTensor, Roles, Rotate


@dataclass
class SharedSettings(RoleVectorSettings):
    # Nothing but role vectors tells the three roles apart, and from ones they hardly learn to. So by default (None)
    # they start in halves, the best of the starts tried, and at one where other settings leave nothing to halve.
    role_start: RoleStart | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.role_start is None:
            has_halves = "query_scale" in self.vectors and self.score_sign == "free"
            self.role_start = "halves" if has_halves else "ones"


@register("shared")
class SharedAttention(RoleVectorAttention):
    Settings = SharedSettings
    settings: SharedSettings

    summary = "one projection S for all three, told apart by role vectors dq, dk, dv (the paper)"
    scores = "(S∘dq)·(S∘dk)ᵀ"
    symmetric_scores = True
    is_one_tensor = True
    decoder_cache = "S"

    def __init__(self, shape: AttentionShape, settings: SharedSettings, folded: bool = False) -> None:
        super().__init__(shape, settings, folded)
        self.shared = self.projection()

    def forward(self, hidden_BTd: torch.Tensor, rotate: Rotate) -> Roles:
        shared_BNTD = self.split_heads(self.shared(hidden_BTd))
        # Turned before c is applied: one rotation serves both sides, and the scores stay symmetric.
        turned_BNTD = rotate(shared_BNTD)
        query_BNTD = turned_BNTD
        score_scale = self.score_scales()
        if score_scale is not None:
            query_BNTD = turned_BNTD * self._per_head(score_scale, turned_BNTD).unsqueeze(-2)
        return Roles(query_BNTD, turned_BNTD, shared_BNTD, self._scale_left(), self._output_scale(shared_BNTD))

    def one_tensor(self, hidden_BTd: torch.Tensor) -> OneTensor:
        shared_BTND = self.heads_last(self.shared(hidden_BTd))
        score_scale, value_scale = self.score_scales(), getattr(self, "value_scale", None)
        if score_scale is None:
            score_scale_ND = self.even_scale(shared_BTND)
        else:
            score_scale_ND = self._exact_per_head(score_scale)
            score_scale_ND = score_scale_ND if self.folded else score_scale_ND * self.shape.default_scale
        return OneTensor(
            shared_BTND, score_scale_ND, None if value_scale is None else self._exact_per_head(value_scale)
        )

    def score_scales(self) -> torch.Tensor | None:
        """c, where there is one: its sign says whether tokens that are alike attract or repel each other."""
        return self._score_scales()

    @classmethod
    def costs(cls, settings: SharedSettings) -> Costs:  # type: ignore[override]
        vectors = len(settings.vectors)
        return Costs(weights=d**2 + vectors * d, biases=d, role_flops=2 * d**2 + settings.scalings * d, cached=d)
