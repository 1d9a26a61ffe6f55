"""Fine-tuning on a CUDA device: a captured step computes what an uncaptured one does. `make test-gpu`."""

import numpy as np
import pytest
import torch

from triune import TriuneForQuestionAnswering, TriuneForSequenceClassification
from triune.data.batches import training_plan
from triune.data.encoded import OnDevice, from_lists
from triune.testing import small_config
from triune.training.finetune_recipe import load_finetune_recipe
from triune.training.steps import Steps

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

BATCH, EPOCHS, LONGEST = 8, 3, 64
KINDS = ["classification", "regression", "span"]


def recipe(*overrides):
    few = ["training.batch=8", "training.precision=float32", "optimizer.learning_rates=[1e-3]", "optimizer.warmup=0.1"]
    return load_finetune_recipe("strong", [*few, *overrides])


def encoded(kind="classification", count=44):
    """Rows of many lengths; 44 of them leave a batch with fillers."""
    draw = np.random.default_rng(0)
    rows = [draw.integers(5, 67, draw.integers(6, LONGEST + 1)).tolist() for _ in range(count)]
    seen = [row[1] > 35 for row in rows]
    labels = {
        "classification": [int(high) for high in seen],
        "regression": [float(row[1]) / 67 for row in rows],
        "span": [[1, 3] if high else [2, 2] for high in seen],
    }[kind]
    return from_lists(rows, [len(row) // 2 for row in rows], labels)


def model(kind="classification", operator="shared", dropout=0.0):
    torch.manual_seed(4)
    head = TriuneForQuestionAnswering if kind == "span" else TriuneForSequenceClassification
    sizes = {"max_position_embeddings": LONGEST, "hidden_dropout_prob": dropout, "classifier_dropout": dropout}
    config = small_config(
        operator, num_labels=1 if kind == "regression" else 2, attention_probs_dropout_prob=dropout, **sizes
    )
    return head(config).cuda().train()


def train(kind, made, settings, epochs=EPOCHS):
    """Losses of epochs, with an evaluation between them as in a real run."""
    rows = encoded(kind)
    plans = [training_plan(rows.lengths, BATCH, 1, epoch, LONGEST) for epoch in range(epochs)]
    steps = Steps(made, OnDevice(rows, 0, torch.device("cuda")), kind, settings, sum(map(len, plans)))
    losses = []
    for plan in plans:
        made.train()
        for length, batch in plan:
            steps.take(torch.from_numpy(batch).cuda(), length)
        losses.append(steps.mean_loss(len(plan)))
        with torch.inference_mode():
            made.eval()(torch.full((2, 9), 6, device="cuda"))
    return losses, steps


@pytest.mark.parametrize("operator", ["standard", "shared", "pairwise"])
@pytest.mark.parametrize("kind", KINDS)
def test_captured_steps_are_those_that_are_not(kind, operator):
    results = []
    for captured in ("true", "false"):
        made = model(kind, operator)
        losses, steps = train(kind, made, recipe(f"training.captured={captured}"))
        assert steps.captured == (captured == "true")
        results.append((losses, made.state_dict(), steps))
    assert len(results[0][2].graphs) >= 4  # several lengths
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-3)
    for name, tensor in results[0][1].items():
        torch.testing.assert_close(tensor, results[1][1][name], rtol=5e-3, atol=5e-4, msg=lambda said, n=name: n + said)


def test_captured_steps_follow_the_table_of_rates():
    """With the rates of one schedule against another's, captured: the same only if the table is read in each step."""
    settings = ["training.captured=true", "optimizer.weight_decay=0"]
    moved = {}
    for schedule in ("constant", "linear"):
        made = model()
        before = made.classifier.weight.detach().clone()
        _, steps = train("classification", made, recipe(*settings, f"optimizer.schedule={schedule}"))
        assert steps.number.item() == len(steps.table)
        moved[schedule] = (made.classifier.weight.detach() - before).norm().item()
    assert moved["linear"] < 0.9 * moved["constant"]


def test_dropout_differs_from_step_to_step():
    """The same rows again and again, weights that hardly move: only dropout can change the loss."""
    rows = OnDevice(encoded(), 0, torch.device("cuda"))
    settings = recipe("training.captured=true", "optimizer.learning_rates=[1e-12]", "optimizer.weight_decay=0")
    batch = torch.arange(BATCH, device="cuda")
    for dropout, different in ((0.3, 6), (0.0, 1)):
        steps = Steps(model(dropout=dropout), rows, "classification", settings, 12)
        losses = []
        for number in range(6):
            steps.take(batch, LONGEST)
            losses.append(round(steps.mean_loss(1), 5))
            if number == 2:
                steps.take(batch, 32)  # another graph in between
                steps.mean_loss(1)
        assert len(set(losses)) == different, losses


def test_captured_runs_repeat_with_their_seed():
    """Dropout is drawn anew in every step, and the same for the same seed."""
    results = []
    for seed in (7, 7, 8):
        made = model(dropout=0.2)
        torch.manual_seed(seed)
        results.append(train("classification", made, recipe("training.captured=true"))[0])
    assert results[0] == pytest.approx(results[1], rel=1e-4)
    assert results[0] != pytest.approx(results[2], rel=1e-4)


@pytest.mark.parametrize("captured", ["true", "false"])
def test_it_learns_in_bfloat16(captured):
    made = model()
    overrides = [f"training.captured={captured}", "training.precision=bfloat16", "optimizer.learning_rates=[5e-3]"]
    losses, _ = train("classification", made, recipe(*overrides), epochs=40)
    assert losses[0] > 0.5
    assert losses[-1] < 0.1
    assert all(parameter.dtype == torch.float32 for parameter in made.parameters())


def test_a_matrix_on_the_device(samples, command, tmp_path):
    """Through the command, twice: captured and not give the same development scores and nearly the same losses."""
    import json

    from tests.samples import glue_arguments

    histories = []
    for captured in ("true", "false"):
        out = tmp_path / captured
        dropouts = ["model.hidden_dropout=0.0", "model.attention_dropout=0.0", "model.classifier_dropout=0.0"]
        result = command(*glue_arguments(samples, out, f"training.captured={captured}", *dropouts), "--workers", "1")
        assert result.returncode == 0, result.stderr
        record = json.loads((out / "rte/shared/seed-1/record.json").read_text())
        assert record["captured"] == (captured == "true")
        assert record["device"] != "cpu"
        histories.append([epoch["train_loss"] for epoch in record["history"]])
    assert histories[0] == pytest.approx(histories[1], rel=1e-2)
