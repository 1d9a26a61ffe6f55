"""Shared-weight attention, the paper's operator: one projection S, and three role vectors.

    S = X·Ws + b        Q = S∘dq        K = S∘dk        V = S∘dv

Only the product c = dq∘dk reaches the scores, and dv commutes with the attention-weighted sum. So the operator
runs as attention over (S∘c, S, S) with dv as a factor on the output: S is never copied as keys or values.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from transformers import initialization as init

from triune.operators.base import Operator, at_least_float32
from triune.operators.formula import Costs, d
from triune.operators.registry import register
from triune.operators.roles import AttentionShape, OneTensor, Roles, Rotate


@dataclass
class SharedSettings:
    # separate: dq, dk and dv, as in the paper · joint: one vector for queries and keys together, and dv ·
    # value: dv alone · none: no role vectors at all.
    role_vectors: Literal["separate", "joint", "value", "none"] = "separate"
    # ones: all at one · normal: around one, with `role_spread` as standard deviation · signed: dq at +1 or -1 at
    # random (so c is), dk and dv at one.
    role_start: Literal["ones", "normal", "signed"] = "ones"
    role_spread: float | int = 0.1
    # free: c may repel (be negative) · positive: its absolute value is taken, so that like tokens always attract.
    score_sign: Literal["free", "positive"] = "free"

    @property
    def vectors(self) -> list[str]:
        return {
            "separate": ["query_scale", "key_scale", "value_scale"],
            "joint": ["query_scale", "value_scale"],
            "value": ["value_scale"],
            "none": [],
        }[self.role_vectors]

    def validate_start_applies(self) -> None:
        if self.role_start == "signed" and "query_scale" not in self.vectors:
            raise ValueError(
                f"role_start='signed' has no vector to sign with role_vectors='{self.role_vectors}': "
                "use 'separate' or 'joint', or leave role_start out"
            )
        if self.role_start == "normal" and not self.vectors:
            raise ValueError("role_start='normal' does not apply with role_vectors='none': leave it out")
        if self.score_sign == "positive" and "query_scale" not in self.vectors:
            raise ValueError(
                f"score_sign='positive' has no vector to apply to with role_vectors='{self.role_vectors}': "
                "use 'separate' or 'joint', or leave score_sign out"
            )
        if self.score_sign == "positive" and self.role_start == "signed":
            raise ValueError("role_start='signed' starts at signs that score_sign='positive' takes away: leave one out")
        if not 0 <= self.role_spread < float("inf"):
            raise ValueError(f"role_spread is a standard deviation: {self.role_spread} is not one")
        if self.role_spread != 0.1 and self.role_start != "normal":
            raise ValueError(f"role_spread applies to role_start='normal' only, not to '{self.role_start}'")


@register("shared")
class SharedAttention(Operator):
    Settings = SharedSettings
    settings: SharedSettings
    query_scale: nn.Parameter
    key_scale: nn.Parameter
    value_scale: nn.Parameter
    score_scale: nn.Parameter  # of a folded operator

    summary = "one projection S for all three, told apart by role vectors dq, dk, dv (the paper)"
    scores = "(S∘dq)·(S∘dk)ᵀ"
    symmetric_scores = True
    is_one_tensor = True
    decoder_cache = "S"
    fold_note = "c = dq∘dk/√D is one vector; dv goes into the output projection"

    def __init__(self, shape: AttentionShape, settings: SharedSettings, folded: bool = False) -> None:
        super().__init__(shape, settings, folded)
        self.shared = self.projection()
        for vector in self._vectors_kept(folded):
            setattr(self, vector, nn.Parameter(torch.empty(shape.width)))

    def _vectors_kept(self, folded: bool) -> list[str]:
        if not folded:
            return self.settings.vectors
        return ["score_scale"] if "query_scale" in self.settings.vectors else []

    def initialize(self, std: float) -> None:
        if self.folded:
            if hasattr(self, "score_scale"):
                init.constant_(self.score_scale, self.shape.default_scale)
            return
        for vector in self.settings.vectors:
            parameter = getattr(self, vector)
            if self.settings.role_start == "normal":
                init.normal_(parameter, mean=1.0, std=self.settings.role_spread)
            elif self.settings.role_start == "signed" and vector == "query_scale":
                init.copy_(parameter, torch.randint(0, 2, parameter.shape) * 2.0 - 1.0)
            else:
                init.ones_(parameter)

    def forward(self, hidden_BTd: torch.Tensor, rotate: Rotate) -> Roles:
        shared_BNTD = self.split_heads(self.shared(hidden_BTd))
        # Turned before c is applied: one rotation serves both sides, and the scores stay symmetric.
        turned_BNTD = rotate(shared_BNTD)
        query_BNTD = turned_BNTD
        scale = self.shape.default_scale
        score_scale = self.score_scales()
        if score_scale is not None:
            query_BNTD = turned_BNTD * self._per_head(score_scale, turned_BNTD).unsqueeze(-2)
            scale = 1.0 if self.folded else scale
        value_scale = getattr(self, "value_scale", None)
        output_scale = None if value_scale is None else self._per_head(value_scale, shared_BNTD)
        return Roles(query_BNTD, turned_BNTD, shared_BNTD, scale, output_scale)

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
        """c as far as it is stored: dq∘dk, or the one vector that stands for it; folded, with 1/√D in it."""
        if hasattr(self, "score_scale"):
            return self.score_scale
        if not hasattr(self, "query_scale"):
            return None
        scales = self.query_scale * self.key_scale if hasattr(self, "key_scale") else self.query_scale
        return scales.abs() if self.settings.score_sign == "positive" else scales

    def _per_head(self, vector: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        # Cast, or a float32 vector would lift a bfloat16 S to float32.
        return vector.to(like.dtype).view(self.shape.heads, self.shape.head_width)

    def _exact_per_head(self, vector: torch.Tensor) -> torch.Tensor:
        return vector.to(at_least_float32(vector.dtype)).view(self.shape.heads, self.shape.head_width)

    @torch.no_grad()
    def fold(self, output: nn.Linear) -> None:
        score_scale = self.score_scales()
        trained = any(parameter.requires_grad for parameter in self.parameters())
        if hasattr(self, "value_scale"):
            output.weight.mul_(self.value_scale)  # the columns of the weight are the inputs
        for vector in self.settings.vectors:
            delattr(self, vector)
        if score_scale is not None:
            self.score_scale = nn.Parameter(score_scale * self.shape.default_scale, requires_grad=trained)
        super().fold(output)

    @classmethod
    def costs(cls, settings: SharedSettings) -> Costs:  # type: ignore[override]
        # c on the queries and dv on the output are one multiplication an element each; dq∘dk is once a batch.
        scalings = len({"query_scale", "value_scale"}.intersection(settings.vectors))
        return Costs(weights=d**2 + len(settings.vectors) * d, biases=d, role_flops=2 * d**2 + scalings * d, cached=d)
