"""Where a model is: a run folder, a model folder, the name of a model of the repository, or a name on the hub."""

import difflib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers.utils import cached_file

from triune.data.tokenizer import load_tokenizer
from triune.errors import TriuneError, did_you_mean, one_line
from triune.models.configuration import TriuneConfig
from triune.models.pretrained import is_path, pretrained_names, resolved
from triune.operators import with_operator_sources
from triune.presence import MODEL

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Location:
    path: str  # what `from_pretrained` takes
    config: TriuneConfig
    sha256: str  # of the weights; of an operator that is not Triune's, also of its source


def locate_model(name: str) -> Location:
    """Find a model and read its configuration; a folder of a run holds the model in `model/`."""
    folder = Path(resolved(name)).expanduser()
    if folder.is_dir():
        path = str(model_folder(name))
    elif folder.exists():
        raise TriuneError(f"'{name}' is a file: give the folder that holds the model")
    elif is_path(name):
        raise TriuneError(f"there is no model folder '{name}'")
    elif "/" not in name and (near := difflib.get_close_matches(name, pretrained_names(), n=1, cutoff=0.8)):
        # Before the hub is asked, which takes its time where it cannot be reached.
        raise TriuneError(f"there is no model '{name}' here: did you mean '{near[0]}'? It comes with Triune")
    else:
        path = name
    try:
        config = TriuneConfig.from_pretrained(path)
    except TriuneError as error:
        raise TriuneError(f"the configuration in '{path}': {error}") from error
    except (OSError, ValueError) as error:
        if folder.is_dir():
            raise TriuneError(f"cannot load '{path}': {one_line(error)}") from error
        ours = pretrained_names() if "/" not in name else []
        also = f"; of the models that come with Triune{did_you_mean(name, ours)}" if ours else ""
        raise TriuneError(
            f"there is no folder '{name}' here, and cannot load '{name}' from the hub: {one_line(error)}{also}"
        ) from error
    return Location(path, config, _with_source(_weights_sha256(path), config.operator))


def model_folder(name: str) -> Path:
    """The folder of a saved model, given itself, or the run that made it, which holds it in `model/`, or by name."""
    folder = Path(resolved(name)).expanduser()
    for found in (folder, folder / MODEL):
        if (found / "config.json").is_file():
            return found
    if not folder.is_dir():
        raise TriuneError(f"there is no model folder '{name}'")
    # As deep as `triune finetune` puts them below its --out, and no deeper: this may be somebody's home.
    below = (sorted(folder.glob(f"{depth}/{MODEL}/config.json")) for depth in ("*", "*/*", "*/*/*"))
    nearest = next(filter(None, below), [])
    hint = f"; '{nearest[0].parents[1]}' below it does" if nearest else ""
    raise TriuneError(f"'{name}' holds no model: neither config.json nor model/config.json is there{hint}")


def tokenizer_of(model: Location) -> Any:
    """The tokenizer beside a model; one with more tokens than the model knows is another model's."""
    tokenizer = load_tokenizer(model.path)
    if len(tokenizer) > model.config.vocab_size:
        raise TriuneError(
            f"the tokenizer in '{model.path}' has {len(tokenizer):,} tokens and the model {model.config.vocab_size:,}: "
            "put the model's own tokenizer there"
        )
    return tokenizer


def _with_source(weights: str, operator: str) -> str:
    """With an operator that was edited, the same weights are another model."""
    described = with_operator_sources({"weights": weights}, [operator])
    if len(described) == 1:
        return weights
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _weights_sha256(path: str) -> str:
    try:
        files = [Path(path) / WEIGHTS] if Path(path).is_dir() else [Path(cached_file(path, WEIGHTS))]
        if not files[0].is_file():
            files = sorted(Path(path).glob("model-*.safetensors"))  # a large one, in shards
        if not files:
            raise TriuneError(f"'{path}' has no {WEIGHTS}: save the model again")
        _check_whole(files)
        digest = hashlib.sha256()
        for file in files:
            with file.open("rb") as stream:
                while chunk := stream.read(1 << 22):
                    digest.update(chunk)
    except OSError as error:
        raise TriuneError(f"cannot read the weights of '{path}': {error.strerror or one_line(error)}") from error
    return digest.hexdigest()


def _check_whole(files: list[Path]) -> None:
    """Headers and sizes: what was cut short is found here, before whoever asks for the model has written anything."""
    for file in files:
        file.open("rb").close()  # safetensors says of a file that may not be read that there is none
        try:
            with safe_open(file, "pt"):
                pass
        except SafetensorError as error:
            raise TriuneError(
                f"the weights in '{file}' are damaged or incomplete ({one_line(error)}): fetch or save them again"
            ) from error
