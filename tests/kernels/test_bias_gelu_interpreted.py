"""Bias and GELU through Triton's interpreter."""

import os

import pytest
import torch

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.interpreted,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1: `make test`"),
]

from triune.kernels.bias_gelu import bias_gelu  # noqa: E402


@pytest.mark.parametrize("shape", [(1, 8), (3, 7, 600), (2, 1, 512), (1030, 16)])
def test_against_float64(shape):
    torch.manual_seed(0)
    x = (3 * torch.randn(shape)).requires_grad_()
    bias = torch.randn(shape[-1], requires_grad=True)
    exact_x, exact_bias = (tensor.detach().double().requires_grad_() for tensor in (x, bias))
    d_output = torch.randn(shape)
    ours, exact = bias_gelu(x, bias), torch.nn.functional.gelu(exact_x + exact_bias)
    torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=2e-6)
    grads = torch.autograd.grad(ours, (x, bias), d_output)
    for grad, want in zip(grads, torch.autograd.grad(exact, (exact_x, exact_bias), d_output.double()), strict=True):
        torch.testing.assert_close(grad.double(), want, rtol=1e-5, atol=1e-5 * shape[0])


def test_far_out():
    x = torch.tensor([[-60.0, -9.0, -5.0, -1.0, 0.0, 1.0, 9.0, 60.0]])
    exact = torch.nn.functional.gelu(x.double())
    torch.testing.assert_close(bias_gelu(x, torch.zeros(8)).double(), exact, rtol=1e-6, atol=1e-6)


def test_opcheck():
    from triune.kernels.bias_gelu.ops import bias_gelu_backward, bias_gelu_forward

    x, bias = torch.randn(3, 40, dtype=torch.float16), torch.randn(40)
    torch.library.opcheck(bias_gelu_forward, (x.clone().requires_grad_(), bias.clone().requires_grad_()))
    torch.library.opcheck(bias_gelu_backward, (x, x, bias))
