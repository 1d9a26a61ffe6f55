"""Pre-training through the real call and the real command."""

import io
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, TrainerState

from tests.operators.test_registry import PLUGIN
from tests.training.conftest import TINY
from triune import TriuneError, operators
from triune.data.prepare import prepare
from triune.training import checkpoints, run_folder
from triune.training.callbacks import RunMetrics
from triune.training.pretrain import pretrain, summary_line
from triune.training.recipe import load_recipe, recipe_from_dict


def tiny(*overrides):
    return load_recipe("pocket", [*TINY, *overrides])


def weights(run):
    return load_file(Path(run) / "model" / "model.safetensors")


def assert_same_weights(one, other):
    one, other = weights(one), weights(other)
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def command(blocks, out, *overrides, plugin=None, launcher=()):
    sets = [part for override in (*TINY, *overrides) for part in ("--set", override)]
    start = [sys.executable, *(launcher or ["-m", "triune.cli"])]
    plugins = ["--plugin", str(plugin)] if plugin else []
    return [*start, *plugins, "pretrain", "pocket", "--data", str(blocks), "--out", str(out), *sets]


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2] / "src")}


@pytest.fixture(scope="module")
def undisturbed(blocks, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "undisturbed"
    pretrain(tiny(), blocks, run)
    return run


CANNOT_RUN_HERE = [
    ("training.attention=one_tensor", "'one_tensor' cannot run"),
    ("training.attention=flash_attention_2", "'flash_attention_2' cannot run here"),
    ("training.attention=flex_attention", "'flex_attention' cannot run here"),
]


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("model.operator_settings={role_start: sideways}", "role_start"),
        ("model.heads=7", "num_attention_heads"),
        ("model.operator=sharde", "did you mean 'shared'"),
        ("training.attention=sdpaa", "unknown attn_implementation 'sdpaa'"),
        ("model.heads=8", "halves heads of 4 dimensions or more, not of 2"),
        *([] if torch.cuda.is_available() else CANNOT_RUN_HERE),
    ],
)
def test_a_mistake_in_the_recipe_leaves_no_run_folder(override, word, blocks, tmp_path):
    """It would belong to the wrong recipe, and be in the way of the right one."""
    with pytest.raises(TriuneError, match=word):
        pretrain(tiny("model.operator=shared", override), blocks, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_run_folder_says_what_it_is(undisturbed, blocks):
    summary = run_folder.summary_of(undisturbed)
    assert summary["steps"] == 24
    assert summary["tokens"] == 24 * 8 * 16
    assert math.isfinite(summary["validation_loss"])
    rows = run_folder.metrics_of(undisturbed)
    assert [row["step"] for row in rows if "loss" in row] == sorted({*range(2, 25, 2), 5, 15})  # and at checkpoints
    assert [row["step"] for row in rows if "validation_loss" in row] == [12, 24]
    described = json.loads((undisturbed / "run.json").read_text())
    assert described["versions"]["torch"] == torch.__version__
    assert described["recipe"]["model"]["width"] == 16
    assert load_recipe(str(undisturbed / "recipe.yaml")).to_dict() == tiny().to_dict()
    assert [path.name for path in checkpoints.checkpoints(undisturbed)] == ["checkpoint-20", "checkpoint-24"]
    assert AutoModelForMaskedLM.from_pretrained(undisturbed / "model").config.operator == "shared"
    assert AutoTokenizer.from_pretrained(undisturbed / "model").mask_token == "[MASK]"
    assert {path.suffix for path in (undisturbed / "model").iterdir()} == {".json", ".safetensors"}


def test_a_finished_run_is_not_run_again(undisturbed, blocks):
    before = (undisturbed / "summary.json").stat().st_mtime_ns
    assert pretrain(tiny(), blocks, undisturbed)["steps"] == 24
    assert (undisturbed / "summary.json").stat().st_mtime_ns == before


def test_a_finished_run_needs_nothing_of_this_machine(undisturbed, blocks, tmp_path, monkeypatch):
    def cannot_run(*_):
        raise TriuneError("not here")

    monkeypatch.setattr("triune.training.pretrain.check_model", cannot_run)
    assert pretrain(tiny(), blocks, undisturbed)["steps"] == 24
    with pytest.raises(TriuneError, match="not here"):
        pretrain(tiny(), blocks, tmp_path / "run")


def test_it_learns(blocks, tmp_path):
    larger = ["model.width=48", "model.hidden_dropout=0.0", "model.attention_dropout=0.0", "training.sequences=32"]
    recipe = tiny("training.steps=400", "training.per_device=32", "optimizer.learning_rate=1e-2", *larger)
    summary = pretrain(recipe, blocks, tmp_path / "run")
    assert summary["validation_loss"] < summary["unigram_entropy"] - 0.5


@pytest.mark.parametrize("change", ["training.seed=2", "masking.whole_word=true", "optimizer.schedule=one-cycle"])
def test_settings_change_the_result(change, undisturbed, blocks, tmp_path):
    pretrain(tiny(change), blocks, tmp_path / "run")
    ours, theirs = weights(tmp_path / "run"), weights(undisturbed)
    assert any(not torch.equal(ours[name], theirs[name]) for name in ours)


KILLER = """
import os, signal
from triune.training import checkpoints, trainer
from triune.training.callbacks import RunMetrics

when, where = int(os.environ["KILL_AT"]), os.environ["KILL_WHERE"]

def die(*ignored, **also):
    os.kill(os.getpid(), signal.SIGKILL)

before = RunMetrics.on_step_end
def on_step_end(self, args, state, control, **kwargs):
    if state.global_step == when and where == "step":
        die()
    if state.global_step >= when and where == "seal":
        checkpoints.seal = die
    if state.global_step >= when and where == "saving":
        trainer.PretrainingTrainer._save_rng_state = die
    before(self, args, state, control, **kwargs)
RunMetrics.on_step_end = on_step_end
"""


def test_killed_at_any_moment_it_ends_the_same(undisturbed, blocks, tmp_path):
    """Five kills at random steps, between and in the middle of writing checkpoints, then one run to the end."""
    plugin = tmp_path / "killer.py"
    plugin.write_text(KILLER)
    draw = random.Random(7)
    steps = sorted(draw.sample(range(2, 24), 5))
    run = tmp_path / "run"
    for step, where in zip(steps, ["step", "saving", "step", "seal", "step"], strict=True):
        killed = subprocess.run(
            command(blocks, run, plugin=plugin),
            env=environment() | {"KILL_AT": str(step), "KILL_WHERE": where},
            capture_output=True,
            text=True,
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        for checkpoint in checkpoints.checkpoints(run):
            assert checkpoints.damage(checkpoint) is None
    finished = subprocess.run(command(blocks, run), env=environment(), capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert "going on from checkpoint-" in finished.stderr
    assert_same_weights(run, undisturbed)
    losses = [[row.get("loss") for row in run_folder.metrics_of(folder)] for folder in (run, undisturbed)]
    assert losses[0] == losses[1]


def test_seconds_go_on_where_the_checkpoint_was(blocks, tmp_path):
    recipe = tiny("training.steps=4", "training.checkpoint_every=2", "training.log_every=1")
    assert pretrain(recipe, blocks, tmp_path)["seconds"] < 1000
    # As a kill after the first checkpoint leaves it, on a slow machine.
    for name in ("checkpoint-4", "model"):
        shutil.rmtree(tmp_path / name)
    (tmp_path / "summary.json").unlink()
    rows = [{**row, "elapsed": 1000.0 * row["step"]} for row in run_folder.metrics_of(tmp_path)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert 2000 < pretrain(recipe, blocks, tmp_path)["seconds"] < 3000


def test_a_run_killed_after_its_last_step_is_finished_as_if_it_had_not_been(blocks, tmp_path):
    recipe = tiny("training.steps=4", "training.checkpoint_every=2", "training.log_every=1")
    before = pretrain(recipe, blocks, tmp_path)
    shutil.rmtree(tmp_path / "model")
    (tmp_path / "summary.json").unlink()
    after = pretrain(recipe, blocks, tmp_path)
    assert after["train_loss"] == before["train_loss"]
    assert after["validation_loss"] == before["validation_loss"]
    assert after["tokens_per_second"] > 0
    cores = "attention sdpa, rotary pytorch, feed-forward pytorch, norm pytorch"
    assert after["how"] == before["how"] == f"{cores}, not compiled"
    assert "tokens/s" in summary_line(after)
    json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)  # NaN is no JSON


def test_speed_that_is_not_known_is_not_said():
    known = {"run": "here", "validation_loss": 1.0, "unigram_loss": 2.0, "tokens": 128, "tokens_per_second": None}
    assert summary_line(known) == "here: validation loss 1.000 (word frequencies alone 2.000) after 128 tokens"


def test_the_validation_loss_does_not_depend_on_how_rows_are_batched(blocks, tmp_path):
    """Short documents alone in their blocks: rows with few labels, which must not count as much as those with many."""
    text = blocks.parent / "text.txt"
    prepare(
        text, blocks.parent / "tokenizer", tmp_path / "padded", 16, valid_fraction=0.2, workers=1, span_documents=False
    )
    losses = []
    for rows in (8, 2, 1):
        plain = ["data.span_documents=false", "model.hidden_dropout=0", "model.attention_dropout=0"]
        recipe = tiny("training.steps=1", f"training.per_device={rows}", *plain)
        losses.append(pretrain(recipe, tmp_path / "padded", tmp_path / str(rows))["validation_loss"])
    assert losses == pytest.approx([losses[0]] * 3, abs=2e-6)


def test_a_block_without_labels_takes_no_part_in_a_step(blocks, tmp_path):
    """Unknown words are never hidden: alone in a batch they have no loss, which must not make the step's no number."""
    documents = blocks.parent.joinpath("text.txt").read_text().split("\n\n")[:60]
    for place in range(0, 60, 3):
        documents.insert(place, "☃ ☂")
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    arguments = {"valid_fraction": 0.1, "workers": 1, "span_documents": False}
    prepare(tmp_path / "text.txt", blocks.parent / "tokenizer", tmp_path / "blocks", 16, **arguments)
    losses = []
    for rows in (8, 1):
        plain = ["data.span_documents=false", "model.hidden_dropout=0", "model.attention_dropout=0"]
        recipe = tiny("training.steps=6", f"training.per_device={rows}", *plain)
        losses.append(pretrain(recipe, tmp_path / "blocks", tmp_path / str(rows))["train_loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


@pytest.mark.parametrize(("steps", "warmup"), [(20, 0), (20, 0.05), (3, 0.05), (2, 0.05), (1, 0.05)])
def test_one_cycle_may_begin_at_its_top(steps, warmup, blocks, tmp_path):
    over = ["optimizer.schedule=one-cycle", f"optimizer.warmup={warmup}", f"training.steps={steps}"]
    assert math.isfinite(pretrain(tiny(*over), blocks, tmp_path / "run")["validation_loss"])


def test_a_second_process_in_the_same_run_is_refused(blocks, tmp_path, monkeypatch):
    """Whoever is at work has the folder; afterwards anyone may have it."""
    run, seen = tmp_path / "run", []
    before = RunMetrics.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        before(self, args, state, control, **kwargs)
        if state.global_step == 3:
            seen.append(subprocess.run(command(blocks, run), env=environment(), capture_output=True, text=True))

    monkeypatch.setattr(RunMetrics, "on_step_end", on_step_end)
    assert "validation_loss" in pretrain(tiny(), blocks, run)
    assert seen[0].returncode == 2
    assert seen[0].stderr.startswith(f"triune: error: another process is at work in '{run}'")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_a_recipe_says_of_itself_does_not_part_it_from_its_run(half_way, undisturbed, blocks):
    pretrain(replace(tiny(), about="in other words"), blocks, half_way)
    assert_same_weights(half_way, undisturbed)


def test_signals_are_as_before_however_a_run_ends(half_way, blocks, tmp_path):
    """`half_way` was interrupted; in another thread nobody hears signals, and a run needs none."""
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    results = []
    recipe = tiny("training.steps=2")
    pretrain(recipe, blocks, tmp_path / "whole")
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == before
    thread = threading.Thread(target=lambda: results.append(pretrain(recipe, blocks, tmp_path / "threaded")))
    thread.start()
    thread.join()
    assert results[0]["steps"] == 2


def test_what_cannot_be_shared_leaves_no_run_folder(blocks, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(TriuneError, match="cannot be shared by 3 devices evenly"):
        pretrain(tiny(), blocks, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_was_killed_while_it_was_opened_is_taken(blocks, tmp_path):
    (tmp_path / ".run.json.1234").write_text("{")  # half of it
    run_folder.open_run(tmp_path, tiny(), {})
    (tmp_path / "recipe.yaml").unlink()
    run_folder.open_run(tmp_path, tiny(), {})
    assert load_recipe(str(tmp_path / "recipe.yaml")).to_dict() == tiny().to_dict()


def test_names_of_runs_are_said_as_they_are(blocks, tmp_path):
    run = tmp_path / ("a-long-name-" * 10) / "m[/x][bold]"
    for _ in range(2):
        lines = io.StringIO()
        pretrain(tiny("training.steps=1"), blocks, run, console=Console(file=lines, width=40, force_terminal=True))
    assert f"{run}: finished already, nothing to do" in lines.getvalue()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_log_tells_at_times_how_far_a_long_run_is(is_terminal, tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr("triune.training.callbacks.time.perf_counter", lambda: now)
    lines = io.StringIO()
    run = tmp_path / "m[/x]"
    run.mkdir(parents=True)
    metrics = RunMetrics(run, tokens_a_step=10, console=Console(file=lines, force_terminal=is_terminal, width=40))
    metrics.begin([{"step": 1000, "elapsed": 240.0}])  # before a restart: nothing is said at once for that
    state = TrainerState(max_steps=1009, is_world_process_zero=True)
    for step in range(1001, 1010):  # 25 seconds each; the end is said by whoever asked for the run
        now += 25.0
        state.global_step = step
        metrics.on_log(None, state, None, {"eval_loss": step / 1000})
    said = [line for line in lines.getvalue().splitlines() if "validation loss" in line]
    expected = [
        f"{run}: step 1,003 of 1,009 after 5 min, validation loss 1.003",
        f"{run}: step 1,006 of 1,009 after 6 min, validation loss 1.006",
    ]
    assert said == ([] if is_terminal else expected)


def test_speed_leaves_out_evaluation_saving_and_the_first_steps(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr("triune.training.callbacks.time.perf_counter", lambda: now)
    metrics = RunMetrics(tmp_path, tokens_a_step=10, console=Console(quiet=True))
    state, args = TrainerState(max_steps=4), SimpleNamespace(device=torch.device("cpu"))
    metrics.on_train_begin(args, state, None)
    for step, seconds in enumerate((100.0, 1.0, 1.0, 1.0), start=1):
        metrics.on_step_begin(args, state, None)
        now += seconds
        state.global_step = step
        metrics.on_log(args, state, None, {"loss": 1.0, "learning_rate": 1.0})
        now += 50.0
        (metrics.on_evaluate if step % 2 else metrics.on_save)(args, state, None)
    metrics.on_train_end(args, state, None)
    assert metrics.rates == [0.1, 10.0, 10.0, 10.0]
    assert metrics.tokens_per_second() == 10.0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_saves_and_exits_cleanly(name, undisturbed, blocks, tmp_path):
    plugin = tmp_path / "terminator.py"
    # As in a terminal, where these tests run in a shell's background too, which has SIGINT ignored.
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    plugin.write_text(KILLER.replace("SIGKILL", name) + heard)
    stopped = subprocess.run(
        command(blocks, tmp_path / "run", plugin=plugin),
        env=environment() | {"KILL_AT": "8", "KILL_WHERE": "step"},
        capture_output=True,
        text=True,
    )
    assert stopped.returncode == 0, stopped.stderr
    assert "stopped at step 8 of 24 and saved" in " ".join(stopped.stderr.split())
    assert checkpoints.checkpoints(tmp_path / "run")[-1].name == "checkpoint-8"
    pretrain(tiny(), blocks, tmp_path / "run")
    assert_same_weights(tmp_path / "run", undisturbed)


@pytest.fixture
def half_way(blocks, tmp_path, monkeypatch):
    """A run that stopped after step 12, with checkpoints 5 and 10."""
    from triune.training.callbacks import RunMetrics

    run, before = tmp_path / "run", RunMetrics.on_step_end

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 12:
            raise KeyboardInterrupt
        before(self, args, state, control, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(RunMetrics, "on_step_end", on_step_end)
        with pytest.raises(KeyboardInterrupt):
            pretrain(tiny(), blocks, run)
    assert [path.name for path in checkpoints.checkpoints(run)] == ["checkpoint-5", "checkpoint-10"]
    return run


def test_tied_weights_are_not_said_to_be_missing(half_way, blocks, caplog):
    pretrain(tiny(), blocks, half_way)
    assert "missing keys" not in caplog.text


@pytest.mark.parametrize(
    "file", ["model.safetensors", "optimizer.pt", "rng_state.pth", "trainer_state.json", "seal.json"]
)
def test_torn_checkpoint_is_reported_and_the_one_before_is_used(file, half_way, undisturbed, blocks, capfd):
    torn = half_way / "checkpoint-10" / file
    torn.write_bytes(torn.read_bytes()[:-7])
    pretrain(tiny(), blocks, half_way)
    said = " ".join(capfd.readouterr().err.split())
    assert "checkpoint-10 is damaged" in said
    assert "going on from checkpoint-5" in said
    assert_same_weights(half_way, undisturbed)


def test_every_checkpoint_damaged_is_an_error(half_way, blocks):
    for checkpoint in checkpoints.checkpoints(half_way):
        (checkpoint / "optimizer.pt").unlink()
    with pytest.raises(TriuneError, match=r"every checkpoint is damaged \(optimizer.pt is missing in checkpoint-10"):
        pretrain(tiny(), blocks, half_way)


def test_full_disk_keeps_the_last_checkpoint(half_way, undisturbed, blocks, monkeypatch):
    """ENOSPC while the checkpoint is being written: one line, nothing half-written, and the run can go on."""
    from triune.training.trainer import PretrainingTrainer

    def full(self, folder):
        (Path(folder) / "rng_state.pth").write_bytes(b"half")
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(PretrainingTrainer, "_save_rng_state", full)
        with pytest.raises(TriuneError, match="No space left on device; the last good checkpoint is checkpoint-10"):
            pretrain(tiny(), blocks, half_way)
    assert sorted(path.name for path in half_way.iterdir() if path.is_dir()) == ["checkpoint-10", "checkpoint-5"]
    assert all(checkpoints.damage(checkpoint) is None for checkpoint in checkpoints.checkpoints(half_way))
    pretrain(tiny(), blocks, half_way)
    assert_same_weights(half_way, undisturbed)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting a small file system needs root")
def test_full_disk_for_real(blocks, tmp_path):
    """On a file system of 3 MB, checkpoints of a larger model do not fit; what is there stays loadable."""
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1400k", "tmpfs", str(small)], capture_output=True
    ).returncode:
        pytest.skip("cannot mount a small file system here")
    try:
        sizes = ["model.width=64", "model.feed_forward=64", "training.checkpoints_kept=9"]
        result = subprocess.run(
            command(blocks, small / "run", *sizes), env=environment(), capture_output=True, text=True
        )
        assert result.returncode == 2, result.stderr
        assert "the last good checkpoint is checkpoint-" in result.stderr
        assert "Traceback" not in result.stderr
        kept = checkpoints.checkpoints(small / "run")
        assert kept
        assert all(checkpoints.damage(checkpoint) is None for checkpoint in kept)
        AutoModelForMaskedLM.from_pretrained(kept[-1])
    finally:
        subprocess.run(["umount", str(small)], check=True)


LIMITED = """
import resource, sys
from triune.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
sys.exit(main())
"""


def test_weights_that_cannot_be_written_are_one_line(blocks, tmp_path):
    """At the end of a run, and of a model that is folded: safetensors has an error of its own for it."""
    sizes = ["model.width=64", "training.steps=2", "training.checkpoint_every=100"]
    limited = ["-c", LIMITED]
    result = subprocess.run(
        command(blocks, tmp_path / "run", *sizes, launcher=limited), env=environment(), capture_output=True, text=True
    )
    assert result.returncode == 2, result.stderr
    assert "cannot write" in result.stderr
    assert "Traceback" not in result.stderr
    assert not [path.name for path in (tmp_path / "run").iterdir() if path.is_dir()]
    pretrain(tiny(*sizes), blocks, tmp_path / "run")
    folded = [sys.executable, *limited, "fold", str(tmp_path / "run" / "model"), str(tmp_path / "folded")]
    result = subprocess.run(folded, env=environment(), capture_output=True, text=True)
    assert result.returncode == 2, result.stderr
    assert "nothing was left there" in result.stderr
    assert not (tmp_path / "folded").exists()


def test_loss_that_is_no_number_stops_and_names_the_checkpoint(blocks, tmp_path, monkeypatch):
    from triune.training.trainer import PretrainingTrainer

    before = PretrainingTrainer.compute_loss

    def compute_loss(self, model, inputs, **kwargs):
        loss = before(self, model, inputs, **kwargs)
        return loss * float("nan") if model.training and self.state.global_step >= 7 else loss

    monkeypatch.setattr(PretrainingTrainer, "compute_loss", compute_loss)
    with pytest.raises(TriuneError, match=r"stopped at step 8: the loss is not a finite number.*checkpoint-5"):
        pretrain(tiny(), blocks, tmp_path / "run")
    assert [path.name for path in checkpoints.checkpoints(tmp_path / "run")] == ["checkpoint-5"]


def test_another_recipe_does_not_go_on_in_the_same_folder(half_way, blocks):
    with pytest.raises(TriuneError, match=r"training\.seed is 1 there and 2 here"):
        pretrain(tiny("training.seed=2"), blocks, half_way)


def test_an_edited_operator_does_not_go_on_in_the_same_folder(blocks, tmp_path):
    """Finished or not: what is there is of the operator before."""
    plugin, few = tmp_path / "mine.py", ["model.operator=rolled-run", "training.steps=2"]
    plugin.write_text(PLUGIN.replace("rolled-test", "rolled-run"))
    start = command(blocks, tmp_path / "run", *few, plugin=plugin)

    def run():
        return subprocess.run(start, env=environment(), capture_output=True, text=True)

    assert run().returncode == 0
    assert "finished already" in run().stderr
    plugin.write_text(plugin.read_text().replace("roll(1", "roll(2"))
    again = run()
    assert again.returncode == 2
    assert "the source of the operator 'rolled-run' differs from what it was there" in again.stderr
    assert "finished already" not in again.stderr


def test_a_run_from_before_a_default_changed_is_not_gone_on_with(half_way, blocks):
    """A recipe that leaves the start open, with weights that started elsewhere: neither one model nor the other."""
    written = json.loads((half_way / "run.json").read_text())
    assert written["recipe"]["model"]["operator_settings"] == {"role_start": "halves"}
    written["recipe"]["model"]["operator_settings"] = {}  # as it was written when this was what ones are
    (half_way / "run.json").write_text(json.dumps(written))
    with pytest.raises(TriuneError, match="role_start is None there and halves here"):
        pretrain(tiny(), blocks, half_way)


def test_the_identity_of_published_records_stays(monkeypatch):
    recipe = recipe_from_dict({"training": {"steps": 1}}, "here")
    identity = run_folder.identity_of(recipe, {"train.tokens.bin": "abc"})
    assert identity == "24d394bde378cb90a63f272a"
    monkeypatch.setattr(operators.get("shared"), "source_sha256", "of somebody's file")
    assert run_folder.identity_of(recipe, {"train.tokens.bin": "abc"}) != identity


def test_a_file_in_the_place_of_a_run_folder(blocks, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TriuneError, match="is a file, not a folder"):
        pretrain(tiny(), blocks, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_is_no_run(blocks, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(TriuneError, match="exists and is not a run folder"):
        pretrain(tiny(), blocks, tmp_path)


def test_data_of_another_length(blocks, tmp_path):
    with pytest.raises(TriuneError, match="prepared with block_length 16, the recipe asks for 32"):
        pretrain(tiny("data.block_length=32"), blocks, tmp_path / "run")


def test_too_little_text(blocks, tmp_path):
    with pytest.raises(TriuneError, match="fewer than one step"):
        pretrain(tiny("training.epochs=0.001"), blocks, tmp_path / "run")


def test_accumulation_is_one_batch(blocks, tmp_path):
    """The same sequences in one go and in four: the same losses, but for rounding."""
    exact = ["model.hidden_dropout=0.0", "model.attention_dropout=0.0"]
    pretrain(tiny(*exact), blocks, tmp_path / "whole")
    pretrain(tiny(*exact, "training.per_device=2"), blocks, tmp_path / "parts")
    whole, parts = (
        [row["loss"] for row in run_folder.metrics_of(tmp_path / name) if "loss" in row] for name in ("whole", "parts")
    )
    assert whole == pytest.approx(parts, abs=1e-4)


def test_two_processes_are_one(blocks, tmp_path):
    """torchrun with gloo on this machine: the loss curve of one process with the same number of sequences."""
    # Blocks of validation that two cannot share evenly: one of them gets some twice.
    exact = ["model.hidden_dropout=0.0", "model.attention_dropout=0.0", "training.evaluate_blocks=13"]
    pretrain(tiny(*exact), blocks, tmp_path / "one")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "triune.cli"]
    result = subprocess.run(
        command(blocks, tmp_path / "two", *exact, launcher=launcher), env=environment(), capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "(2 × 4)" in result.stderr
    assert result.stdout.count("validation loss") == 1
    curves = []
    for name in ("one", "two"):
        rows = run_folder.metrics_of(tmp_path / name)
        curves.append([row.get("loss", row.get("validation_loss")) for row in rows])
    assert len(curves[0]) == 16
    assert curves[0] == pytest.approx(curves[1], abs=1e-4)
    ends = [run_folder.summary_of(tmp_path / name)["validation_loss"] for name in ("one", "two")]
    assert ends[0] == pytest.approx(ends[1], abs=1e-5)


FSDP = """
distributed_type: FSDP
num_machines: 1
num_processes: 1
mixed_precision: 'no'
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: TriuneLayer
  fsdp_state_dict_type: FULL_STATE_DICT
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="Accelerate runs FSDP on accelerators only")
def test_sharded_parameters_train_stop_and_go_on(blocks, tmp_path):
    """accelerate launch with FSDP: the losses of a plain run, also after a kill, and a model that loads."""
    exact = ["model.hidden_dropout=0.0", "model.attention_dropout=0.0"]
    pretrain(tiny(*exact), blocks, tmp_path / "plain")
    (tmp_path / "fsdp.yaml").write_text(FSDP)
    (tmp_path / "killer.py").write_text(KILLER)
    launcher = ["-m", "accelerate.commands.launch", "--config_file", str(tmp_path / "fsdp.yaml"), "-m", "triune.cli"]
    sharded = command(blocks, tmp_path / "sharded", *exact, plugin=tmp_path / "killer.py", launcher=launcher)
    for when, status in ((13, 1), (1000, 0)):
        kill = {"KILL_AT": str(when), "KILL_WHERE": "step"}
        result = subprocess.run(sharded, env=environment() | kill, capture_output=True, text=True)
        assert result.returncode == status, result.stderr[-2000:]
    assert "going on from checkpoint-10" in result.stderr
    losses = [
        [row["loss"] for row in run_folder.metrics_of(tmp_path / name) if "loss" in row]
        for name in ("plain", "sharded")
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    AutoModelForMaskedLM.from_pretrained(tmp_path / "sharded" / "model")


def test_reports_to_tensorboard(blocks, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    pretrain(tiny("training.steps=4", "training.evaluate_every=4"), blocks, tmp_path / "run", report_to="tensorboard")
    events = EventAccumulator(str(next((tmp_path / "run" / "runs").iterdir()))).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [2, 4]
    assert [event.step for event in events.Scalars("eval/loss")] == [4]


def test_a_reporter_that_is_not_there_is_one_line(blocks, tmp_path):
    with pytest.raises(TriuneError, match=r"unknown reporter 'tensorbored'.*tensorboard"):
        pretrain(tiny(), blocks, tmp_path / "run", report_to="tensorbored")
    assert not (tmp_path / "run").exists()


def test_attention_stays_inside_documents_where_asked(blocks, tmp_path):
    """With cross_documents off, changing one document of a block changes nothing in another."""
    from triune.data.blocks import Blocks
    from triune.training.pretrain import model_config
    from triune.training.trainer import PretrainingTrainer

    recipe = tiny("data.cross_documents=false")
    train = Blocks(blocks, "train")
    row = next(i for i in range(len(train)) if train[i]["segments"].max() > 1)
    batch = train.batch([row])
    from triune import TriuneForMaskedLM

    model = TriuneForMaskedLM(model_config(recipe, train)).eval()
    mask = PretrainingTrainer._attention_mask(type("T", (), {"recipe": recipe})(), batch)
    changed = batch["input_ids"].clone()
    changed[batch["segments"] == 1] = 9
    inside = (batch["segments"] == 2)[0]
    with torch.no_grad():
        one, other = (model(ids, attention_mask=mask).logits[0, inside] for ids in (batch["input_ids"], changed))
        torch.testing.assert_close(one, other)
        leaky = [model(ids).logits[0, inside] for ids in (batch["input_ids"], changed)]
    assert (leaky[0] - leaky[1]).abs().max() > 1e-4


def test_decay_spares_biases_norms_and_role_vectors(blocks):
    from triune import TriuneForMaskedLM
    from triune.data.blocks import Blocks
    from triune.training.pretrain import model_config
    from triune.training.trainer import PretrainingTrainer

    for operator in ("shared", "pairwise"):
        model = TriuneForMaskedLM(model_config(tiny(f"model.operator={operator}"), Blocks(blocks, "train")))
        decayed = set(PretrainingTrainer.get_decay_parameter_names(None, model))
        spared = {name for name, _ in model.named_parameters()} - decayed
        assert all("LayerNorm" in name or "norm" in name or "bias" in name or "_scale" in name for name in spared)
        assert not any("bias" in name or "norm" in name.lower() or "_scale" in name for name in decayed)
        assert any("pair_NDD" in name for name in decayed) == (operator == "pairwise")


def test_curves_of_several_runs(undisturbed, tmp_path):
    from triune.report.curves import draw_curves

    draw_curves([undisturbed, undisturbed], tmp_path / "a.svg")
    draw_curves([undisturbed, undisturbed], tmp_path / "b.svg")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "tokens seen" in text or "<path" in text
    with pytest.raises(TriuneError, match="not a run folder"):
        draw_curves([tmp_path], tmp_path / "c.svg")
    with pytest.raises(TriuneError, match="svg"):
        draw_curves([undisturbed], tmp_path / "c.bmp")
