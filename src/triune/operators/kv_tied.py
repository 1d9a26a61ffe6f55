"""Control: queries of their own, keys and values tied. What it loses is the price of K = V alone."""

import torch

from triune.operators.base import Operator
from triune.operators.formula import Costs, d
from triune.operators.joint import projections
from triune.operators.registry import register
from triune.operators.roles import AttentionShape, Roles, Rotate


@register("kv-tied")
class KeyValueTiedAttention(Operator):
    summary = "own queries, one projection for keys and values (control)"
    scores = "Q·Kᵀ, V = K"
    decoder_cache = "K (= V)"

    def __init__(self, shape: AttentionShape, settings: object, folded: bool = False) -> None:
        super().__init__(shape, settings, folded)
        self.query = self.projection()
        self.key_value = self.projection()

    def forward(self, hidden_BTd: torch.Tensor, rotate: Rotate) -> Roles:
        query_BTd, key_value_BTd = projections(hidden_BTd, self.query, self.key_value)
        query_BNTD, key_value_BNTD = self.split_heads(query_BTd), self.split_heads(key_value_BTd)
        return Roles(rotate(query_BNTD), rotate(key_value_BNTD), key_value_BNTD, self.shape.default_scale)

    @classmethod
    def costs(cls, settings: object) -> Costs:
        return Costs(weights=2 * d**2, biases=2 * d, role_flops=4 * d**2, cached=d)
