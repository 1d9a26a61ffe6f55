"""Pre-training as one call: recipe and prepared data in, a run folder with a model out.

The same call on a laptop, on one GPU and, under torchrun or accelerate, on many: the number of sequences in a step is
the recipe's, however many devices share them.
"""

import json
import os
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import set_seed
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.utils import logging

from triune.benchmarks.ceilings import matmul_rate
from triune.benchmarks.flops import training_flops_a_token
from triune.data.blocks import Blocks
from triune.data.frequencies import unigram_loss
from triune.data.tokenizer import load_tokenizer, write_tokenizer
from triune.errors import DivergedError, TriuneError, one_line
from triune.files import alone_at, write_text
from triune.kernels import dispatch
from triune.models.configuration import TriuneConfig
from triune.models.heads import TriuneForMaskedLM
from triune.models.here import check_model
from triune.presence import MODEL, SUMMARY
from triune.progress import say
from triune.training import checkpoints, run_folder
from triune.training.callbacks import RunMetrics, StopOnNoNumber, StopOnRequest
from triune.training.devices import OneGpuArguments, process_count, process_device
from triune.training.masking import Masking
from triune.training.recipe import Recipe
from triune.training.reporting import check_reporter
from triune.training.stream import BlockStream, ValidationBlocks
from triune.training.trainer import PretrainingTrainer


def pretrain(recipe: Recipe, data: Path, run: Path, report_to: str = "none", console: Console | None = None) -> dict:
    """Train, or go on where a run of the same recipe stopped; gives the summary of the finished run."""
    is_first = int(os.environ.get("RANK", "0")) == 0
    busy = f"another process is at work in '{run}': wait for it, or choose another --out"
    lock = run.parent / f".{run.name}.pretrain.lock"
    with alone_at(lock, busy) if is_first else nullcontext():  # the others of a run follow the first
        return _pretrain(recipe, data, run, report_to, console or Console(stderr=True), is_first)


def _pretrain(recipe: Recipe, data: Path, run: Path, report_to: str, console: Console, is_first: bool) -> dict:
    check_reporter(report_to)
    logging.disable_progress_bar()  # transformers draws one for every file it writes
    train, valid = Blocks(data, "train"), Blocks(data, "valid")
    _check_data(recipe, train, data)
    if len(valid) == 0:
        raise TriuneError(f"data in '{data}' holds no validation blocks: prepare it with --valid, or with more text")
    # Mistakes are found before there is a run folder, which would belong to the wrong recipe.
    config, steps = model_config(recipe, train), _steps(recipe, len(train))
    _share(recipe, process_count())
    if not run_folder.is_finished(run):  # one that is needs nothing of this machine
        _check_here(recipe, config)
    if is_first:
        run_folder.open_run(run, recipe, run_folder.data_hashes(train))
    if run_folder.is_finished(run):
        if "diverged" in (summary := run_folder.summary_of(run)):  # as a study wrote it
            raise DivergedError(f"{run}: {summary['diverged']}; remove the folder to try again", summary["diverged"])
        if is_first:
            say(console, f"{run}: finished already, nothing to do")
        return summary

    if recipe.training.compile:
        torch.compiler.reset()  # compiled models of earlier runs in this process count towards a limit
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()  # of this run, and not of earlier ones in this process
    set_seed(recipe.training.seed)
    model = TriuneForMaskedLM(config)
    trainer, metrics, no_number, request = _trainer(recipe, model, train, valid, run, steps, report_to, console)
    how = _how(recipe, model)

    damaged: list[str] = []
    resume = checkpoints.newest_whole(run, damaged)
    if is_first:
        for line in damaged:
            say(console, f"warning: {line}", style="yellow")
        _announce(console, run, recipe, trainer, how, steps, resume)
        run_folder.forget_after(run, int(resume.name.removeprefix(checkpoints.PREFIX)) if resume else 0)
    trainer.accelerator.wait_for_everyone()
    metrics.begin(run_folder.metrics_of(run) if resume and (run / run_folder.METRICS).is_file() else [])
    with request.listening():
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)

    if (broken := no_number.seen_at or trainer.broken_at) is not None:
        kept = checkpoints.checkpoints(run)
        last = f"the last good checkpoint is {kept[-1]}" if kept else "no checkpoint had been written"
        short = f"the loss is not a finite number at step {broken}"
        raise DivergedError(f"training stopped at step {broken}: the loss is not a finite number; {last}", short)
    if trainer.state.global_step < steps:
        if is_first:
            say(
                console,
                f"{run}: stopped at step {trainer.state.global_step} of {steps} and saved; start again to go on",
            )
        return {"run": str(run), "stopped": trainer.state.global_step, "steps": steps}
    return _finish(recipe, trainer, metrics, train, run, how)


