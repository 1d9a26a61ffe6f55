"""Tells transformers' Auto classes about Triune without importing transformers' models.

Subclassing BERT's configuration imports `transformers.models` (0.4 s) and its modelling code (2 s). A user who
only imports triune should not pay for that, so the registration waits until transformers loads its own Auto
tables, which every `AutoConfig`, `AutoModel*` and `pipeline` does first. The model classes follow when the first
`TriuneConfig` is made (see `models/configuration.py`): no model can be asked for before that.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

AUTO_TABLES = "transformers.models.auto.configuration_auto"


def install() -> None:
    if AUTO_TABLES in sys.modules:
        register_configuration()
    elif not any(isinstance(finder, _AfterAutoTables) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterAutoTables())


def register_configuration() -> None:
    from transformers.models.auto.configuration_auto import AutoConfig

    from triune.models.configuration import TriuneConfig

    AutoConfig.register(TriuneConfig.model_type, TriuneConfig, exist_ok=True)


class _AfterAutoTables(importlib.abc.MetaPathFinder):
    """Lets the other finders load the Auto tables, then registers; it removes itself when it has fired."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != AUTO_TABLES:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader, run = spec.loader, spec.loader.exec_module

            def run_then_register(module: ModuleType) -> None:
                run(module)
                register_configuration()

            loader.exec_module = run_then_register  # type: ignore[method-assign]
        return spec
