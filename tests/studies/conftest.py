import shutil
from types import SimpleNamespace

import pytest
import yaml

from tests.samples import QUICK
from tests.training.conftest import TINY
from triune.training.finetune_recipe import load_finetune_recipe
from triune.training.recipe import load_recipe

VARIANTS = """
about: two of them
reference: standard
variants:
  standard:
    about: own Q, K and V
    set: [model.operator=standard, "model.operator_settings={}"]
  narrow:
    about: as small as shared
    set: [model.operator=standard, "model.operator_settings={}"]
    narrowed_to: shared
  shared:
    about: <script>alert(1)</script>
    set: [model.operator=shared, "model.operator_settings={role_start: signed}"]
"""


@pytest.fixture(scope="session")
def tiny(samples, tmp_path_factory):
    """A scale on which every study takes a moment, with its recipes and data."""
    folder = tmp_path_factory.mktemp("tiny")
    shutil.copytree(samples.data, folder / "data")
    (folder / "data" / "corpus").mkdir()
    for name in ("text.txt", "valid.txt"):
        shutil.copy(samples.data.parent / "text.txt", folder / "data" / "corpus" / name)
    short = ["training.steps=6", "training.evaluate_every=6", "training.checkpoint_every=6", "model.hidden_dropout=0.0"]
    pretraining = load_recipe("pocket", [*TINY, *short, "data.block_length=32"])
    (folder / "pretraining.yaml").write_text(pretraining.to_yaml())
    (folder / "pocket.yaml").write_text(load_recipe("pocket", [*TINY, *short, "data.block_length=64"]).to_yaml())
    quick = load_finetune_recipe("pocket-tasks", [*QUICK, "training.epochs=1"])
    (folder / "finetuning.yaml").write_text(yaml.safe_dump(quick.to_dict()))
    (folder / "variants.yaml").write_text(VARIANTS)
    scale = {
        "about": "for tests",
        "data": {
            "source": "files",
            "corpus": ["corpus/text.txt"],
            "valid": ["corpus/valid.txt"],
            "vocabulary": 200,
            "seconds": 1,
        },
        "pretraining": {
            "recipe": str(folder / "pretraining.yaml"),
            "operators": ["standard", "shared"],
            "settings": {"shared": {"role_start": "signed"}},
            "seconds": 1,
        },
        "finetuning": {
            "recipe": str(folder / "finetuning.yaml"),
            "tasks": ["mrpc", "mnli", "squad-v1.1"],
            "seeds": 2,
            "seconds": 1,
        },
        "noise": {"tasks": ["mnli"], "draws": 1, "seconds": 1},
        "transfer": {"tasks": ["mnli", "mrpc"], "seconds": 1},
        "time": {"tasks": ["mrpc"], "rounds": 1, "seconds": 1},
        "ablations": {"variants": str(folder / "variants.yaml"), "seeds": 2, "seconds": 1},
        "inspect": {"texts": 4, "seconds": 1},
    }
    (folder / "scale.yaml").write_text(yaml.safe_dump(scale))
    return SimpleNamespace(
        folder=folder,
        scale=folder / "scale.yaml",
        data=folder / "data",
        arguments=["reproduce", "--scale", str(folder / "scale.yaml"), "--data-dir", str(folder / "data"), "--out"],
    )


def arguments_with(tiny, settings):
    """Of a reproduction with other settings; the folder goes last."""
    return [*tiny.arguments[:-1], "--workers", "1", *(part for one in settings for part in ("--set", one)), "--out"]
