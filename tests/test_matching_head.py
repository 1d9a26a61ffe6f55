"""The head that docs/results/matching.md puts into a model finds equal tokens, and nothing else is changed."""

import importlib.util
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

import triune
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


def test_even_attention_is_what_it_is_measured_against(script):
    folder = triune.pretrained("mini-standard")
    model = triune.TriuneForMaskedLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    texts = ["the cat sat on the mat", "a dog"], ["the cat ran", "two men were in the house"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    seen = script.look_across(model, tokenizer, *texts)
    for layer in model.bert.encoder.layer:
        for part in (layer.attention.self.query, layer.attention.self.key):
            torch.nn.init.zeros_(part.weight)
            torch.nn.init.zeros_(part.bias)
    even = script.look_across(model, tokenizer, *texts)
    # Of the first pair: "the" twice in one and once in the other, "cat" once in each; of the second pair none.
    assert seen["tokens"] == even["tokens"] == 5
    length = len(tokenizer(texts[0][0], texts[1][0])["input_ids"])
    assert even["even"] == pytest.approx((1 + 1 + 1 + 2 + 1) / 5 / length)
    assert torch.allclose(torch.tensor(even["heads"]), torch.tensor(even["even"]))
    assert not torch.allclose(torch.tensor(seen["heads"]), torch.tensor(seen["even"]), rtol=0.1)
