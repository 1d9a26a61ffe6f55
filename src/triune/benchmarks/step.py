"""A training step in a bare loop: the model, the masks, the optimiser and nothing around them.

What the real command adds (Trainer, logging, data loading) is the difference to this.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import torch

from triune.benchmarks.ceilings import matmul_rate
from triune.benchmarks.flops import training_flops_a_token
from triune.data.blocks import Blocks
from triune.models.heads import TriuneForMaskedLM
from triune.training.pretrain import masking_of, model_config
from triune.training.recipe import Recipe


def bare_loop(recipe: Recipe, data: Path, steps: int = 100) -> dict[str, Any]:
    """Tokens a second over `steps` steps after as many to warm up; one device, no accumulation."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    blocks = Blocks(data, "train")
    masking = masking_of(recipe, blocks, recipe.training.seed)
    torch.manual_seed(recipe.training.seed)
    model: Any = TriuneForMaskedLM(model_config(recipe, blocks)).to(device).train()
    config, core = model.config, model.attention_core.name
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = torch.compile(model) if recipe.training.compile else model
    half = recipe.training.precision == "bfloat16"
    count = recipe.training.sequences
    batches = [blocks.batch([(i * count + j) % len(blocks) for j in range(count)])["input_ids"] for i in range(8)]
    batches = [batch.to(device) for batch in batches]
    examples = torch.arange(count, device=device)

    def step(number: int) -> None:
        with torch.no_grad():
            batch = masking(batches[number % len(batches)], examples + number * count)
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            loss = run(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    spans = []
    for span in range(6):
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        for number in range(max(1, steps // 5)):
            step(number)
        if device.type == "cuda":
            torch.cuda.synchronize()
        if span:  # the first holds compilation and warming up
            spans.append(max(1, steps // 5) * count * recipe.data.block_length / (time.perf_counter() - began))
    rate = statistics.median(spans)
    flops = training_flops_a_token(config, recipe.data.block_length, float(recipe.masking.ratio))
    ceiling = matmul_rate(device, torch.bfloat16 if half else torch.float32)
    return {
        "operator": config.operator,
        "tokens_per_second": rate,
        "spread": [min(spans), max(spans)],
        "tflops": rate * flops / 1e12,
        "matmul_tflops": ceiling / 1e12,
        "share_of_matmul": rate * flops / ceiling,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "precision": recipe.training.precision,
        "attention": core,
        "compiled": recipe.training.compile,
    }
