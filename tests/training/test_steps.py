"""Fine-tuning steps: the table of rates, losses that leave fillers out, and what a step does."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tests.samples import QUICK
from triune import TriuneForSequenceClassification
from triune.data.encoded import FILLER, OnDevice, from_lists
from triune.testing import small_config
from triune.training.finetune_recipe import load_finetune_recipe
from triune.training.steps import Steps, loss_of, rates


def recipe(*overrides):
    return load_finetune_recipe("strong", [*QUICK, *overrides])


def table(steps, *overrides):
    return rates(recipe(*overrides), steps).tolist()


def test_linear_rates_rise_to_the_peak_and_fall_to_nothing():
    found = table(10, "optimizer.learning_rates=[1.0]", "optimizer.warmup=0.2", "optimizer.schedule=linear")
    assert found == pytest.approx([1 / 3, 2 / 3, *(1 - i / 8 for i in range(8))])


def test_cosine_rates_are_half_way_in_the_middle():
    found = table(8, "optimizer.learning_rates=[2.0]", "optimizer.warmup=0", "optimizer.schedule=cosine")
    assert found == pytest.approx([1 + math.cos(math.pi * i / 8) for i in range(8)])


def test_constant_rates_warm_up_only():
    found = table(10, "optimizer.learning_rates=[3.0]", "optimizer.warmup=0.3", "optimizer.schedule=constant")
    assert found == pytest.approx([0.75, 1.5, 2.25, *[3.0] * 7])


def test_three_stages_share_the_steps_and_only_the_first_warms_up():
    stages = ["optimizer.learning_rates=[1e-4, 2e-5, 2e-6]", "optimizer.warmup=0.25"]
    constant = table(12, *stages, "optimizer.schedule=constant")
    assert constant == pytest.approx([5e-5, *[1e-4] * 3, *[2e-5] * 4, *[2e-6] * 4])
    linear = table(12, *stages, "optimizer.schedule=linear")
    assert linear[4:8] == pytest.approx([2e-5, 1.5e-5, 1e-5, 0.5e-5])  # each stage falls from its own rate
    assert linear[8:] == pytest.approx([2e-6, 1.5e-6, 1e-6, 0.5e-6])


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_every_step_has_a_rate(steps, schedule):
    found = table(steps, "optimizer.learning_rates=[0.3, 0.2, 0.1]", f"optimizer.schedule={schedule}")
    assert len(found) == steps
    assert all(0 < rate <= 0.3 + 1e-6 for rate in found)


HELD = torch.tensor([True, True, False, True])


@pytest.mark.parametrize("kind", ["classification", "regression", "span"])
def test_the_loss_is_the_mean_over_the_examples_that_are_there(kind):
    draw = torch.Generator().manual_seed(0)

    def logits(*shape):
        return torch.randn(shape, generator=draw)

    if kind == "classification":
        outputs, labels = SimpleNamespace(logits=logits(4, 3)), torch.tensor([2, 0, 1, 1])
        each = [-outputs.logits[i].log_softmax(0)[labels[i]] for i in range(4)]
    elif kind == "regression":
        outputs, labels = SimpleNamespace(logits=logits(4, 1)), torch.tensor([0.5, 1.0, 100.0, 2.0])
        each = [(outputs.logits[i, 0] - labels[i]) ** 2 for i in range(4)]
    else:
        outputs = SimpleNamespace(start_logits=logits(4, 6), end_logits=logits(4, 6))
        labels = torch.tensor([[1, 2], [0, 0], [3, 5], [4, 4]])
        both = ((outputs.start_logits, 0), (outputs.end_logits, 1))
        each = [-sum(side[i].log_softmax(0)[labels[i, end]] for side, end in both) / 2 for i in range(4)]
    expected = sum(loss for loss, held in zip(each, HELD, strict=True) if held) / 3
    assert loss_of(kind, outputs, labels, HELD).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.fixture
def examples():
    draw = np.random.default_rng(0)
    rows = [draw.integers(5, 67, draw.integers(3, 17)).tolist() for _ in range(24)]
    labels = [int(row[0] > 35) for row in rows]
    return OnDevice(from_lists(rows, [len(row) for row in rows], labels), 0, torch.device("cpu"))


def model():
    torch.manual_seed(4)
    return TriuneForSequenceClassification(small_config("shared", num_hidden_layers=1)).train()


def test_a_filler_changes_nothing(examples):
    """Seven real rows and a filler are a batch of seven."""
    results = []
    for rows in ([*range(7), FILLER], [*range(7)]):
        made = model()
        steps = Steps(made, examples, "classification", recipe(), 10)
        steps.take(torch.tensor(rows), 16)
        results.append((steps.mean_loss(1), made.classifier.weight.detach().clone()))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-5)
    torch.testing.assert_close(results[0][1], results[1][1])


def test_steps_follow_the_table(examples):
    """AdamW's first step moves every weight by the rate, whatever its gradient; there is no decay here."""
    for rate in (1e-2, 1e-3):
        made = model()
        before = made.classifier.weight.detach().clone()
        settings = [f"optimizer.learning_rates=[{rate}]", "optimizer.warmup=0", "optimizer.weight_decay=0"]
        settings += ["optimizer.epsilon=1e-12", "optimizer.schedule=constant"]
        Steps(made, examples, "classification", recipe(*settings), 10).take(torch.arange(8), 16)
        moved = (made.classifier.weight.detach() - before).abs()
        torch.testing.assert_close(moved, torch.full_like(moved, rate), rtol=1e-3, atol=0)


def test_clipping_limits_the_gradient(examples):
    norms = {}
    for clip in (0.0, 1e-3):
        made = model()
        Steps(made, examples, "classification", recipe(f"optimizer.clip={clip}"), 10).take(torch.arange(8), 16)
        norms[clip] = nn.utils.get_total_norm([p.grad for p in made.parameters() if p.grad is not None]).item()
    assert norms[0.0] > 1e-2
    assert norms[1e-3] == pytest.approx(1e-3, rel=1e-2)


def test_decay_is_for_matrices_only(examples):
    made = model()
    steps = Steps(made, examples, "classification", recipe("optimizer.weight_decay=0.1"), 10)
    names = {parameter: name for name, parameter in made.named_parameters()}
    groups = [(group["weight_decay"], [names[p] for p in group["params"]]) for group in steps.optimizer.param_groups]
    assert sorted(name for _, group in groups for name in group) == sorted(names.values())
    for decay, group in groups:
        for name in group:
            spared = any(part in name for part in ("bias", "LayerNorm", "norm", "_scale"))
            assert decay == (0.0 if spared else 0.1), name


def test_the_mean_loss_starts_anew(examples):
    steps = Steps(model(), examples, "classification", recipe("optimizer.learning_rates=[1e-9]"), 10)
    for _ in range(3):
        steps.take(torch.arange(8), 16)
    first = steps.mean_loss(3)
    steps.take(torch.arange(8), 16)
    assert steps.mean_loss(1) == pytest.approx(first, rel=1e-4)  # the same rows, hardly any rate


def test_it_learns_a_batch_by_heart(examples):
    steps = Steps(model(), examples, "classification", recipe("optimizer.schedule=constant"), 60)
    for _ in range(60):
        steps.take(torch.arange(8), 16)
    assert steps.mean_loss(60) < 0.5
    steps = Steps(steps.model, examples, "classification", recipe("optimizer.learning_rates=[1e-9]"), 1)
    steps.take(torch.arange(8), 16)
    assert steps.mean_loss(1) < 0.05
