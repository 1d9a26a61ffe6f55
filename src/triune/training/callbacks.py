"""What happens around the steps: metrics, progress, a stop on request or on a loss that is no number."""

import json
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from triune.budget import duration
from triune.progress import say
from triune.training.run_folder import METRICS

SAID_EVERY = 60.0  # seconds, at least: of a long run a log tells how far it is, and of a short one nothing


class RunMetrics(TrainerCallback):
    """Metrics as JSON lines; on a terminal a bar with tokens a second, loss and time left, in a log a line at times."""

    def __init__(self, run: Path, tokens_a_step: int, console: Console) -> None:
        self.run = run
        self.tokens_a_step = tokens_a_step
        self.console = console
        self.progress: Progress | None = None
        self.last_loss = float("nan")
        self.validation: tuple[int, float] | None = None  # (step, loss) of the latest evaluation
        self.rates: list[float] = []  # tokens a second between two logs without evaluation or saving
        self._rates_before: list[float] = []  # those of before a restart
        self._mark: tuple[int, float] | None = None
        self._began = self._said = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Of training up to now, with those before a restart."""
        return time.perf_counter() - self._began

    def begin(self, rows: list[dict[str, Any]]) -> None:
        """Training begins now, or goes on after what was logged before."""
        self._said = time.perf_counter()
        self._began = self._said - max((float(row.get("elapsed", 0.0)) for row in rows), default=0.0)
        self._rates_before = [row["tokens_per_second"] for row in rows if "tokens_per_second" in row]
        self.last_loss = next((row["loss"] for row in reversed(rows) if "loss" in row), self.last_loss)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._mark = (state.global_step, time.perf_counter())
        if not state.is_world_process_zero:
            return
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),  # a path may look like markup
            BarColumn(),
            TextColumn("{task.completed}/{task.total} steps"),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.progress.start()
        self.task = self.progress.add_task(self.run.name, total=state.max_steps, figures="")
        self.progress.update(self.task, completed=state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.progress:
            self.progress.update(self.task, completed=state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        row: dict[str, Any] = {"step": state.global_step, "tokens": state.global_step * self.tokens_a_step}
        row["elapsed"] = round(self.seconds, 3)
        logs = logs or {}
        if "loss" in logs:
            self.last_loss = logs["loss"]
            row |= {"loss": logs["loss"], "learning_rate": logs["learning_rate"], "grad_norm": logs.get("grad_norm")}
            if (rate := self._rate(state.global_step)) is not None:
                row["tokens_per_second"] = rate
                if self.progress:
                    self.progress.update(self.task, figures=f"loss {logs['loss']:.3f} · {rate:,.0f} tokens/s")
        elif "eval_loss" in logs:
            row["validation_loss"] = logs["eval_loss"]
            self.validation = (state.global_step, logs["eval_loss"])
        else:
            return
        if not state.is_world_process_zero:
            return
        with (self.run / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if "validation_loss" in row:
            self._say_at_times(row, state.max_steps)

    def _say_at_times(self, row: dict[str, Any], steps: int) -> None:
        """Where there is no bar: the validation loss, if nothing was said for a while. Whoever asked says the last."""
        now = time.perf_counter()
        if self.console.is_terminal or row["step"] >= steps or now - self._said < SAID_EVERY:
            return
        self._said = now
        speed = f", {self.rates[-1]:,.0f} tokens/s" if self.rates else ""
        say(
            self.console,
            f"{self.run}: step {row['step']:,} of {steps:,} after {duration(row['elapsed'])}, "
            f"validation loss {row['validation_loss']:.3f}{speed}",
        )

    def _rate(self, step: int) -> float | None:
        now = time.perf_counter()
        before, self._mark = self._mark, (step, now)
        if before is None or step == before[0]:
            return None
        self.rates.append(self.tokens_a_step * (step - before[0]) / (now - before[1]))
        return self.rates[-1]

    def _pause(self, *args: Any, **kwargs: Any) -> None:
        """Evaluation and saving are no training: the next span starts after them."""
        self._mark = None

    on_evaluate = on_save = _pause

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._mark is None:
            if args.device.type == "cuda":
                torch.cuda.synchronize()
            self._mark = (state.global_step, time.perf_counter())

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.progress:
            self.progress.stop()

    def tokens_per_second(self) -> float | None:
        """The median, the first left out: it holds compilation and warming up. None of a run without two logs."""
        rates = sorted(self.rates[1:] or self.rates or self._rates_before)
        return rates[len(rates) // 2] if rates else None


class StopOnRequest(TrainerCallback):
    """SIGTERM or Ctrl-C: save, then stop after the step that is running. A second one stops at once."""

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """However the block ends, the next signal is as before. Signals are heard in the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # None: of a handler that was not set from Python
        before = {one: signal.getsignal(one) or signal.SIG_DFL for one in (signal.SIGTERM, signal.SIGINT)}
        if before[signal.SIGINT] == signal.SIG_IGN:  # in a shell's background nobody's Ctrl-C is meant for it
            del before[signal.SIGINT]

        def as_before() -> None:
            for one, handler in before.items():
                signal.signal(one, handler)

        def ask(number: int, frame: FrameType | None) -> None:
            self.requested = True
            as_before()

        for one in before:
            signal.signal(one, ask)
        try:
            yield
        finally:
            as_before()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._agreed(args, state):
            control.should_save = True
            control.should_training_stop = True

    def _agreed(self, args: TrainingArguments, state: TrainerState) -> bool:
        if args.world_size == 1:
            return self.requested
        # All processes must stop at the same step; asking them costs a wait, so it is done when logging does too.
        if state.global_step % args.logging_steps:
            return False
        asked = torch.tensor(float(self.requested), device=args.device)
        torch.distributed.all_reduce(asked)
        self.requested = bool(asked.item())
        return self.requested


class StopOnNoNumber(TrainerCallback):
    """A loss that is not finite stops the run; nothing is saved after it."""

    def __init__(self) -> None:
        self.seen_at: int | None = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if control.should_save:
            control.should_log = True  # look at the loss before it is too late to keep the older checkpoint

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if logs and "loss" in logs and not math.isfinite(logs["loss"]):
            self.seen_at = state.global_step
            control.should_save = False
            control.should_evaluate = False
            control.should_training_stop = True
