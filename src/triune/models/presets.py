"""The published BERT sizes by name."""

import json
from pathlib import Path
from typing import Any

from triune.errors import TriuneError
from triune.models.configuration import TriuneConfig
from triune.models.pretrained import resolved

# layers, width, heads; the feed-forward width is four times the width and heads are 64 wide in all of them.
SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}


def preset(size: str, **overrides: Any) -> TriuneConfig:
    """The configuration of a published BERT size, e.g. `preset("base", operator="shared")`."""
    name = size.removeprefix("bert-")
    if name not in SIZES:
        raise TriuneError(f"unknown size '{size}': there are {', '.join(SIZES)}")
    layers, width, heads = SIZES[name]
    shape = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }
    return TriuneConfig(**{**shape, **overrides})


def config_from(size_or_path: str) -> TriuneConfig:
    """A configuration by size, or from a JSON file, or from the config.json of a folder."""
    if size_or_path.removeprefix("bert-") in SIZES:
        return preset(size_or_path)
    path = Path(resolved(size_or_path))
    if not size_or_path or not path.exists():
        raise TriuneError(
            f"configuration '{size_or_path}' is neither a size ({', '.join(SIZES)}) nor an existing file or folder"
        )
    path = path / "config.json" if path.is_dir() else path
    return checked_config(read_config(path), path)


def checked_config(described: dict[str, Any], path: Path) -> TriuneConfig:
    """The configuration that was read from `path`, which is named where something in it is wrong."""
    try:
        return TriuneConfig.from_dict(described)
    except TriuneError as error:
        raise TriuneError(f"configuration '{path}': {error}") from error


def read_config(path: Path) -> dict[str, Any]:
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TriuneError(f"configuration '{path}': cannot read it: {error.strerror}") from error
    except ValueError as error:  # of the encoding or of the JSON
        raise TriuneError(f"configuration '{path}': it is not valid JSON: {error}") from error
    if not isinstance(described, dict):
        raise TriuneError(f"configuration '{path}': it must hold a JSON object, not a {type(described).__name__}")
    return described
