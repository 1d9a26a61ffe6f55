"""Looking inside a model: what its role vectors became, what form its scores have, and where its heads look.

Numbers in, one record out. Whatever an operator does not have (role vectors, or a start that is known) is null.
"""

import copy
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import set_seed

from triune.cells import Cell, Record, write_record
from triune.evaluation.attention_maps import OpenModel, look_at_texts, open_model
from triune.models.heads import TriuneForMaskedLM
from triune.models.locate import Location, locate_model
from triune.operators import Operator
from triune.operators.role_vectors import SIGNED_STARTS
from triune.presence import MODEL, RUN
from triune.training.run_folder import recipe_of, versions

VERSION = 1  # of what is measured: goes into the identity of a record
ROLES = ("query", "key", "value")

Vectors = dict[str, torch.Tensor]  # by role, those that an operator has


@dataclass(frozen=True)
class Start:
    """Where role vectors began, by layer. Nominal: what the settings say, without the draw of a random start."""

    kind: str | None  # exact, nominal, or not known
    layers: list[Vectors]
    sizes_only: tuple[str, ...] = ()  # roles that began at random signs, which only the draw knew


def inspect_cell(label: str, model: str | Path, texts: Sequence[str], source: str, out: Path) -> Cell:
    """One model, its record in the folder `out`; `source` says in words where the texts are from."""
    return Cell(
        title=f"inspect · {label}",
        run=run_inspection,
        arguments={"label": label, "model": str(model), "texts": list(texts), "source": source, "out": str(out)},
        record=record_path(out, label),
        identity=_identity(label, locate_model(str(model)), texts, source),
    )


def run_inspection(label: str, model: str, texts: list[str], source: str, out: str) -> Record:
    return write_record(record_path(Path(out), label), inspect_model(label, model, texts, source))


def record_path(out: Path, label: str) -> Path:
    return out / f"{label}.json"


def inspect_model(label: str, model: str | Path, texts: Sequence[str], source: str) -> Record:
    return inspect_opened(label, open_model(model), texts, source)


def inspect_texts(model: str | Path, texts: Sequence[str]) -> dict[str, Any]:
    """What the attention maps over these texts say, without the weights: see `look_at_texts`."""
    return look_at_texts(open_model(model), texts)


