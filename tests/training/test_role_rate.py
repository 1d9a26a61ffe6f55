"""A learning rate of their own for role vectors, and what it leaves alone."""

import shutil

import pytest
import torch

from tests.training.conftest import TINY
from tests.training.test_pretrain import assert_same_weights, weights
from triune import TriuneError, TriuneForMaskedLM
from triune.testing import small_config
from triune.training.pretrain import pretrain
from triune.training.recipe import load_recipe, recipe_from_dict
from triune.training.run_folder import identity_of
from triune.training.trainer import give_vectors_a_rate, role_vectors

VECTORS = ("query_scale", "key_scale", "value_scale")
SHORT = ["training.steps=4", "optimizer.warmup=0.5", "training.checkpoint_every=4", "training.evaluate_every=4"]


def recipe(*overrides):
    return load_recipe("pocket", [*TINY, *SHORT, "model.operator_settings={role_start: signed}", *overrides])


def moved(run):
    """Root mean square distance of the role vectors from a start at which all of them are one in size."""
    found = [value.abs() - 1 for name, value in weights(run).items() if name.endswith(VECTORS)]
    assert len(found) == 3
    return torch.cat(found).square().mean().sqrt().item()


@pytest.mark.parametrize("schedule", ["linear", "cosine", "one-cycle"])
def test_vectors_move_further(schedule, blocks, tmp_path):
    distance = {}
    for times in (0, 1, 10):
        run = tmp_path / str(times)
        pretrain(recipe(f"training.role_rate={times}", f"optimizer.schedule={schedule}"), blocks, run)
        distance[times] = moved(run)
    assert distance[0] == 0
    assert 5 < distance[10] / distance[1] < 15


def test_a_stopped_run_goes_on_with_both_rates(blocks, tmp_path):
    wanted = recipe("training.role_rate=10", "training.checkpoint_every=2")
    pretrain(wanted, blocks, tmp_path / "whole")
    pretrain(wanted, blocks, tmp_path / "stopped")
    # As a kill after the first checkpoint leaves it.
    for name in ("checkpoint-4", "model"):
        shutil.rmtree(tmp_path / "stopped" / name)
    (tmp_path / "stopped" / "summary.json").unlink()
    pretrain(wanted, blocks, tmp_path / "stopped")
    assert_same_weights(tmp_path / "stopped", tmp_path / "whole")


@pytest.mark.parametrize(
    ("operator", "layers_vectors"),
    [("shared", 3), ("rolled", 3), ("shared-low-rank", 3), ("standard", 0), ("pairwise", 0)],
)
def test_only_role_vectors_get_it(operator, layers_vectors):
    model = TriuneForMaskedLM(small_config(operator))
    vectors = role_vectors(model)
    assert len(vectors) == 2 * layers_vectors
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    give_vectors_a_rate(optimizer, vectors, 1e-2)
    by_rate = {group["lr"]: group for group in optimizer.param_groups}
    named = {id(parameter): name for name, parameter in model.named_parameters()}
    kept = [named[id(parameter)] for parameter in by_rate[1e-3]["params"]]
    assert not any(name.endswith(VECTORS) for name in kept)
    assert len(kept) + len(vectors) == len(named)
    if vectors:
        assert by_rate[1e-2]["weight_decay"] == 0
        assert all(named[id(parameter)].endswith(VECTORS) for parameter in by_rate[1e-2]["params"])


def test_recipes_without_it_are_the_same_as_ever():
    """Records that were made before there was this value stay those of the same recipe."""
    data = {"train.bin": "0" * 64}
    plain, same, other = (
        load_recipe("pocket", change) for change in ([], ["training.role_rate=1"], ["training.role_rate=10"])
    )
    assert "role_rate" not in plain.to_yaml()
    assert identity_of(same, data) == identity_of(plain, data) != identity_of(other, data)
    assert recipe_from_dict(other.to_dict(), "again").training.role_rate == 10
    assert recipe_from_dict(plain.to_dict(), "again").training.role_rate == 1


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (["training.role_rate=10"], [], "training.role_rate is 10 there and 1.0 here"),
        ([], ["training.role_rate=10"], "training.role_rate is 1.0 there and 10 here"),
        (["model.mask_diagonal=true"], [], "model.mask_diagonal is True there and False here"),
        ([], ["model.operator_settings={}"], "model.operator_settings.role_start is signed there and halves here"),
        (["model.operator_settings.score_sign=free"], [], "operator_settings.score_sign is free there and None here"),
    ],
)
def test_a_folder_of_another_recipe_is_told(before, now, said, finished, blocks, tmp_path):
    """Also where the other recipe has a key that this one leaves out."""
    pretrain(recipe(*before), blocks, tmp_path / "run")
    if not finished:
        (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(TriuneError, match=said):
        pretrain(recipe(*now), blocks, tmp_path / "run")
    pretrain(recipe(*before), blocks, tmp_path / "run")


@pytest.mark.parametrize("wrong", ["-1", ".inf", ".nan", "fast"])
def test_rates_that_are_none(wrong):
    with pytest.raises(TriuneError, match="role_rate") as caught:
        load_recipe("pocket", [f"training.role_rate={wrong}"])
    assert "\n" not in str(caught.value)