def _check_here(recipe: Recipe, config: TriuneConfig) -> None:
    device = process_device()
    with _precision(recipe, device):
        check_model(config, device)


def summary_line(summary: dict[str, Any]) -> str:
    said = f"{summary['run']}: validation loss {summary['validation_loss']:.3f}"
    if "unigram_loss" in summary:  # not of runs of earlier versions
        said += f" (word frequencies alone {summary['unigram_loss']:.3f})"
    said += f" after {summary['tokens']:,} tokens"
    if summary["tokens_per_second"] is None:
        return said
    return (
        f"{said}, {summary['tokens_per_second']:,.0f} tokens/s = {summary['tflops']:.3g} TFLOP/s, "
        f"{summary['share_of_matmul']:.0%} of the rate of a large matrix product"
    )


def check_recipe(recipe: Recipe, name: str) -> None:
    """What is wrong with its model on every machine and with any text: asked before there is either."""
    dispatch.choose(recipe.training.attention)
    anywhere = replace(recipe, training=replace(recipe.training, attention=dispatch.SDPA))
    try:
        check_model(_config(anywhere, vocabulary=1, pad_id=0), torch.device("cpu"))
    except TriuneError as error:
        raise TriuneError(f"{name}: {error}") from error


def model_config(recipe: Recipe, blocks: Blocks) -> TriuneConfig:
    return _config(recipe, blocks.vocab_size, blocks.pad_id)


def _config(recipe: Recipe, vocabulary: int, pad_id: int) -> TriuneConfig:
    part = recipe.model
    return TriuneConfig(
        vocab_size=vocabulary,
        pad_token_id=pad_id,
        max_position_embeddings=recipe.data.block_length,
        num_hidden_layers=part.layers,
        hidden_size=part.width,
        num_attention_heads=part.heads,
        intermediate_size=part.feed_forward,
        hidden_dropout_prob=part.hidden_dropout,
        attention_probs_dropout_prob=part.attention_dropout,
        operator=part.operator,
        operator_settings=part.operator_settings,
        norm_position=part.norm_position,
        position=part.position,
        mask_diagonal=part.mask_diagonal,
        attn_implementation=recipe.training.attention,
    )


def _check_data(recipe: Recipe, blocks: Blocks, data: Path) -> None:
    for name in ("block_length", "span_documents"):
        wanted, prepared = getattr(recipe.data, name), blocks.manifest.settings[name]
        if wanted != prepared:
            raise TriuneError(
                f"data in '{data}' was prepared with {name} {prepared}, the recipe asks for {wanted}: "
                "prepare it again or override the recipe"
            )


def _steps(recipe: Recipe, blocks: int) -> int:
    if recipe.training.steps is not None:
        return recipe.training.steps
    steps = int(float(recipe.training.epochs or 0) * blocks / recipe.training.sequences)
    if steps < 1:
        raise TriuneError(
            f"{blocks} blocks are fewer than one step of {recipe.training.sequences} sequences: "
            "give more text or lower training.sequences"
        )
    return steps


def _share(recipe: Recipe, devices: int) -> tuple[int, int]:
    """Sequences at once on a device, and how often that is accumulated."""
    part = recipe.training
    if part.sequences % devices:
        raise TriuneError(f"training.sequences {part.sequences} cannot be shared by {devices} devices evenly")
    on_device = part.sequences // devices
    at_once = next(size for size in range(min(part.per_device, on_device), 0, -1) if on_device % size == 0)
    return at_once, on_device // at_once


