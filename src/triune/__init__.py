"""Triune: transformers whose queries, keys and values come from one shared projection.

Importing this package costs almost nothing: names are resolved when they are first used, and the models
register themselves with transformers' Auto classes when those are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from triune import transformers_hook
from triune.errors import TriuneError
from triune.version import __version__

if TYPE_CHECKING:
    from triune.models.configuration import TriuneConfig
    from triune.models.heads import (
        TriuneForMaskedLM,
        TriuneForMultipleChoice,
        TriuneForQuestionAnswering,
        TriuneForSequenceClassification,
        TriuneForTokenClassification,
    )
    from triune.models.modeling import TriuneModel, TriunePreTrainedModel
    from triune.models.parameter_groups import parameter_groups
    from triune.models.presets import preset
    from triune.models.pretrained import pretrained, pretrained_names
    from triune.operators import Operator, Roles, register

_WHERE = {
    "TriuneConfig": "triune.models.configuration",
    "TriunePreTrainedModel": "triune.models.modeling",
    "TriuneModel": "triune.models.modeling",
    "TriuneForMaskedLM": "triune.models.heads",
    "TriuneForSequenceClassification": "triune.models.heads",
    "TriuneForQuestionAnswering": "triune.models.heads",
    "TriuneForTokenClassification": "triune.models.heads",
    "TriuneForMultipleChoice": "triune.models.heads",
    "parameter_groups": "triune.models.parameter_groups",
    "preset": "triune.models.presets",
    "pretrained": "triune.models.pretrained",
    "pretrained_names": "triune.models.pretrained",
    "Operator": "triune.operators",
    "Roles": "triune.operators",
    "register": "triune.operators",
}

__all__ = [
    "Operator",
    "Roles",
    "TriuneConfig",
    "TriuneError",
    "TriuneForMaskedLM",
    "TriuneForMultipleChoice",
    "TriuneForQuestionAnswering",
    "TriuneForSequenceClassification",
    "TriuneForTokenClassification",
    "TriuneModel",
    "TriunePreTrainedModel",
    "__version__",
    "parameter_groups",
    "preset",
    "pretrained",
    "pretrained_names",
    "register",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'triune' has no attribute '{name}'")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


transformers_hook.install()
