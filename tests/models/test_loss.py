"""The loss over half-precision logits: exact, and never with all of them in float32."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from triune.models import loss
from triune.models.loss import label_loss
from triune.testing import small_batch, small_model


class LargestSingle(TorchDispatchMode):
    """The most elements that any float32 tensor had."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32:
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(loss, "ELEMENTS_AT_ONCE", 3000)


def problem(dtype, rows=53, classes=1000):
    logits = (3 * torch.randn(rows, classes)).to(dtype).requires_grad_()
    labels = torch.randint(0, classes, (rows,))
    labels[::7] = -100
    return logits, labels


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_against_float64(dtype, autocast):
    logits, labels = problem(dtype)
    exact = logits.detach().double().requires_grad_()
    expected = torch.nn.functional.cross_entropy(exact, labels)
    (3 * expected).backward()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        value = label_loss(logits, labels)
    (3 * value).backward()
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-6)
    assert logits.grad.dtype == dtype
    # Each element of the gradient is the exact one, rounded once (half precision has no small numbers to speak of).
    torch.testing.assert_close(logits.grad, exact.grad.to(dtype), rtol=2**-7, atol=1e-7)
    assert logits.grad[::7].abs().max() == 0


def test_no_float32_copy_of_the_logits():
    logits, labels = problem(torch.bfloat16)
    with LargestSingle() as ours:
        label_loss(logits, labels).backward()
    assert 0 < ours.elements <= 3000
    with LargestSingle() as plain, torch.autocast("cpu", torch.bfloat16):
        torch.nn.functional.cross_entropy(logits, labels).backward()
    assert plain.elements == logits.numel()


def test_leading_dimensions_and_single_precision():
    logits, labels = problem(torch.float32, rows=12)
    expected = torch.nn.functional.cross_entropy(logits, labels)
    torch.testing.assert_close(label_loss(logits.view(3, 4, -1), labels.view(3, 4)), expected)
    torch.testing.assert_close(
        label_loss(logits.bfloat16().view(3, 4, -1), labels.view(3, 4)), expected, rtol=1e-2, atol=0
    )


def test_no_labels_at_all_is_what_pytorch_says():
    logits, labels = problem(torch.bfloat16)
    assert label_loss(logits, torch.full_like(labels, -100)).isnan()


@pytest.mark.parametrize("positions", [False, True])
def test_in_a_model(positions):
    """Under autocast, in training: the loss and gradients of full precision, without float32 logits."""
    batch = small_batch(rows=6, tokens=24)
    if positions:
        batch["masked_positions"] = torch.arange(12).expand(6, 12)
        batch["labels"] = batch["labels"][:, :12]
    model, exact = (
        small_model("shared", vocab_size=4000, hidden_size=16, masked_only_loss=True).train() for _ in range(2)
    )
    exact.double()(**batch).loss.backward()
    expected = exact.cls.predictions.decoder.bias.grad
    with LargestSingle() as largest:
        with torch.autocast("cpu", torch.bfloat16):
            value = model(**batch).loss
        value.backward()
    assert largest.elements <= model.get_output_embeddings().weight.numel()  # the gradient of the table
    ours = model.cls.predictions.decoder.bias.grad.double()
    assert (ours - expected).norm() < 0.03 * expected.norm()