def masking_of(recipe: Recipe, blocks: Blocks, seed: int) -> Masking:
    return Masking(
        seed=seed,
        vocab_size=blocks.vocab_size,
        mask_id=blocks.mask_id,
        special_ids=(blocks.pad_id, blocks.unk_id, blocks.cls_id, blocks.sep_id, blocks.mask_id),
        ratio=float(recipe.masking.ratio),
        mask_share=float(recipe.masking.mask_share),
        random_share=float(recipe.masking.random_share),
        word_starts=blocks.word_starts if recipe.masking.whole_word else None,
    )


def _trainer(
    recipe: Recipe,
    model: TriuneForMaskedLM,
    train: Blocks,
    valid: Blocks,
    run: Path,
    steps: int,
    report_to: str,
    console: Console,
) -> tuple[PretrainingTrainer, RunMetrics, StopOnNoNumber, StopOnRequest]:
    part, optimizer = recipe.training, recipe.optimizer
    at_once, accumulated = _share(recipe, process_count())
    args = OneGpuArguments(
        output_dir=str(run),
        max_steps=steps,
        per_device_train_batch_size=at_once,
        per_device_eval_batch_size=at_once,
        gradient_accumulation_steps=accumulated,
        learning_rate=optimizer.learning_rate,
        lr_scheduler_type="cosine" if optimizer.schedule == "cosine" else "linear",
        warmup_steps=round(float(optimizer.warmup) * steps),
        weight_decay=optimizer.weight_decay,
        adam_beta1=optimizer.betas[0],
        adam_beta2=optimizer.betas[1],
        adam_epsilon=optimizer.epsilon,
        max_grad_norm=optimizer.clip,
        optim="adamw_torch_fused",
        bf16=part.precision == "bfloat16",
        torch_compile=part.compile,
        gradient_checkpointing=part.gradient_checkpointing,
        seed=part.seed,
        logging_strategy="steps",
        logging_steps=part.log_every,
        logging_nan_inf_filter=False,  # it waits for the device at every step, and hides what we want to see
        eval_strategy="steps",
        eval_steps=part.evaluate_every,
        prediction_loss_only=True,
        save_strategy="steps",
        save_steps=part.checkpoint_every,
        use_cpu=not torch.cuda.is_available(),
        dataloader_pin_memory=torch.cuda.is_available(),
        # A blocking copy waits for everything that the device still has to do, at every step.
        accelerator_config={"non_blocking": torch.cuda.is_available()},
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
        disable_tqdm=True,
        report_to=report_to,
    )
    metrics = RunMetrics(run, part.sequences * recipe.data.block_length, console)
    no_number, request = StopOnNoNumber(), StopOnRequest()
    trainer = PretrainingTrainer(
        recipe=recipe,
        # Masks of evaluation do not depend on the run's seed, so that runs can be compared.
        masking=masking_of(recipe, train, part.seed),
        eval_masking=masking_of(recipe, train, 0),
        model=model,
        args=args,
        train_dataset=BlockStream(train, steps * part.sequences, part.seed),
        eval_dataset=ValidationBlocks(valid, part.evaluate_blocks, spread=part.evaluate_from == "whole"),
        callbacks=[metrics, request, no_number],
    )
    for unwanted in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(unwanted)
    return trainer, metrics, no_number, request


def _announce(
    console: Console, run: Path, recipe: Recipe, trainer: PretrainingTrainer, how: str, steps: int, resume: Any
) -> None:
    part = recipe.training
    at_once, accumulated = trainer.args.per_device_train_batch_size, trainer.args.gradient_accumulation_steps
    shared = f"{trainer.args.world_size} × {at_once}" + (f" × {accumulated} accumulated" if accumulated > 1 else "")
    say(
        console,
        f"{run}: {recipe.model.operator}, {trainer.model.num_parameters():,} parameters, {steps:,} steps of "
        f"{part.sequences} sequences of {recipe.data.block_length} tokens ({shared}); {trainer.args.device.type}, "
        f"{part.precision}, {how}",
    )
    if resume:
        say(console, f"{run}: going on from {resume.name}")


