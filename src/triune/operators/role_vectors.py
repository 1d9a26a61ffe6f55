"""What operators with role vectors have in common: dq, dk and dv, where they start, and how they fold away.

Only the product c = dq∘dk reaches the scores, and dv commutes with the attention-weighted sum: c is a factor on one
side of the scores, dv one on the output.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from transformers import initialization as init

from triune.errors import TriuneError
from triune.operators.base import Operator, at_least_float32
from triune.operators.joint import is_plain
from triune.operators.roles import AttentionShape

# Half of a head's dimensions serve the scores and half the values: at this size both keep, but for rounding, the norm
# that all of them have at one.
HALVES_SIZE = 1.4
# Starts at which c is negative in places, and the vector that makes it so is dq.
SIGNED_STARTS = ("signed", "signed-pairs", "product", "halves")
_ANOTHER_START = "set role_start to 'ones'"  # not «leave it out»: configurations hold it written out
RoleStart = Literal["ones", "normal", "signed", "signed-pairs", "product", "halves"]


@dataclass
class RoleVectorSettings:
    # separate: dq, dk and dv, as in the paper · joint: one vector for queries and keys together, and dv ·
    # value: dv alone · none: no role vectors at all.
    role_vectors: Literal["separate", "joint", "value", "none"] = "separate"
    # ones: all at one · normal: around one, with `role_spread` as standard deviation · signed: dq at +1 or -1 at
    # random (so c is), dk and dv at one · signed-pairs: as signed, with one sign for the two dimensions of a rotary
    # pair · product: dq and dk at random around zero with standard deviation one, dv at one · halves: each rotary pair
    # of a head serves scores (dq at ±1.4, dv at zero) or values (dq at zero, dv at 1.4) in turn, dk at one everywhere.
    role_start: RoleStart = "ones"
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

    @property
    def scalings(self) -> int:
        """Multiplications for an element of S: c on one side of the scores, dv on the output; dq∘dk is once a batch."""
        return len({"query_scale", "value_scale"}.intersection(self.vectors))

    def validate_start_applies(self) -> None:
        if self.role_start is None:
            raise ValueError("role_start was left open: a __post_init__ of your own calls super().__post_init__()")
        if self.role_start in SIGNED_STARTS and "query_scale" not in self.vectors:
            raise ValueError(
                f"role_start='{self.role_start}' has no vector to sign with role_vectors='{self.role_vectors}': "
                f"use 'separate' or 'joint', or {_ANOTHER_START}"
            )
        if self.role_start == "normal" and not self.vectors:
            raise ValueError(f"role_start='normal' does not apply with role_vectors='none': {_ANOTHER_START}")
        if self.score_sign == "positive" and "query_scale" not in self.vectors:
            raise ValueError(
                f"score_sign='positive' has no vector to apply to with role_vectors='{self.role_vectors}': "
                "use 'separate' or 'joint', or leave score_sign out"
            )
        if self.score_sign == "positive" and self.role_start in SIGNED_STARTS:
            raise ValueError(
                f"role_start='{self.role_start}' starts at signs that score_sign='positive' takes away: leave that "
                f"out, or {_ANOTHER_START}"
            )
        if not 0 <= self.role_spread < float("inf"):
            raise ValueError(f"role_spread is a standard deviation: {self.role_spread} is not one")
        if self.role_spread != 0.1 and self.role_start != "normal":
            raise ValueError(f"role_spread applies to role_start='normal' only, not to '{self.role_start}'")


class RoleVectorAttention(Operator):
    """Base of the operators that have role vectors; where the projection is, and what it becomes, is theirs."""

    settings: RoleVectorSettings
    query_scale: nn.Parameter
    key_scale: nn.Parameter
    value_scale: nn.Parameter
    score_scale: nn.Parameter  # of a folded operator

    fold_note = "c = dq∘dk/√D is one vector; dv goes into the output projection"

    def __init__(self, shape: AttentionShape, settings: RoleVectorSettings, folded: bool = False) -> None:
        super().__init__(shape, settings, folded)
        for vector in self._vectors_kept(folded):
            setattr(self, vector, nn.Parameter(torch.empty(shape.width)))

    def _vectors_kept(self, folded: bool) -> list[str]:
        if not folded:
            return self.settings.vectors
        return ["score_scale"] if "query_scale" in self.settings.vectors else []

    def initialize(self, std: float) -> None:
        if hasattr(self, "score_scale"):
            init.constant_(self.score_scale, self.shape.default_scale)
        for vector in self.settings.vectors:
            if (parameter := getattr(self, vector, None)) is None:
                continue  # folded away
            if self.settings.role_start == "normal":
                init.normal_(parameter, mean=1.0, std=self.settings.role_spread)
            else:
                init.copy_(parameter, self._start(vector))

    def _start(self, vector: str) -> torch.Tensor:
        start, width = self.settings.role_start, self.shape.width
        if vector == "query_scale" and start == "signed":
            return torch.randint(0, 2, (width,)) * 2.0 - 1.0
        if vector == "query_scale" and start == "signed-pairs":
            return self._signs_of_pairs()
        if start == "halves":
            if self.shape.head_width < 4:  # said here: to load or to count a model, its start does not matter
                raise TriuneError(
                    f"role_start='halves' halves heads of 4 dimensions or more, not of {self.shape.head_width}: "
                    "take fewer heads, or another role_start"
                )
            # Zero in one factor only: with dk at one, the gradient of dq is that of c, and dq leaves zero at once.
            scores_d = (self._pair_of_dimension() % 2 == 0).repeat(self.shape.heads)
            if vector == "query_scale":
                return HALVES_SIZE * scores_d * self._signs_of_pairs()
            if vector == "value_scale":
                return HALVES_SIZE * ~scores_d
        if start == "product" and vector == "key_scale":
            return torch.randn(width)
        if start == "product" and vector == "query_scale":
            return torch.randn(width) if "key_scale" in self.settings.vectors else torch.randn(2, width).prod(0)
        return torch.ones(width)

    def _pair_of_dimension(self) -> torch.Tensor:
        """Number of the rotary pair, (D,): dimensions i and i + D/2 turn together.

        Scores over turned dimensions depend on the distance of two tokens only where c is the same on both of a pair.
        """
        return torch.arange(self.shape.head_width) % (self.shape.head_width // 2)

    def _signs_of_pairs(self) -> torch.Tensor:
        signs_ND = torch.randint(0, 2, (self.shape.heads, self.shape.head_width)) * 2.0 - 1.0
        return signs_ND[:, self._pair_of_dimension()].flatten()

    def _score_scales(self) -> torch.Tensor | None:
        """c as far as it is stored: dq∘dk, or the one vector that stands for it; folded, with 1/√D in it."""
        if hasattr(self, "score_scale"):
            return self.score_scale
        if not hasattr(self, "query_scale"):
            return None
        scales = self.query_scale * self.key_scale if hasattr(self, "key_scale") else self.query_scale
        return scales.abs() if self.settings.score_sign == "positive" else scales

    def _scale_left(self) -> float:
        """What is left to multiply scores with: folded, c has 1/√D in it."""
        return 1.0 if hasattr(self, "score_scale") else self.shape.default_scale

    def _output_scale(self, like: torch.Tensor) -> torch.Tensor | None:
        value_scale = getattr(self, "value_scale", None)
        return None if value_scale is None else self._per_head(value_scale, like)

    def _per_head(self, vector: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        # Cast, or a float32 vector would lift a bfloat16 S to float32.
        return vector.to(like.dtype).view(self.shape.heads, self.shape.head_width)

    def _exact_per_head(self, vector: torch.Tensor) -> torch.Tensor:
        return vector.to(at_least_float32(vector.dtype)).view(self.shape.heads, self.shape.head_width)

    @torch.no_grad()
    def fold(self, output: nn.Linear) -> None:
        if hasattr(self, "value_scale") and not is_plain(output):
            # dv would reach the weight alone, and not what LoRA adds to it, or be lost in a weight that is computed.
            raise TriuneError(
                "fold() merges dv into the output projection, which is not a plain Linear here: merge adapters first "
                "(merge_and_unload()), remove parametrizations and hooks, and fold before quantising"
            )
        score_scale = self._score_scales()
        trained = any(parameter.requires_grad for parameter in self.parameters())
        if hasattr(self, "value_scale"):
            output.weight.mul_(self.value_scale)  # the columns of the weight are the inputs
        for vector in self.settings.vectors:
            delattr(self, vector)
        if score_scale is not None:
            self.score_scale = nn.Parameter(score_scale * self.shape.default_scale, requires_grad=trained)
        super().fold(output)
