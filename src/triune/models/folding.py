"""Folding a saved model into another folder."""

import shutil
import tempfile
from pathlib import Path

from transformers import AutoConfig

from triune.errors import TriuneError, one_line
from triune.models import heads
from triune.models.configuration import TriuneConfig


def fold_folder(source: Path, out: Path) -> None:
    """Load `source`, fold it, save it as `out` with the files beside it (tokenizer, vocabulary)."""
    if out.exists():
        raise TriuneError(f"'{out}' exists already: choose another folder")
    if not (source / "config.json").is_file():
        raise TriuneError(f"'{source}' is not a saved model: it has no config.json")
    config = AutoConfig.from_pretrained(source)
    if not isinstance(config, TriuneConfig):
        raise TriuneError(f"'{source}' holds a model of type '{config.model_type}', not a Triune model")
    head = getattr(heads, (config.architectures or ["TriuneModel"])[0], None)
    if head is None:
        raise TriuneError(f"'{source}' holds an unknown architecture {config.architectures}")
    model = head.from_pretrained(source)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as beside:
            folded = Path(beside) / out.name
            shutil.copytree(
                source, folded, ignore=shutil.ignore_patterns("*.safetensors*", "config.json", "checkpoint-*")
            )
            model.fold().save_pretrained(folded)
            folded.rename(out)
    except OSError as error:
        raise TriuneError(f"cannot write '{out}': {one_line(error)}; nothing was left there") from error
