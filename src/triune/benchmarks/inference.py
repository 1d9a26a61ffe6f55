"""The encoder's forward pass for inference, side by side: transformers' BERT, our standard, our shared folded.

Weights are random and in the chosen dtype, nothing is padded, no pooler runs. Every contestant that is compiled is so
in the same mode. A model is made and compiled anew for each shape, so that no shape is another's warm-up.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import BertModel

from triune.benchmarks.ceilings import Ceilings, measure_ceilings
from triune.benchmarks.contestants import AUTOMATIC, GRAPHS, PYTORCH, THEIRS, bert_config, compiled, note_attention
from triune.benchmarks.flops import forward_flops_a_token
from triune.benchmarks.record import Result, add_ratios, bench_device, dtype_named, record_of, result_of
from triune.benchmarks.timing import Entry, Run, bytes_of, release, take_turns, warm_up
from triune.errors import TriuneError
from triune.evaluation.comparing import REFERENCE
from triune.models.modeling import TriuneModel
from triune.models.presets import preset

MODES = ("none", "default", GRAPHS)


@dataclass(frozen=True)
class InferenceSettings:
    size: str
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    dtype: str
    mode: str
    operator: str = "shared"  # beside standard
    repeats: int = 20

    def check(self) -> None:
        dtype_named(self.dtype)
        if self.mode not in MODES:
            raise TriuneError(f"unknown --mode '{self.mode}': there are {', '.join(MODES)}")


def bench_inference(settings: InferenceSettings) -> dict[str, Any]:
    """Latency, sequences a second and peak memory for each contestant and shape."""
    settings.check()
    device, dtype = bench_device(), dtype_named(settings.dtype)
    config = _config(settings, REFERENCE, PYTORCH)
    ceilings = measure_ceilings(device, dtype)
    results: list[Result] = []
    for length in settings.lengths:
        for batch in settings.batches:
            if settings.mode != "none":
                torch.compiler.reset()
            torch.manual_seed(0)
            ids_BT = torch.randint(config.vocab_size, (batch, length), device=device)
            results += _measure(settings, ids_BT, ceilings)
            release(device)
    described = asdict(settings) | {"layers": config.num_hidden_layers, "width": config.hidden_size}
    return record_of("inference", device, ceilings, settings=described, results=results)


def _entries(settings: InferenceSettings, ids_BT: torch.Tensor) -> list[Entry]:
    entries = [_entry(settings, ids_BT, THEIRS, REFERENCE, "none")]
    if settings.mode != "none":
        entries.append(_entry(settings, ids_BT, f"{THEIRS}, compiled", REFERENCE, settings.mode))
    entries.append(_entry(settings, ids_BT, f"triune {REFERENCE}", REFERENCE, settings.mode))
    if settings.operator != REFERENCE:
        name = f"triune {settings.operator}, folded"
        entries.append(_entry(settings, ids_BT, name, settings.operator, settings.mode))
    return entries


def _entry(settings: InferenceSettings, ids_BT: torch.Tensor, name: str, operator: str, mode: str) -> Entry:
    library = name.startswith(THEIRS)
    about = {"operator": operator, "library": library, "compiled": mode, "attention": PYTORCH, "reason": ""}

    def make() -> Run:
        with ids_BT.device:  # starting values are drawn there, which is faster
            model: Any = _model(settings, operator, library)
        model = model.to(dtype_named(settings.dtype)).eval()
        if not library:
            with torch.inference_mode():  # kernels for training only are not chosen
                note_attention(entry, model)
        weights = list(model.encoder.parameters())
        entry.about["weight_bytes"] = bytes_of(weights)
        entry.own_bytes = lambda: bytes_of([*model.parameters(), *model.buffers(), ids_BT])
        run = compiled(model, mode, ours=not library)

        def forward() -> None:
            if mode == GRAPHS:
                torch.compiler.cudagraph_mark_step_begin()
            with torch.inference_mode():
                run(input_ids=ids_BT)

        return forward

    entry = Entry(name, make, about=about)
    return entry


def _model(settings: InferenceSettings, operator: str, library: bool) -> Any:
    if library:
        return BertModel(bert_config(_config(settings, operator, PYTORCH)), add_pooling_layer=False)
    if operator == REFERENCE:
        return TriuneModel(_config(settings, operator, PYTORCH), add_pooling_layer=False)
    return TriuneModel(_config(settings, operator, AUTOMATIC), add_pooling_layer=False).fold()


def _measure(settings: InferenceSettings, ids_BT: torch.Tensor, ceilings: Ceilings) -> list[Result]:
    batch, length = ids_BT.shape
    shape = f"{batch} × {length}"
    entries = _entries(settings, ids_BT)
    warm_up(entries, ids_BT.device, shape)
    take_turns(entries, settings.repeats, ids_BT.device)
    found = []
    for entry in entries:
        config = _config(settings, entry.about["operator"], PYTORCH)
        flops = batch * length * forward_flops_a_token(config, length, 0.0)
        # Weights once, embeddings in and states out: what is between can stay in a cache.
        states = 2.0 * batch * length * config.hidden_size * dtype_named(settings.dtype).itemsize
        moved = entry.about.get("weight_bytes", 0) + states
        place = {"shape": shape, "batch": batch, "length": length}
        result = result_of(entry, flops, moved, ceilings, **place)
        if entry.failed is None:
            result["sequences_per_second"] = 1e3 * batch / result["milliseconds"]
        found.append(result)
    add_ratios(found, [one["contestant"] for one in found if one["library"]])
    return found


def _config(settings: InferenceSettings, operator: str, attention: str) -> Any:
    longest = max(512, *settings.lengths)
    return preset(settings.size, operator=operator, max_position_embeddings=longest, attn_implementation=attention)