def _how(recipe: Recipe, model: TriuneForMaskedLM) -> str:
    """The code that computes it, as it is chosen for the device and the precision of the run."""
    part = recipe.training
    with _precision(recipe, model.device):
        turned = "" if model.rotary_core is None else f"rotary {model.rotary_core.name}, "
        return (
            f"attention {model.attention_core.name}, {turned}feed-forward {model.feed_forward_core.name}, "
            f"norm {model.norm_core.name}, {'compiled' if part.compile else 'not compiled'}"
        )


def _precision(recipe: Recipe, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=recipe.training.precision == "bfloat16")


def _speed(recipe: Recipe, trainer: PretrainingTrainer, metrics: RunMetrics, blocks: Blocks) -> dict[str, Any]:
    """Tokens a second, and the arithmetic in them as a share of what matrix products reach on this device."""
    rate = metrics.tokens_per_second()
    if rate is None:
        return {"tokens_per_second": None}
    config = model_config(recipe, blocks)
    flops = training_flops_a_token(config, recipe.data.block_length, float(recipe.masking.ratio))
    dtype = torch.bfloat16 if recipe.training.precision == "bfloat16" else torch.float32
    ceiling = matmul_rate(trainer.args.device, dtype) * trainer.args.world_size
    return {
        "tokens_per_second": rate,
        "tflops": rate * flops / 1e12,
        "matmul_tflops": ceiling / 1e12,
        "share_of_matmul": rate * flops / ceiling,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
    }


def _finish(
    recipe: Recipe, trainer: PretrainingTrainer, metrics: RunMetrics, train: Blocks, run: Path, how: str
) -> dict[str, Any]:
    """Evaluate at the end, save model and tokenizer, write the summary: its presence says that the run is done."""
    seconds = metrics.seconds
    if metrics.validation is None or metrics.validation[0] != trainer.state.global_step:
        trainer.evaluate()
    assert metrics.validation is not None
    summary = {
        "study": "pretraining",
        "identity": run_folder.identity_of(recipe, run_folder.data_hashes(train)),
        "run": str(run),
        "operator": recipe.model.operator,
        "parameters": trainer.accelerator.unwrap_model(trainer.model).num_parameters(),
        "steps": trainer.state.global_step,
        "tokens": trainer.state.global_step * metrics.tokens_a_step,
        "train_loss": metrics.last_loss,
        "validation_loss": metrics.validation[1],
        "unigram_entropy": train.manifest.unigram_entropy,
        "unigram_loss": unigram_loss(train, trainer.eval_dataset.blocks, trainer.eval_dataset.indices),
        "pocket": train.manifest.pocket,
        "seconds": seconds,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "how": how,
        **_speed(recipe, trainer, metrics, train),
    }
    beside = run / f".{MODEL}"
    try:
        _save(trainer, train, run, beside)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise TriuneError(f"cannot write the model to '{run}': {one_line(error)}; make room and start again") from error
    if trainer.args.should_save:
        write_text(run / SUMMARY, json.dumps(summary, indent=2) + "\n")
    trainer.accelerator.wait_for_everyone()
    return summary


def _save(trainer: PretrainingTrainer, train: Blocks, run: Path, beside: Path) -> None:
    if trainer.args.should_save:
        shutil.rmtree(beside, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    trainer.save_model(str(beside), _internal_call=True)
    trainer.accelerator.wait_for_everyone()
    if trainer.args.should_save:
        write_tokenizer(load_tokenizer(train.tokenizer_folder), beside)
        (beside / "training_args.bin").unlink(missing_ok=True)  # a pickle, which nobody who gets the model should read
        shutil.rmtree(run / MODEL, ignore_errors=True)
        beside.rename(run / MODEL)