def inspect_opened(label: str, opened: OpenModel, texts: Sequence[str], source: str) -> Record:
    location, device = opened.location, opened.device
    looked = look_at_texts(opened, texts)
    operators = operators_of(opened.encoder)
    start = _start(location, operators)
    layers = []
    for number, (operator, began, seen) in enumerate(zip(operators, start.layers, looked["layers"], strict=True)):
        scales = score_scales(operator)
        heads = [
            {"head": head, **figures, "negative_share": None if scales is None else _negative(scales[head])}
            for head, figures in enumerate(seen["heads"])
        ]
        layers.append(
            {
                "layer": number,
                "score_scale": None if scales is None else _spectrum(scales),
                **_moved(role_vectors(operator), began, start.sizes_only),
                "score_symmetry": score_symmetry(operator),
                "heads": heads,
                "head_similarity": seen["head_similarity"],
            }
        )
    return {
        "study": "inspect",
        "identity": _identity(label, location, texts, source),
        "model": label,
        "operator": location.config.operator,
        "operator_settings": location.config.operator_settings,
        "model_path": location.path,
        "model_sha256": location.sha256,
        **{count: looked[count] for count in ("texts", "tokens", "truncated", "repeated")},
        "source": source,
        "start": start.kind,
        "layers": layers,
        "versions": versions(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


def operators_of(model: torch.nn.Module) -> list[Operator]:
    return [module for module in model.modules() if isinstance(module, Operator)]


def role_vectors(operator: Operator) -> Vectors:
    """dq, dk and dv by role; one vector for queries and keys together counts as the queries'."""
    found = {role: getattr(operator, f"{role}_scale", None) for role in ROLES}
    return {role: vector.detach().double().cpu() for role, vector in found.items() if torch.is_tensor(vector)}


def score_scales(operator: Operator) -> torch.Tensor | None:
    """c for each head, (N, D), as the operator itself forms it; None where it has no such vector."""
    given = getattr(operator, "score_scales", None)
    scales = None if given is None else given()
    if scales is None:
        return None
    if operator.folded:  # it is kept with 1/√D in it
        scales = scales / operator.shape.default_scale
    return scales.detach().double().cpu().view(operator.shape.heads, operator.shape.head_width)


@torch.no_grad()
def score_symmetry(operator: Operator) -> float | None:
    """Share of the squared norm of the score form Wq·Wkᵀ that lies in its symmetric part; mean over heads.

    Queries and keys are affine in X, so the operator is asked for its own: for zero (the biases) and for each unit
    vector, each alone in its row, so that an operator that mixes tokens has none to mix. None where it is not affine,
    or where there is no score at all.
    """
    width = operator.shape.width
    # The last row holds the others to account: an affine map knows its value from theirs.
    probes = torch.cat([torch.zeros(1, width), torch.eye(width), torch.full((1, width), -2.0)]).double()
    roles = copy.deepcopy(operator).cpu().double()(probes[:, None], lambda x: x)
    linear = []
    for role_PND in (roles.query_BNTD.squeeze(2), roles.key_BNTD.squeeze(2)):
        bias_ND, unit_dND, held_ND = role_PND[0], role_PND[1:-1] - role_PND[0], role_PND[-1]
        if not torch.allclose(bias_ND - 2 * unit_dND.sum(0), held_ND):
            return None
        linear.append(unit_dND.transpose(0, 1))
    query_NdD, key_NdD = linear
    # With S = Wq·Wkᵀ: |S|² = <WqᵀWq, WkᵀWk> and <S, Sᵀ> = <C, Cᵀ> with C = WkᵀWq, so that S itself is never made.
    cross_NDD = key_NdD.mT @ query_NdD
    norms_N = ((query_NdD.mT @ query_NdD) * (key_NdD.mT @ key_NdD)).sum((-2, -1))
    if not bool((norms_N > 0).all()):
        return None
    turned_N = (cross_NDD * cross_NDD.mT).sum((-2, -1))
    return float(((norms_N + turned_N) / (2 * norms_N)).mean())


def _spectrum(scales_ND: torch.Tensor) -> dict[str, Any]:
    flat, total = scales_ND.flatten(), float(scales_ND.abs().sum())
    return {
        "sorted": [round(value, 6) for value in flat.sort().values.tolist()],
        "negative_share": _negative(flat),
        "attracts": float(flat.clamp(min=0).sum()) / total if total else 0.0,
        "repels": -float(flat.clamp(max=0).sum()) / total if total else 0.0,
    }


def _negative(values: torch.Tensor) -> float:
    return float((values < 0).double().mean())


def _start(location: Location, operators: list[Operator]) -> Start:
    exact = None if not any(role_vectors(operator) for operator in operators) else _exact_start(location)
    if exact is not None:
        return Start("exact", exact)
    begun = getattr(location.config.settings, "role_start", None)
    if location.config.folded or begun not in ("ones", "normal", "signed", "signed-pairs", "halves"):
        return Start(None, [{} for _ in operators])
    std = location.config.initializer_range
    named = [_started_anew(one, std) if begun == "halves" else _ones(one) for one in operators]
    return Start("nominal" if any(named) else None, named, ("query",) if begun in SIGNED_STARTS else ())


def _ones(operator: Operator) -> Vectors:
    return {role: torch.ones_like(vector) for role, vector in role_vectors(operator).items()}


@torch.no_grad()
def _started_anew(operator: Operator, std: float) -> Vectors:
    """Sizes, which are the same at every draw of signs."""
    with torch.random.fork_rng(devices=[]):
        anew = type(operator)(operator.shape, operator.settings)
        anew.initialize(std)
    return {role: vector.abs() for role, vector in role_vectors(anew).items()}


def _exact_start(location: Location) -> list[Vectors] | None:
    """The model of a run of `triune pretrain` is started once more, as that did it."""
    seed = _seed_of_run(location)
    if seed is None:
        return None
    with torch.random.fork_rng(devices=[]):
        set_seed(seed)
        return [role_vectors(operator) for operator in operators_of(TriuneForMaskedLM(location.config))]


def _seed_of_run(location: Location) -> int | None:
    folder = Path(location.path)
    if folder.name != MODEL or not (folder.parent / RUN).is_file():
        return None
    return recipe_of(folder.parent).training.seed


def _moved(vectors: Vectors, start: Vectors, sizes_only: tuple[str, ...]) -> dict[str, Any]:
    """Root mean square distance from the start, and the share of entries on the other side of zero."""
    if not start:
        return {"distance": None, "sign_changes": None}
    distance: dict[str, float | None] = dict.fromkeys(ROLES)
    changes: dict[str, float | None] = dict.fromkeys(ROLES)
    for role, now in vectors.items():
        began, sizes = start[role], role in sizes_only
        distance[role] = float(((now.abs() if sizes else now) - began).square().mean().sqrt())
        changes[role] = None if sizes else _negative(now * began)
    return {"distance": distance, "sign_changes": changes}


def _identity(label: str, location: Location, texts: Sequence[str], source: str) -> str:
    went_in = {
        "version": VERSION,
        "label": label,
        "model": location.sha256,
        "start": _seed_of_run(location),
        "texts": list(texts),
        "source": source,
    }
    return hashlib.sha256(json.dumps(went_in, sort_keys=True).encode()).hexdigest()[:24]
