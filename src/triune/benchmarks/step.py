"""The whole masked-LM training step, side by side: transformers' own BERT and our operators, on the same batches.

Masking, forward, backward, clipping, AdamW (fused), in a bare loop: what the real command adds (Trainer, logging, data
loading) is the difference to this. One device, no accumulation. All see the same masked positions; transformers' head
computes logits and loss over all positions, as it does, ours over the masked ones.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import BertForMaskedLM

from triune.benchmarks.ceilings import measure_ceilings
from triune.benchmarks.contestants import AUTOMATIC, PYTORCH, THEIRS, bert_config, compiled, note_attention
from triune.benchmarks.flops import step_bytes, training_flops_a_token
from triune.benchmarks.random_blocks import RandomBlocks
from triune.benchmarks.record import DTYPES, add_ratios, bench_device, record_of, result_of
from triune.benchmarks.timing import Entry, Run, bytes_of, take_turns, warm_up
from triune.data.blocks import Blocks
from triune.errors import TriuneError
from triune.evaluation.comparing import REFERENCE
from triune.models.heads import IGNORED, TriuneForMaskedLM
from triune.training.masking import Masking
from triune.training.pretrain import masking_of, model_config
from triune.training.recipe import Recipe

ROUNDS = 5
BATCHES = 8


@dataclass(frozen=True)
class StepSettings:
    recipe: str  # its name
    operators: tuple[str, ...]
    steps: int  # of each contestant that are measured
    length: int | None = None  # of sequences; None: the recipe's
    tokens: int | None = None  # of a step; None: the recipe's
    compile: bool | None = None  # None: as the recipe says
    library: bool = True  # transformers' BERT too


@dataclass
class Scene:
    """What is the same for all contestants."""

    recipe: Recipe
    blocks: Blocks
    masking: Masking
    device: torch.device
    mode: str
    batches: list[torch.Tensor]

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.recipe.training.precision]

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16)


def bench_step(settings: StepSettings, recipe: Recipe, data: Path | None) -> dict[str, Any]:
    """Milliseconds, tokens a second and peak memory of a step, for each contestant."""
    device = bench_device()
    recipe = _resized(recipe, settings)
    length, count = recipe.data.block_length, recipe.training.sequences
    blocks = RandomBlocks(length, BATCHES * count) if data is None else _prepared(data, length)
    order = [[(i * count + j) % len(blocks) for j in range(count)] for i in range(BATCHES)]
    batches = [blocks.batch(rows)["input_ids"].to(device) for rows in order]
    masking = masking_of(recipe, blocks, recipe.training.seed)
    is_compiled = recipe.training.compile if settings.compile is None else settings.compile
    scene = Scene(recipe, blocks, masking, device, "default" if is_compiled else "none", batches)
    ceilings = measure_ceilings(device, scene.dtype)

    if is_compiled:
        torch.compiler.reset()  # compiled models of earlier runs in this process count towards a limit
    torch.manual_seed(recipe.training.seed)
    entries = _entries(scene, settings)
    warm_up(entries, device)
    steps = max(1, settings.steps // ROUNDS)
    for entry in entries:
        entry.run = None if entry.run is None else _several(entry.run, steps)
    take_turns(entries, ROUNDS, device)

    results = []
    for entry in entries:
        entry.seconds = [seconds / steps for seconds in entry.seconds]
        share = 1.0 if entry.about["library"] else float(recipe.masking.ratio)
        config = model_config(_with(recipe, entry.about["operator"], PYTORCH), blocks)
        flops = count * length * training_flops_a_token(config, length, share)
        result = result_of(entry, flops, step_bytes(entry.about.get("parameters", 0)), ceilings)
        if entry.failed is None:
            result["tokens_per_second"] = 1e3 * count * length / result["milliseconds"]
        results.append(result)
    add_ratios(results, [one["contestant"] for one in results if one["library"]])
    return record_of("step", device, ceilings, settings=_described(settings, recipe, data, steps), results=results)


def _entries(scene: Scene, settings: StepSettings) -> list[Entry]:
    entries = []
    if settings.library:
        for mode in dict.fromkeys(["none", scene.mode]):
            entries.append(_theirs(f"{THEIRS}{'' if mode == 'none' else ', compiled'}", scene, mode))
    for operator in settings.operators:
        entries.append(_ours(f"triune {operator}", scene, operator, PYTORCH))
        if operator != REFERENCE:  # which has three tensors
            entries.append(_ours(f"triune {operator}, one-tensor kernel", scene, operator, AUTOMATIC))
    return entries


def _theirs(name: str, scene: Scene, mode: str) -> Entry:
    about = {"operator": REFERENCE, "library": True, "compiled": mode, "attention": PYTORCH, "reason": ""}

    def make() -> Run:
        config = bert_config(model_config(_with(scene.recipe, REFERENCE, PYTORCH), scene.blocks))
        with scene.device:  # starting values are drawn there, which is faster
            model = BertForMaskedLM(config)
        return _training(entry, scene, model, mode, _everywhere)

    entry = Entry(name, make, about=about)
    return entry


def _ours(name: str, scene: Scene, operator: str, attention: str) -> Entry:
    about = {"operator": operator, "library": False, "compiled": scene.mode, "attention": attention, "reason": ""}

    def make() -> Run:
        with scene.device:
            model = TriuneForMaskedLM(model_config(_with(scene.recipe, operator, attention), scene.blocks))
        with scene.autocast():
            core = note_attention(entry, model)
        if attention == AUTOMATIC and core == PYTORCH:
            raise TriuneError(f"{entry.about['reason']}; it would be SDPA once more")
        return _training(entry, scene, model, scene.mode, dict)

    entry = Entry(name, make, about=about)
    return entry


def _training(
    entry: Entry, scene: Scene, model: Any, mode: str, inputs_of: Callable[[dict[str, torch.Tensor]], dict[str, Any]]
) -> Run:
    model = model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    entry.about["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    entry.own_bytes = lambda: bytes_of(model.parameters()) + bytes_of(model.buffers()) + _state_bytes(optimizer)
    run = compiled(model, mode, ours=not entry.about["library"])
    count = scene.recipe.training.sequences
    examples = torch.arange(count, device=scene.device)
    numbers = itertools.count()
    clip = float(scene.recipe.optimizer.clip)

    def step() -> None:
        number = next(numbers)
        with torch.no_grad():
            batch = inputs_of(scene.masking(scene.batches[number % BATCHES], examples + number * count))
        with scene.autocast():
            loss = run(**batch).loss
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _everywhere(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As transformers' heads want labels: one for each position."""
    labels_BT = torch.full_like(batch["input_ids"], IGNORED)
    labels_BT.scatter_(1, batch["masked_positions"], batch["labels"])
    return {"input_ids": batch["input_ids"], "labels": labels_BT}


