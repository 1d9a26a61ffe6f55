"""Whether a model can be built, and its attention can run, on this machine: asked before anything is written.

Device, and precision by autocast, are those of the moment.
"""

import copy

import torch
from transformers import initialization as init

from triune.errors import TriuneError, one_line
from triune.kernels import dispatch
from triune.models import cores
from triune.models.configuration import TriuneConfig
from triune.models.heads import TriuneForMaskedLM

# Of one more the dispatch knows where it runs; what others need is known to their packages alone.
EVERYWHERE = (dispatch.AUTOMATIC, dispatch.SDPA, "eager", None)
_OURS = (*EVERYWHERE, dispatch.FORCED)
_TOKENS = 8


def check_model(config: TriuneConfig, device: torch.device) -> None:
    """Of a model that is to be built."""
    check_attention(config, device)
    with torch.random.fork_rng(devices=[]):
        _one_layer(config)
    try:
        with torch.device("meta"), init.meta_device_safe_creation_ops():  # as transformers loads a model
            _one_layer(config)
    except TriuneError:
        raise
    except Exception as error:  # of an operator of one's own, which no saved model could be loaded with
        raise TriuneError(
            f"operator '{config.operator}' cannot be built on PyTorch's meta device, where models are loaded: "
            f"{one_line(error)}"
        ) from error


def check_attention(config: TriuneConfig, device: torch.device) -> None:
    implementation = config._attn_implementation
    dispatch.choose(implementation, cores.situation(config, device, torch.float32))
    if implementation in _OURS:
        return
    tokens = torch.arange(1, 1 + min(_TOKENS, config.max_position_embeddings), device=device)[None]
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            _one_layer(config).to(device)(input_ids=tokens, labels=tokens).loss.backward()
    except TriuneError:
        raise
    except Exception as error:  # of packages that may fail as they like
        raise TriuneError(f"attention '{implementation}' cannot run here: {one_line(error)}") from error


def _one_layer(config: TriuneConfig) -> TriuneForMaskedLM:
    """The model, but for what costs time and says nothing."""
    small = copy.deepcopy(config)
    small.num_hidden_layers, small.vocab_size, small.pad_token_id = 1, 1 + _TOKENS, 0
    return TriuneForMaskedLM(small)
