"""Attention operators: X → queries, keys and values. Importing this package registers ours."""

from triune.operators.base import NoSettings, Operator
from triune.operators.registry import (
    build,
    get,
    in_order,
    load_plugin,
    loaded_plugins,
    names,
    operator_sources,
    register,
    registering_module,
    settings_for,
    with_operator_sources,
    written_out,
)
from triune.operators.roles import AttentionShape, OneTensor, Roles, Rotate

# In the order of the paper's tables, then the controls, then other operators of one matrix.
from triune.operators import standard  # isort: skip
from triune.operators import symmetric  # isort: skip
from triune.operators import pairwise  # isort: skip
from triune.operators import shared  # isort: skip
from triune.operators import kv_tied  # isort: skip
from triune.operators import qkv_tied  # isort: skip
from triune.operators import rolled  # isort: skip
from triune.operators import shared_low_rank  # isort: skip

__all__ = [
    "AttentionShape",
    "NoSettings",
    "OneTensor",
    "Operator",
    "Roles",
    "Rotate",
    "build",
    "get",
    "in_order",
    "kv_tied",
    "load_plugin",
    "loaded_plugins",
    "names",
    "operator_sources",
    "pairwise",
    "qkv_tied",
    "register",
    "registering_module",
    "rolled",
    "settings_for",
    "shared",
    "shared_low_rank",
    "standard",
    "symmetric",
    "with_operator_sources",
    "written_out",
]