def _several(run: Run, times: int) -> Run:
    def runs() -> None:
        for _ in range(times):
            run()

    return runs


def _resized(recipe: Recipe, settings: StepSettings) -> Recipe:
    length = settings.length or recipe.data.block_length
    tokens = settings.tokens or length * recipe.training.sequences
    if tokens % length:
        raise TriuneError(f"sequences of {length} do not divide {tokens:,} tokens: change --length or --tokens")
    return replace(
        recipe,
        data=replace(recipe.data, block_length=length),
        training=replace(recipe.training, sequences=tokens // length),
    )


def _with(recipe: Recipe, operator: str, attention: str) -> Recipe:
    """Settings belong to the recipe's own operator."""
    own = recipe.model.operator_settings if operator == recipe.model.operator else {}
    model = replace(recipe.model, operator=operator, operator_settings=own)
    return replace(recipe, model=model, training=replace(recipe.training, attention=attention))


def _prepared(data: Path, length: int) -> Blocks:
    blocks = Blocks(data, "train")
    if blocks.block_length != length:
        raise TriuneError(
            f"data in '{data}' was prepared with blocks of {blocks.block_length} tokens, not {length}: change --length "
            "or prepare it again"
        )
    if len(blocks) == 0:
        raise TriuneError(f"data in '{data}' holds no blocks to train on: prepare it with more text")
    return blocks


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    kept = (value for state in optimizer.state.values() for value in state.values())
    return bytes_of(value for value in kept if isinstance(value, torch.Tensor))


def _described(settings: StepSettings, recipe: Recipe, data: Path | None, steps: int) -> dict[str, Any]:
    return {
        "recipe": settings.recipe,
        "sequences": recipe.training.sequences,
        "length": recipe.data.block_length,
        "layers": recipe.model.layers,
        "width": recipe.model.width,
        "heads": recipe.model.heads,
        "norm_position": recipe.model.norm_position,
        "precision": recipe.training.precision,
        "rounds": ROUNDS,
        "steps_a_round": steps,
        "source": "random token ids" if data is None else "prepared text",
    }
