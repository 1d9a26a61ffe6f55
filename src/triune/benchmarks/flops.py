"""Arithmetic of a model, from the operators' own formulas: matrix products and role scalings, nothing else."""

from triune import operators
from triune.models.configuration import TriuneConfig
from triune.operators.formula import evaluate


def forward_flops_a_token(config: TriuneConfig, tokens: int, predicted_share: float = 1.0) -> float:
    """FLOPs a token of a masked-LM forward pass over sequences of `tokens`; a multiply-add is two.

    `predicted_share` is the share of positions for which the head computes logits.
    """
    width = config.hidden_size
    roles_and_attention = evaluate(
        operators.get(config.operator).costs(config.settings).flops, config.attention_shape, tokens
    )
    layer = roles_and_attention + 2 * width**2 + 4 * width * config.intermediate_size
    head = 2 * width**2 + 2 * width * config.vocab_size
    return config.num_hidden_layers * layer + predicted_share * head


def training_flops_a_token(config: TriuneConfig, tokens: int, predicted_share: float) -> float:
    """The backward pass has two products for each of the forward's."""
    return 3 * forward_flops_a_token(config, tokens, predicted_share)


def step_bytes(parameters: int) -> float:
    """Bytes that a training step must move for its float32 weights, whatever it does with activations.

    Weights are read forward and backward, gradients written, read for their norm and by AdamW, which also reads and
    writes weights and both moments: 11 numbers a weight.
    """
    return 4.0 * 11 * parameters
