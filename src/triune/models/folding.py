"""Folding a saved model into another folder."""

import shutil
import tempfile
from pathlib import Path

from triune.errors import TriuneError, one_line
from triune.evaluation.predict import TASK_FILE
from triune.models.configuration import TriuneConfig
from triune.models.heads import HEADS
from triune.models.presets import checked_config, read_config

# The tokenizer's, and what `triune predict` reads of the task: without it a folded model would answer otherwise.
COPIED = ("tokenizer*", "vocab*", "special_tokens_map.json", "added_tokens.json", TASK_FILE)


def fold_folder(source: Path, out: Path) -> str:
    """Load `source`, fold it, save it as `out` with its tokenizer and, if it was fine-tuned, its task.

    Gives a line that says what that saves.
    """
    if out.exists():
        raise TriuneError(f"'{out}' exists already: choose another folder")
    described = read_config(source / "config.json")
    if described.get("model_type") != TriuneConfig.model_type:
        raise TriuneError(f"'{source}' holds a model of type '{described.get('model_type')}', not a Triune model")
    checked_config(described, source / "config.json")
    architecture = (described.get("architectures") or ["TriuneModel"])[0]
    head = {known.__name__: known for known in HEADS.values()}.get(architecture)
    if head is None:
        raise TriuneError(f"'{source}' holds an unknown architecture '{architecture}'")
    model = head.from_pretrained(source)
    folded = model.fold()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as beside:
            written = Path(beside) / out.name
            folded.save_pretrained(written)
            for pattern in COPIED:
                for file in source.glob(pattern):
                    shutil.copy2(file, written)
            written.rename(out)
    except OSError as error:
        raise TriuneError(f"cannot write '{out}': {one_line(error)}; nothing was left there") from error
    before, after = model.num_parameters(), folded.num_parameters()
    return f"folded {model.config.operator}: {before:,} -> {after:,} parameters ({after - before:+,})"
