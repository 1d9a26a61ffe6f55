"""recipes/levers.yaml: every lever builds, trains, and stays within its parameters."""

import pytest
import torch

from triune import TriuneConfig, TriuneForMaskedLM
from triune.studies.ablations import load_ablations
from triune.testing import small_batch
from triune.training.recipe import load_recipe

LEVERS = load_ablations("levers")
VARIANTS = {variant.name: variant for variant in LEVERS.variants}
REFERENCES = ("standard", "standard-rotary")


def model_of(variant, **sizes):
    part = load_recipe("sprint", list(VARIANTS[variant].set)).model
    return TriuneForMaskedLM(
        TriuneConfig(
            operator=part.operator,
            operator_settings=part.operator_settings,
            position=part.position,
            mask_diagonal=part.mask_diagonal,
            norm_position=part.norm_position,
            vocab_size=67,
            num_hidden_layers=1,
            **sizes,
        )
    )


def test_names_say_what_is_set():
    """Positions, whatever the recipe says; and every variant is another model or another way to train it."""
    assert LEVERS.reference == "standard"
    for recipe in ("pocket", "sprint"):
        seen = set()
        for name, variant in VARIANTS.items():
            chosen = load_recipe(recipe, list(variant.set))
            assert (chosen.model.position == "rotary") == name.endswith("-rotary"), name
            assert chosen.model.mask_diagonal == ("no-diagonal" in name), name
            assert (chosen.training.role_rate == 10) == ("role-rate-10" in name), name
            seen.add(str(chosen.to_dict()))
        assert len(seen) == len(VARIANTS)


@pytest.mark.parametrize("width", [384, 768])
@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_before_the_output_projection(variant, width):
    with torch.device("meta"):
        model = model_of(variant, hidden_size=width, num_attention_heads=width // 64)
    operator = model.bert.encoder.layer[0].attention.self
    within = sum(parameter.numel() for parameter in operator.parameters()) <= 1.1 * (width**2 + 4 * width)
    assert within == (variant not in REFERENCES)


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_falls(variant):
    torch.manual_seed(1)
    model = model_of(variant, hidden_size=32, num_attention_heads=4, intermediate_size=48).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    batch = small_batch()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.5
    still = [name for name, parameter in model.named_parameters() if torch.equal(parameter, before[name])]
    assert still == []
