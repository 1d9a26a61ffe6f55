"""Answers of a fine-tuned model when its embeddings are noisy or its input is corrupted.

Random numbers belong to (seed, draw, row): every level and every model of the same width meets the same ones, on any
device and in any batches. Shapes: N rows · S levels or rates · D draws · T tokens · d width.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from triune.data.corruptions import Draws, kept_corrupted
from triune.data.encoded import Encoded, OnDevice
from triune.data.examples import Examples
from triune.evaluation.predict import Predictor
from triune.evaluation.predicting import TOKENS_A_BATCH, predict_logits

Array = np.ndarray[Any, Any]


class Asked:
    """A fine-tuned model that is asked for classes, or for numbers."""

    def __init__(self, predictor: Predictor, kind: str, half: bool) -> None:
        self.model, self.tokenizer, self.device = predictor.model, predictor.tokenizer, predictor.device
        self.longest, self.kind, self.half = predictor.longest, kind, half
        self.pad_id = int(self.tokenizer.pad_token_id)
        self.answer_type = np.float32 if kind == "regression" else np.int64
        self.at_once = TOKENS_A_BATCH[self.device.type]

    def answers(self, encoded: Encoded, longest: int) -> Array:
        logits = predict_logits(self.model, encoded, self.kind, self.pad_id, longest, self.device, self.half)
        return logits[:, 0] if self.kind == "regression" else logits.argmax(1)


@contextmanager
def at_embeddings(model: Any, where: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Iterator[None]:
    """`change` sees the embeddings (rows, T, d) before or after their LayerNorm; what it returns takes their place."""
    embeddings = model.bert.embeddings
    if where == "after":
        handle = embeddings.register_forward_hook(lambda module, given, output: change(output))
    else:
        handle = embeddings.LayerNorm.register_forward_pre_hook(lambda module, given: change(given[0]))
    try:
        yield
    finally:
        handle.remove()


@torch.inference_mode()
def embedding_norm(asked: Asked, encoded: Encoded, where: str) -> float:
    """Mean ‖e‖ over all tokens of the examples, [CLS] and [SEP] among them, padding not."""
    asked.model.eval()
    examples = OnDevice(encoded, asked.pad_id, asked.device)
    total = 0.0

    def add_up(embeddings: torch.Tensor) -> None:
        nonlocal total
        total += float(embeddings.float().norm(dim=-1).double().sum())

    with at_embeddings(asked.model, where, add_up):
        for length, rows in _of_one_length(encoded.lengths, asked.at_once):
            inputs, _, _ = examples.batch(torch.from_numpy(rows).to(asked.device), length)
            asked.model.bert.embeddings(input_ids=inputs["input_ids"], token_type_ids=inputs["token_type_ids"])
    return total / len(encoded.ids)


def under_noise(asked: Asked, encoded: Encoded, where: str, sigmas: Sequence[float], draws: int, seed: int) -> Array:
    """Answers (S, D, N) with Gaussian noise of each σ on the embeddings."""
    width, copies = asked.model.config.hidden_size, len(sigmas) * draws
    answers: Array = np.empty((len(sigmas), draws, len(encoded)), dtype=asked.answer_type)
    for length, rows in _of_one_length(encoded.lengths, asked.at_once // copies):
        drawn = [_standard_normal(seed, draw, row, length, width) for draw in range(draws) for row in rows.tolist()]
        on_device = torch.from_numpy(np.stack(drawn)).to(asked.device)
        noise = torch.cat([sigma * on_device for sigma in sigmas])
        with at_embeddings(asked.model, where, _adder(noise)):
            found = asked.answers(_take(encoded, np.tile(rows, copies)), length)
        answers[:, :, rows] = found.reshape(len(sigmas), draws, len(rows))
    return answers


def under_corruption(
    asked: Asked, clean: Array, examples: Examples, drawn: Draws, cache: Path | None = None
) -> dict[str, tuple[Array, float]]:
    """By kind: answers (S, D, N) for the development set at each rate, and the share of rows that were changed.

    `clean` are the answers without corruption: a row that was left as it was is not asked again.
    """
    made = kept_corrupted(cache, asked.tokenizer, examples, asked.longest, drawn)
    fresh: Array = np.empty(len(made.fresh), dtype=asked.answer_type)
    for length, rows in _of_one_length(made.fresh.lengths, asked.at_once):
        fresh[rows] = asked.answers(_take(made.fresh, rows), length)
    answers = np.concatenate([clean, fresh])
    return {kind: (answers[numbers], made.changed(kind)) for kind, numbers in made.rows.items()}


def _standard_normal(seed: int, draw: int, row: int, length: int, width: int) -> Array:
    """Made on the CPU for each row by itself: neither device nor batch has a say."""
    return np.random.default_rng([seed, draw, row]).standard_normal((length, width), dtype=np.float32)


def _adder(noise: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Adds to each batch its part of the noise: where all rows are of one length, batches come in their order."""
    begin = 0

    def add(embeddings: torch.Tensor) -> torch.Tensor:
        nonlocal begin
        begin += len(embeddings)
        return embeddings + noise[begin - len(embeddings) : begin].to(embeddings.dtype)

    return add


def _of_one_length(lengths: Array, tokens: int) -> Iterator[tuple[int, Array]]:
    """Rows of the same length, about so many tokens at once: nothing is padded."""
    for length in np.unique(lengths).tolist():
        rows, count = np.flatnonzero(lengths == length), max(1, tokens // length)
        for begin in range(0, len(rows), count):
            yield length, rows[begin : begin + count]


def _take(encoded: Encoded, rows: Array) -> Encoded:
    starts = np.concatenate([[0], np.cumsum(encoded.lengths[rows])])
    ids = np.concatenate([encoded.row(row) for row in rows.tolist()])
    return Encoded(ids, starts, encoded.first_lengths[rows], encoded.labels[rows])
