"""Fine-tuning one model on one task with one seed: a folder with a record, predictions and, if wanted, the model."""

import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from triune.data.batches import training_plan
from triune.data.encoded import Encoded, OnDevice
from triune.errors import DivergedError, TriuneError
from triune.evaluation.predict import TASK_FILE
from triune.evaluation.predicting import predict_logits
from triune.files import write_text
from triune.presence import MODEL, RECORD
from triune.training.finetune_recipe import FinetuneRecipe
from triune.training.problems import Problem
from triune.training.run_folder import versions
from triune.training.steps import Steps


@dataclass(frozen=True)
class Job:
    """One run of a matrix, as plain values: it travels to other processes."""

    model: str  # folder or hub name
    label: str  # what tables call it
    seed: int
    recipe: dict[str, Any]
    model_sha256: str
    identity: str  # of recipe, model, data and seed: a record with another one is not of this run
    keep_model: bool = False
    test_file: bool = False


def finetune(job: Job, problem: Problem, recipe: FinetuneRecipe, out: Path, device: torch.device) -> dict[str, Any]:
    """Train, choose the best epoch on the development set, write; `out` appears whole, with the record last."""
    torch.manual_seed(job.seed)
    model = problem.load(job.model, recipe).to(device)
    plans = [
        training_plan(problem.train.lengths, recipe.training.batch, job.seed, epoch, problem.max_length)
        for epoch in range(recipe.training.epochs_of(len(problem.train.lengths)))
    ]
    examples = OnDevice(problem.train, problem.pad_id, device)
    steps = Steps(model, examples, problem.kind, recipe, sum(map(len, plans)))
    history: list[dict[str, Any]] = []
    best: dict[str, Any] | None = None
    seconds = 0.0
    for epoch, plan in enumerate(plans, start=1):
        began = time.perf_counter()
        model.train()
        rows = torch.from_numpy(np.stack([rows for _, rows in plan])).to(device)
        for number, (length, _) in enumerate(plan):
            steps.take(rows[number], length)
        loss = steps.mean_loss(len(plan))
        spent = time.perf_counter() - began
        seconds += spent
        logits = _logits(model, problem.dev, problem, recipe, device) if math.isfinite(loss) else None
        if logits is None or not _are_finite(logits):  # the loss of a step comes before what the step does
            what = "the loss is not a finite number" if logits is None else "the weights give no finite numbers"
            also = ", or scale the labels, if they are large" if problem.kind == "regression" else ""
            raise DivergedError(
                f"{job.label} on {problem.task.title}, seed {job.seed}: {what} in epoch {epoch}; lower "
                f"optimizer.learning_rates{also}"
            )
        result = problem.evaluate(logits)
        history.append({"epoch": epoch, "train_loss": loss, "seconds": spent, **result.scores})
        if best is None or result.primary > best["result"].primary:
            state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
            best = {"epoch": epoch, "result": result, "state": state}
    assert best is not None
    model.load_state_dict(best["state"])
    more = {}  # other development sets (MNLI mismatched): scored once, with the epoch that was chosen
    for name, split in problem.splits.items():
        if name.startswith("dev_"):
            more[name] = problem.evaluate(_logits(model, split.encoded, problem, recipe, device), name)
            best["result"].files.update(more[name].files)
    record = {
        **_described(job, problem, recipe, model, device, steps.captured),
        "scores": best["result"].scores,
        "primary": best["result"].primary,
        "more_scores": {name: result.scores for name, result in more.items()},
        "best_epoch": best["epoch"],
        "epochs": len(plans),
        "history": history,
        "train_seconds": seconds,
    }
    _write(
        out, job, problem, record, best["result"], model, lambda split: _logits(model, split, problem, recipe, device)
    )
    return record


def refuse_others_model(out: Path) -> None:
    if (out / MODEL).is_dir() and not (out / MODEL / TASK_FILE).is_file():  # not one of ours, which has it
        raise TriuneError(f"'{out / MODEL}' holds something else: move it away, or choose another --out")


def _logits(model: Any, split: Encoded, problem: Problem, recipe: FinetuneRecipe, device: torch.device) -> Any:
    half = recipe.training.precision == "bfloat16"
    return predict_logits(model, split, problem.kind, problem.pad_id, problem.max_length, device, half)


def _are_finite(logits: Any) -> bool:
    parts = [logits] if isinstance(logits, np.ndarray) else [one for both in logits for one in both]
    return all(bool(np.isfinite(part).all()) for part in parts)


def _described(
    job: Job, problem: Problem, recipe: FinetuneRecipe, model: Any, device: torch.device, captured: bool
) -> dict[str, Any]:
    return {
        "model": job.label,
        "model_path": job.model,
        "model_sha256": job.model_sha256,
        "identity": job.identity,
        "operator": model.config.operator,
        "parameters": model.num_parameters(),
        "seed": job.seed,
        "recipe": recipe.to_dict(),
        **problem.described(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "attention": model.attention_core.name,
        "captured": captured,
        "versions": versions(),
    }


def _write(
    out: Path,
    job: Job,
    problem: Problem,
    record: dict[str, Any],
    result: Any,
    model: Any,
    predict: Callable[[Encoded], Any],
) -> None:
    for name, content in result.files.items():
        write_text(out / name, json.dumps(content, ensure_ascii=False) + "\n")
    if job.test_file:
        for name, text in problem.test_files(predict, result).items():
            write_text(out / name, text)
    if job.keep_model:
        refuse_others_model(out)
        beside = out / f".{MODEL}"
        shutil.rmtree(beside, ignore_errors=True)
        problem.save(model, beside, result.threshold)
        shutil.rmtree(out / MODEL, ignore_errors=True)
        beside.rename(out / MODEL)
    write_text(out / RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
