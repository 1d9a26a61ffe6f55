"""Standard attention: three projections, the baseline of every comparison."""

import torch

from triune.operators.base import Operator
from triune.operators.formula import Costs, d
from triune.operators.joint import projections
from triune.operators.registry import register
from triune.operators.roles import AttentionShape, Roles, Rotate


@register("standard")
class StandardAttention(Operator):
    summary = "own projections for queries, keys and values (BERT)"
    scores = "Q·Kᵀ"
    decoder_cache = "K and V"

    def __init__(self, shape: AttentionShape, settings: object, folded: bool = False) -> None:
        super().__init__(shape, settings, folded)
        # BERT's own names: a published checkpoint loads as it is.
        self.query = self.projection()
        self.key = self.projection()
        self.value = self.projection()

    def forward(self, hidden_BTd: torch.Tensor, rotate: Rotate) -> Roles:
        projected = projections(hidden_BTd, self.query, self.key, self.value)
        query_BNTD, key_BNTD, value_BNTD = (self.split_heads(x_BTd) for x_BTd in projected)
        return Roles(rotate(query_BNTD), rotate(key_BNTD), value_BNTD, self.shape.default_scale)

    @classmethod
    def costs(cls, settings: object) -> Costs:
        return Costs(weights=3 * d**2, biases=3 * d, role_flops=6 * d**2, cached=2 * d)
