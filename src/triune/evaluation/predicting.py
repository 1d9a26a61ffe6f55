"""Logits of a model over many examples, in batches of like length, in the order of the examples."""

from typing import Any

import numpy as np
import torch

from triune.data.batches import evaluation_plan
from triune.data.encoded import Encoded, OnDevice

TOKENS_A_BATCH = {"cuda": 32_768, "cpu": 2_048}


@torch.inference_mode()
def predict_logits(
    model: Any, encoded: Encoded, kind: str, pad_id: int, longest: int, device: torch.device, half: bool = False
) -> Any:
    """(N, classes) for classes and numbers; for spans two lists with an array of each example's own length."""
    model.eval()
    examples = OnDevice(encoded, pad_id, device)
    lengths = encoded.lengths
    results: list[Any] = [None] * len(encoded)
    for length, rows in evaluation_plan(lengths, TOKENS_A_BATCH.get(device.type, 2_048), longest):
        inputs, _, _ = examples.batch(torch.from_numpy(rows).to(device), length)
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            outputs = model(**inputs)
        if kind == "span":
            both = torch.stack([outputs.start_logits, outputs.end_logits], 1).float().cpu().numpy()
            for row, scores in zip(rows, both, strict=True):
                results[row] = scores[:, : lengths[row]]
        else:
            for row, scores in zip(rows, outputs.logits.float().cpu().numpy(), strict=True):
                results[row] = scores
    if kind == "span":
        return [scores[0] for scores in results], [scores[1] for scores in results]
    return np.stack(results) if results else np.zeros((0, 1), dtype=np.float32)
