"""Which parameters weight decay pulls towards zero: matrices only."""

from typing import Any

from torch import nn


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """For any optimiser of torch: decay on matrices, none on biases, norms and an operator's own vectors.

    Role vectors are scales, not weights: dq and dk are multiplied, so that decay would shrink scores twice over.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.ndim > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0},
    ]
