"""Control: one projection is queries, keys and values. What `shared` gains over it is what role vectors give."""

import torch

from triune.operators.base import Operator
from triune.operators.formula import Costs, d
from triune.operators.registry import register
from triune.operators.roles import AttentionShape, OneTensor, Roles, Rotate


@register("qkv-tied")
class AllTiedAttention(Operator):
    summary = "one projection is queries, keys and values, without role vectors (control)"
    scores = "S·Sᵀ"
    symmetric_scores = True
    is_one_tensor = True
    decoder_cache = "S"

    def __init__(self, shape: AttentionShape, settings: object, folded: bool = False) -> None:
        super().__init__(shape, settings, folded)
        self.shared = self.projection()

    def forward(self, hidden_BTd: torch.Tensor, rotate: Rotate) -> Roles:
        shared_BNTD = self.split_heads(self.shared(hidden_BTd))
        turned_BNTD = rotate(shared_BNTD)
        return Roles(turned_BNTD, turned_BNTD, shared_BNTD, self.shape.default_scale)

    def one_tensor(self, hidden_BTd: torch.Tensor) -> OneTensor:
        shared_BTND = self.heads_last(self.shared(hidden_BTd))
        return OneTensor(shared_BTND, self.even_scale(shared_BTND))

    @classmethod
    def costs(cls, settings: object) -> Costs:
        return Costs(weights=d**2, biases=d, role_flops=2 * d**2, cached=d)
