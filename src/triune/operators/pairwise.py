"""Pairwise attention: symmetric attention with one D×D matrix U a head between the two sides of a score."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from transformers import initialization as init

from triune.operators.base import Operator
from triune.operators.formula import Costs, d, m
from triune.operators.joint import projections
from triune.operators.registry import register
from triune.operators.roles import AttentionShape, Roles, Rotate


@dataclass
class PairwiseSettings:
    # Where U starts: small normal values, as its authors did (arXiv 2406.06366), or the identity, which makes the
    # operator start as symmetric attention.
    pair_start: Literal["normal", "identity"] = "normal"


@register("pairwise")
class PairwiseAttention(Operator):
    Settings = PairwiseSettings
    settings: PairwiseSettings

    summary = "one projection for queries and keys, a D×D matrix U a head between them, own values"
    scores = "Q·U·Qᵀ"
    decoder_cache = "K and V"

    def __init__(self, shape: AttentionShape, settings: PairwiseSettings, folded: bool = False) -> None:
        super().__init__(shape, settings, folded)
        self.query_key = self.projection()
        self.value = self.projection()
        self.pair_NDD = nn.Parameter(torch.empty(shape.heads, shape.head_width, shape.head_width))

    def initialize(self, std: float) -> None:
        if self.settings.pair_start == "normal":
            init.normal_(self.pair_NDD, mean=0.0, std=std)
        else:
            init.copy_(self.pair_NDD, torch.eye(self.shape.head_width).expand_as(self.pair_NDD))

    def forward(self, hidden_BTd: torch.Tensor, rotate: Rotate) -> Roles:
        query_key_BTd, value_BTd = projections(hidden_BTd, self.query_key, self.value)
        query_key_BNTD, value_BNTD = self.split_heads(query_key_BTd), self.split_heads(value_BTd)
        # U comes before the rotation, so that a rotated score depends on the distance of two tokens only.
        paired_BNTD = torch.matmul(query_key_BNTD, self.pair_NDD.to(query_key_BNTD.dtype))
        return Roles(rotate(paired_BNTD), rotate(query_key_BNTD), value_BNTD, self.shape.default_scale)

    @classmethod
    def costs(cls, settings: object) -> Costs:
        return Costs(weights=2 * d**2 + d**2 / m, biases=2 * d, role_flops=4 * d**2 + 2 * d**2 / m, cached=2 * d)
