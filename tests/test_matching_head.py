"""The head that docs/results/matching.md puts into a model finds equal tokens, and nothing else is changed."""

import importlib.util
from pathlib import Path

import pytest
import torch

from triune.testing import small_model

SCRIPT = Path(__file__).parents[1] / "docs" / "results" / "matching_head.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("matching_head", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wide():
    """Heads of 64, as in the mini models: on fewer dimensions, random projections tell tokens apart less well."""
    return small_model("standard", hidden_size=256, position="rotary", norm_position="pre", attn_implementation="eager")


def test_one_head_is_made_anew(script):
    before, after = wide(), wide()
    script.make_anew(after, 1, True)
    made, rows = "bert.encoder.layer.1.attention.self", slice(3 * 64, 4 * 64)
    for (name, was), (_, now) in zip(before.named_parameters(), after.named_parameters(), strict=True):
        changed = (was != now).any()
        assert bool(changed) == name.startswith((f"{made}.query", f"{made}.key"))
        if changed:
            assert torch.equal(was[: rows.start], now[: rows.start])


@pytest.mark.parametrize("equal", [True, False])
def test_it_finds_equal_tokens(equal, script):
    model = wide()
    with torch.no_grad():  # embeddings of unlike tokens are unlike
        model.bert.embeddings.word_embeddings.weight.normal_()
    script.make_anew(model, 0, equal)
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 5, 11, 12, 13]])
    with torch.inference_mode():
        head = model(input_ids=ids, output_attentions=True).attentions[0][0, 3]
    found = head[0, 6] + head[0, 0]
    assert (found > 0.8) == equal
    if equal:
        assert head[0, 6] == pytest.approx(float(head[0, 0]), rel=0.2)  # at any distance
