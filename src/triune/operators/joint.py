"""Several projections of one input as one product: larger products keep a device busier, and X is read once."""

import torch
from torch import nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def projections(x: torch.Tensor, *linears: nn.Linear) -> tuple[torch.Tensor, ...]:
    """`linear(x)` for each of them; on a CPU, where one product instead of several gains nothing, one by one."""
    return joint_projection(x, *linears) if x.is_cuda else tuple(linear(x) for linear in linears)


def joint_projection(x: torch.Tensor, *linears: nn.Linear) -> tuple[torch.Tensor, ...]:
    """`linear(x)` for each of them, as views of one output.

    Modules that are more than their weight and bias (wrapped by LoRA, quantised, with hooks) are called one by one.
    """
    if not all(is_plain(linear) for linear in linears) or len({linear.weight.dtype for linear in linears}) > 1:
        return tuple(linear(x) for linear in linears)
    weight = torch.cat([linear.weight for linear in linears])
    bias = torch.cat([linear.bias for linear in linears])
    return nn.functional.linear(x, weight, bias).split([linear.out_features for linear in linears], dim=-1)


def is_plain(linear: nn.Module) -> bool:
    """A Linear with nothing around it. Quantisers change the tensor's class, accelerate sets a `forward` on it."""
    return (
        type(linear) is nn.Linear
        and type(linear.weight) in (nn.Parameter, torch.Tensor)
        and linear.bias is not None
        and not has_hooks(linear)
    )


def has_hooks(module: nn.Module) -> bool:
    """Whether calling the module does more than its class says."""
    return "forward" in vars(module) or any(getattr(module, hooks) for hooks in _HOOKS)


def hook_count(module: nn.Module) -> int:
    return sum(len(getattr(module, hooks)) for hooks in _HOOKS)
