"""Loading with checks: what does not fit the model is an error in one line, not a model with random weights.

transformers fills weights that a checkpoint lacks with fresh ones and only warns. For a task head that is wanted; for
the encoder it would be a silent disaster, and it is what happens when a checkpoint of one operator is loaded into
another.
"""

from collections.abc import Callable, Iterable, Sized
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers.configuration_utils import PreTrainedConfig

from triune import operators
from triune.errors import MissingCheckpointError, TriuneError, one_line
from triune.models.configuration import as_triune_config
from triune.models.layers import TriuneEmbeddings, TriuneEncoder
from triune.models.pretrained import is_path


def load_checked(
    load: Callable[..., Any],
    pretrained_model_name_or_path: Any = None,
    *args: Any,
    config: Any = None,
    ignore_mismatched_sizes: bool = False,
    output_loading_info: bool = False,
    use_safetensors: bool = True,
    **kwargs: Any,
) -> Any:
    """`load` is transformers' `from_pretrained`; only safetensors are read unless the caller says otherwise."""
    name = pretrained_model_name_or_path
    if isinstance(config, PreTrainedConfig):
        config = as_triune_config(config)
    try:
        model, info = load(
            name,
            *args,
            config=config,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            use_safetensors=use_safetensors,
            **kwargs,
        )
    except SafetensorError as error:
        raise TriuneError(
            f"the weights in '{name}' are damaged or incomplete ({one_line(error)}): fetch or save them again"
        ) from error
    except OSError as error:  # transformers' own class of error for a folder, name or file that is not there
        if is_path(str(name)) and not Path(name).exists():
            raise MissingCheckpointError(f"there is no model folder '{name}'") from error
        # Said where it may be the cause.
        pickled = use_safetensors and "safetensors" in str(error)
        hint = "; pickled weights (.bin) are read with use_safetensors=False only" if pickled else ""
        raise MissingCheckpointError(f"cannot load '{name}': {one_line(error)}{hint}") from error
    _check_operator(model, info, name)
    _check_encoder_is_whole(model, info, name)
    mismatched = info["mismatched_keys"]
    if ignore_mismatched_sizes:  # a fresh head of another size is fine, a fresh encoder never
        mismatched = [entry for entry in mismatched if _in_encoder(entry[0], model)]
    if mismatched:
        _refuse_other_shape(mismatched, name)
    return (model, info) if output_loading_info else model


def _check_operator(model: Any, info: dict[str, Any], name: Any) -> None:
    config, keys = model.config, set(model.state_dict())
    expected = _operator_parts(keys)
    found = _operator_parts(keys - set(info["missing_keys"])) | _operator_parts(info["unexpected_keys"])
    if found == expected:
        return
    fitting = [other for other in operators.names() if _parameter_names(other, config) == found]
    if config.operator in fitting:  # with its default settings, which are not those of the configuration
        raise TriuneError(
            f"checkpoint '{name}' was saved with other settings of '{config.operator}' than the configuration has: it "
            f"holds {_listed(found)}, not {_listed(expected)}; leave operator_settings out"
        )
    says = f"holds the operator '{fitting[0]}'" if fitting else f"holds attention weights {_listed(found)}"
    advice = f"pass operator='{fitting[0]}'" if fitting else "pass the operator and settings it was saved with"
    raise TriuneError(
        f"checkpoint '{name}' {says}, but the configuration asks for '{config.operator}' with "
        f"{_listed(expected)}: {advice}"
    )


def _check_encoder_is_whole(model: Any, info: dict[str, Any], name: Any) -> None:
    lacking = sorted(key for key in info["missing_keys"] if _in_encoder(key, model))
    if lacking:
        raise TriuneError(
            f"checkpoint '{name}' does not fit the configuration: it lacks {lacking[0]}"
            f"{_and_more(lacking[1:])}; check the number of layers, norm_position and position"
        )
    if any(key.endswith("embeddings.position_embeddings.weight") for key in info["unexpected_keys"]):
        raise TriuneError(
            f"checkpoint '{name}' does not fit the configuration: it was trained with absolute positions "
            "and has a table of them; pass position='absolute'"
        )


def _in_encoder(key: str, model: Any) -> bool:
    """Whether a weight belongs to embeddings or layers: not to a pooler, and not to a head."""
    parts = [name for name, module in model.named_modules() if isinstance(module, (TriuneEmbeddings, TriuneEncoder))]
    return key.startswith(tuple(f"{name}." for name in parts))


def _and_more(others: Sized) -> str:
    return f" (and {len(others)} more)" if others else ""


def _parameter_names(operator: str, config: Any) -> set[str]:
    built = operators.build(operator, config.attention_shape, folded=config.folded)
    return {parameter for parameter, _ in built.named_parameters()}


def _operator_parts(keys: Iterable[str]) -> set[str]:
    """`bert.encoder.layer.3.attention.self.query.weight` → `query.weight`."""
    return {key.split(".attention.self.", 1)[1] for key in keys if ".attention.self." in key}


def _refuse_other_shape(mismatched: Iterable[tuple[str, Any, Any]], name: Any) -> None:
    (key, in_file, in_model), *others = sorted(mismatched)
    raise TriuneError(
        f"checkpoint '{name}' does not fit the configuration: {key} is {_shape(in_file)} there and "
        f"{_shape(in_model)} in the model{_and_more(others)}; "
        "for a fresh head of another size pass ignore_mismatched_sizes=True"
    )


def _shape(shape: Iterable[int]) -> str:
    return "×".join(str(size) for size in shape)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted({name.removesuffix(".weight").removesuffix(".bias") for name in names})) or "none"
