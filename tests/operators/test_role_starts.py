"""Where role vectors start, beyond ones, normal and signed."""

from dataclasses import dataclass

import pytest
import torch
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError

from triune import TriuneError, TriuneForMaskedLM, operators
from triune.benchmarks.parameters import study
from triune.operators import AttentionShape
from triune.operators.shared import SharedSettings
from triune.testing import small_batch, small_config, small_model

WIDE = AttentionShape(width=1024, heads=4)
OPERATORS = ("shared", "rolled", "shared-low-rank")


def started(start, operator="shared", role_vectors="separate"):
    torch.manual_seed(7)
    built = operators.build(operator, WIDE, {"role_start": start, "role_vectors": role_vectors})
    built.initialize(0.02)
    c = built.query_scale * getattr(built, "key_scale", 1)
    return built, c.detach().view(4, 256), built.value_scale.detach().view(4, 256)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("role_vectors", ["separate", "joint"])
def test_halves_are_complementary(operator, role_vectors):
    _, c, dv = started("halves", operator, role_vectors)
    assert torch.equal(c.abs() + dv, torch.full((4, 256), 1.4))
    assert torch.equal((c != 0).sum(1), torch.full((4,), 128))
    assert 0.3 < (c[c != 0] < 0).float().mean() < 0.7
    assert torch.equal(c[:, :128], c[:, 128:])  # the two dimensions of a rotary pair


def test_halves_of_heads_that_are_too_narrow():
    with pytest.raises(TriuneError, match=r"4 dimensions or more, not of 2"):
        TriuneForMaskedLM(small_config("shared", num_attention_heads=16))


def test_a_start_does_not_matter_to_a_model_that_has_one(tmp_path):
    """Saved when ones were the default, with heads that have no halves."""
    narrow = {"num_attention_heads": 16}
    saved = small_model("shared", **narrow, operator_settings={"role_start": "ones"})
    saved.save_pretrained(tmp_path)
    loaded = TriuneForMaskedLM.from_pretrained(tmp_path, operator_settings={"score_sign": "free"})
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(saved.parameters(), loaded.parameters(), strict=True))
    with pytest.raises(TriuneError, match="holds the operator 'shared'"):
        TriuneForMaskedLM.from_pretrained(tmp_path, operator="standard")
    counted = study(small_config("standard", **narrow), ["masked-lm"])["operators"]
    assert counted["shared"]["attention"] == 2 * (32**2 + 4 * 32)


@pytest.mark.parametrize("position", ["absolute", "rotary"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_zeros_of_halves_do_not_stay(operator, position):
    """One step of training moves every entry that started at zero."""
    torch.manual_seed(2)
    settings = {"role_start": "halves"}
    model = TriuneForMaskedLM(small_config(operator, operator_settings=settings, position=position)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(**small_batch()).loss.backward()
    optimizer.step()
    for layer in model.bert.encoder.layer:
        assert (layer.attention.self.query_scale != 0).all()
        assert (layer.attention.self.value_scale != 0).all()


def test_signs_of_pairs():
    built, c, dv = started("signed-pairs")
    assert torch.equal(c.abs(), torch.ones(4, 256))
    assert torch.equal(c[:, :128], c[:, 128:])
    assert 0.4 < (c < 0).float().mean() < 0.6
    assert not torch.equal(c[0], c[1])
    assert torch.equal(built.key_scale, torch.ones(1024))
    assert torch.equal(dv, torch.ones(4, 256))


@pytest.mark.parametrize("role_vectors", ["separate", "joint"])
def test_product_of_two_normals(role_vectors):
    built, c, dv = started("product", role_vectors=role_vectors)
    assert torch.equal(dv, torch.ones(4, 256))
    assert abs(c.mean()) < 0.1
    assert abs(c.std() - 1) < 0.2
    # The product of two is peaked: far more of it is near zero than of one (E|c| is 2/π, not √(2/π)).
    assert abs(c.abs().mean() - 2 / torch.pi) < 0.06
    if role_vectors == "separate":
        assert not torch.equal(built.query_scale, built.key_scale)


@pytest.mark.parametrize(
    ("operator", "settings", "start"),
    [
        ("shared", {}, "halves"),
        ("shared", {"role_vectors": "joint"}, "halves"),
        ("shared", {"role_start": None}, "halves"),
        ("shared", {"role_start": "ones"}, "ones"),
        # Nothing to halve: these settings are to be had by themselves.
        ("shared", {"role_vectors": "value"}, "ones"),
        ("shared", {"role_vectors": "none"}, "ones"),
        ("shared", {"score_sign": "positive"}, "ones"),
        ("shared-low-rank", {}, "halves"),
        # Its slices tell roles apart without vectors, and recipes of published records rely on it.
        ("rolled", {}, "ones"),
    ],
)
def test_start_by_default(operator, settings, start):
    assert operators.settings_for(operator, settings).role_start == start
    assert small_config(operator, operator_settings=settings).operator_settings["role_start"] == start


def test_a_start_that_stays_open_is_an_error():
    """Of an operator of somebody's own, whose settings are made otherwise: it would start at one without a word."""

    @dataclass
    class Settings(SharedSettings):
        def __post_init__(self):
            pass

    with pytest.raises(StrictDataclassError, match="role_start was left open"):
        strict(Settings)()
    assert strict(Settings)(role_start="ones").role_start == "ones"


@pytest.mark.parametrize("start", ["signed-pairs", "product", "halves"])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"role_vectors": "value"}, "has no vector to sign"),
        ({"role_vectors": "none"}, "has no vector to sign"),
        ({"score_sign": "positive"}, "leave that out"),
    ],
)
def test_starts_that_do_not_apply(start, settings, says):
    with pytest.raises(TriuneError, match=says) as caught:
        operators.settings_for("shared", {"role_start": start, **settings})
    assert f"role_start='{start}'" in str(caught.value)


def test_rotated_scores_of_signed_pairs_depend_on_the_distance_only():
    """Which those of `signed` do not: half of their pairs have a sign of their own on each dimension."""
    moved = {}
    for start in ("signed", "signed-pairs", "halves"):
        torch.manual_seed(3)
        config = small_config("shared", operator_settings={"role_start": start}, position="rotary")
        model = TriuneForMaskedLM(config).eval().double()
        with torch.no_grad():
            for layer in model.bert.encoder.layer:
                layer.attention.self.shared.weight.mul_(20)  # so that attention is not even
            ids = small_batch()["input_ids"]
            positions = torch.arange(ids.shape[1])[None]
            here, later = (model(ids, position_ids=positions + shift).logits for shift in (0, 9))
        moved[start] = (later - here).abs().max().item()
    assert moved["signed-pairs"] < 1e-4
    assert moved["halves"] < 1e-4
    assert moved["signed"] > 1e-2
