"""Symmetric attention: one projection serves as queries and keys, values have their own."""

import torch

from triune.operators.base import Operator
from triune.operators.formula import Costs, d
from triune.operators.joint import projections
from triune.operators.registry import register
from triune.operators.roles import AttentionShape, Roles, Rotate


@register("symmetric")
class SymmetricAttention(Operator):
    summary = "one projection for queries and keys, own values"
    scores = "Q·Qᵀ"
    symmetric_scores = True
    decoder_cache = "K and V"

    def __init__(self, shape: AttentionShape, settings: object, folded: bool = False) -> None:
        super().__init__(shape, settings, folded)
        self.query_key = self.projection()
        self.value = self.projection()

    def forward(self, hidden_BTd: torch.Tensor, rotate: Rotate) -> Roles:
        query_key_BTd, value_BTd = projections(hidden_BTd, self.query_key, self.value)
        query_key_BNTD, value_BNTD = rotate(self.split_heads(query_key_BTd)), self.split_heads(value_BTd)
        return Roles(query_key_BNTD, query_key_BNTD, value_BNTD, self.shape.default_scale)

    @classmethod
    def costs(cls, settings: object) -> Costs:
        return Costs(weights=2 * d**2, biases=2 * d, role_flops=4 * d**2, cached=2 * d)
