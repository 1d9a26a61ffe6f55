"""The one place that decides which core computes attention.

The choice follows `attn_implementation`: "eager" is our reference, everything else is what transformers has
registered under that name. There is no fallback: an implementation that cannot run fails and says so.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from triune.errors import TriuneError
from triune.kernels.reference import reference_attention


class AttentionCore(NamedTuple):
    name: str
    reason: str
    gives_maps: bool
    function: Callable[..., tuple[Any, Any]]


def choose(implementation: str | None) -> AttentionCore:
    if implementation in ("eager", None):
        return AttentionCore("reference", f"attn_implementation is {implementation!r}", True, reference_attention)
    try:
        function = ALL_ATTENTION_FUNCTIONS[implementation]
    except KeyError:
        known = ", ".join(["eager", *sorted(ALL_ATTENTION_FUNCTIONS.valid_keys())])
        raise TriuneError(f"unknown attn_implementation '{implementation}': there are {known}") from None
    return AttentionCore(implementation, f"attn_implementation is {implementation!r}", False, function)
