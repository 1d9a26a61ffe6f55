"""Several projections as one product: the same numbers, and no product where a module is more than its weight."""

import pytest
import torch
from torch import nn

from triune.operators import names
from triune.operators.joint import joint_projection
from triune.testing import small_batch, small_model


@pytest.fixture
def linears():
    return [nn.Linear(8, out).double() for out in (8, 8, 4)]


@pytest.fixture
def x():
    return torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True)


def products(run):
    """How many matrix products a call takes."""
    with torch.profiler.profile() as profile:
        result = run()
    return result, sum(event.count for event in profile.key_averages() if event.key == "aten::linear")


def with_gradients(outputs, x, linears):
    loss = sum(output.sin().sum() for output in outputs)
    parameters = [parameter for linear in linears for parameter in linear.parameters() if parameter.requires_grad]
    return [*outputs, *torch.autograd.grad(loss, [x, *parameters])]


def test_one_product_gives_them_all(linears, x):
    outputs, count = products(lambda: joint_projection(x, *linears))
    assert count == 1
    assert len({output.untyped_storage().data_ptr() for output in outputs}) == 1  # views
    expected = with_gradients([linear(x) for linear in linears], x, linears)
    torch.testing.assert_close(with_gradients(outputs, x, linears), expected)


def test_frozen_ones_get_no_gradient(linears, x):
    linears[1].requires_grad_(False)
    expected = with_gradients([linear(x) for linear in linears], x, linears)
    torch.testing.assert_close(with_gradients(joint_projection(x, *linears), x, linears), expected)


class Adapted(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


def adapted(linear):
    other = Adapted(8, 8).double()
    other.load_state_dict(linear.state_dict())
    return other


def hooked(linear):
    linear.register_forward_hook(lambda module, inputs, output: output + 1)
    return linear


def patched(linear):
    """As accelerate does for weights that lie elsewhere."""
    linear.forward = lambda x, run=linear.forward: run(x) + 1
    return linear


@pytest.mark.parametrize("change", [adapted, hooked, patched])
def test_others_are_called_one_by_one(change, linears, x):
    before = linears[1](x)
    linears[1] = change(linears[1])
    outputs, count = products(lambda: joint_projection(x, *linears))
    assert count == 3
    torch.testing.assert_close(outputs[1], before + 1)


def test_parametrised_weights_are_used(linears, x):
    class Doubled(nn.Module):
        def forward(self, weight):
            return 2 * weight

    nn.utils.parametrize.register_parametrization(linears[0], "weight", Doubled())
    torch.testing.assert_close(joint_projection(x, *linears)[0], linears[0](x))


@pytest.mark.parametrize("operator", names())
def test_operators_take_one_product_for_their_roles_on_a_gpu(operator, monkeypatch):
    model = small_model(operator)
    attention = model.bert.encoder.layer[0].attention.self
    # As if the CPU were one.
    monkeypatch.setattr(f"{type(attention).__module__}.projections", joint_projection, raising=False)
    hidden = torch.randn(2, 5, 32)
    _, count = products(lambda: attention(hidden, lambda x: x))
    assert count == 1
    batch = small_batch()
    expected = model(**batch).logits
    for module in attention.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda module, inputs, output: output.clone())
    torch.testing.assert_close(model(**batch).logits, expected, rtol=1e-4, atol=1e-5)
