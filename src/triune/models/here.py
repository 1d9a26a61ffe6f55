"""Whether a model can be built, and its attention can run, on this machine: asked before anything is written."""

from functools import cache

import torch

from triune.errors import TriuneError, one_line
from triune.kernels import dispatch
from triune.models import cores
from triune.models.configuration import TriuneConfig
from triune.models.heads import TriuneForMaskedLM

# Of these the dispatch knows where they run; what others need is known to their packages alone.
_OURS = (dispatch.AUTOMATIC, dispatch.FORCED, dispatch.SDPA, "eager", None)


def check_attention(implementation: str | None) -> None:
    dispatch.choose(implementation)  # an error where nobody knows the name
    if implementation not in _OURS and (hindrance := _tried(implementation)) is not None:
        raise TriuneError(f"attention '{implementation}' cannot run here: {hindrance}")


def check_model(config: TriuneConfig, device: torch.device) -> None:
    """For the device and under the autocast of the moment."""
    check_attention(config._attn_implementation)
    with torch.device("meta"):
        model = TriuneForMaskedLM(config)
    dispatch.choose(config._attn_implementation, cores.situation(config, device, model.dtype))


@cache
def _tried(implementation: str) -> str | None:
    """What goes wrong in one small layer, forward and backward, or None."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    small = {"vocab_size": 16, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
    cuda = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(cuda), torch.autocast(device.type, torch.bfloat16, enabled=bool(cuda)):
            config = TriuneConfig(**small, operator="standard", attn_implementation=implementation)
            tokens = torch.arange(1, 9, device=device)[None]
            TriuneForMaskedLM(config).to(device)(input_ids=tokens, labels=tokens).loss.backward()
    except Exception as error:  # of packages that may fail as they like
        return one_line(error)
    return None
