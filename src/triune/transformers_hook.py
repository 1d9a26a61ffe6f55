"""Tells transformers' Auto classes about Triune without importing transformers' models at once.

Subclassing BERT's configuration imports `transformers.models` (0.4 s), its modelling code takes 2 s more. Who only
imports triune should not pay for that, so `triune.models.configuration`, which registers itself, is imported when
transformers has loaded its own Auto tables: every `AutoConfig`, `AutoModel*` and `pipeline` does that first. The model
classes follow when the first `TriuneConfig` is made: no model can be asked for before that. The names of our attention
cores are registered after transformers' base of all models, so that any of them takes `attn_implementation="triune"`.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

# The second imports the first, and BERT's configuration looks into the second: ours must wait for both.
AUTO_TABLES = ("transformers.models.auto.configuration_auto", "transformers.models.auto.modeling_auto")
# Which of our modules, all of which register themselves, follows which of theirs.
FOLLOWERS = {"triune.models.configuration": AUTO_TABLES, "triune.kernels.dispatch": ("transformers.modeling_utils",)}


def install() -> None:
    for ours, theirs in FOLLOWERS.items():
        if any(name in sys.modules for name in theirs):
            importlib.import_module(ours)
        elif not any(isinstance(finder, _After) and finder.ours == ours for finder in sys.meta_path):
            sys.meta_path.insert(0, _After(theirs, ours))


class _After(importlib.abc.MetaPathFinder):
    """Lets the other finders load their modules, and imports ours when none of them is half loaded any more."""

    def __init__(self, theirs: tuple[str, ...], ours: str) -> None:
        self.theirs, self.ours = theirs, ours
        self.loading: set[str] = set()
        self.asking_others = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.theirs or self.asking_others:
            return None
        self.asking_others = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.asking_others = False
        if spec is not None and spec.loader is not None:
            loader, run = spec.loader, spec.loader.exec_module

            def run_then_register(module: ModuleType) -> None:
                self.loading.add(fullname)
                try:
                    run(module)
                finally:
                    self.loading.discard(fullname)
                if not self.loading:
                    importlib.import_module(self.ours)
                    if self in sys.meta_path:
                        sys.meta_path.remove(self)

            loader.exec_module = run_then_register  # type: ignore[method-assign]
        return spec
