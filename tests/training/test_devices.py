"""Machines with several GPUs, as far as one without any can tell: what each process would take."""

import pytest
import torch
from transformers.training_args import ParallelMode

from tests.training.conftest import TINY
from triune import cells
from triune.training import devices, pretrain
from triune.training.pretraining_cell import pretraining_cell
from triune.training.recipe import load_recipe


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(str(device)))
    monkeypatch.setattr(cells, "_worker_number", 0)
    return chosen


class ReachedError(Exception):
    pass


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_a_worker_trains_on_a_gpu_of_its_own_and_on_no_other(worker, two_gpus, blocks, tmp_path, monkeypatch):
    """A step has as many sequences as its recipe says, which DataParallel would give to each GPU."""
    tried, trained = [], []

    def trainer(args, **_):
        trained.append(args)
        raise ReachedError

    monkeypatch.setattr(pretrain, "check_model", lambda config, device: tried.append(str(device)))
    monkeypatch.setattr(pretrain, "PretrainingTrainer", trainer)
    recipe = load_recipe("pocket", TINY)
    with pytest.raises(ReachedError):
        cells._run_with(worker, 1, pretraining_cell("a cell", recipe, blocks, tmp_path / "run"))
    [args] = trained
    own = f"cuda:{worker % 2}"
    assert tried == [own]
    assert str(args.device) == own
    assert two_gpus[-1] == own  # what accelerate calls "cuda"
    assert (args.n_gpu, args.parallel_mode) == (1, ParallelMode.NOT_PARALLEL)
    assert args.train_batch_size == 8


@pytest.mark.parametrize(("rank", "device"), [("0", "cuda:0"), ("1", "cuda:1"), ("3", "cuda:1")])
def test_under_torchrun_a_process_has_the_gpu_of_its_rank(rank, device, two_gpus, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", rank)
    assert str(devices.process_device()) == device
    assert devices.gpus_left_out() == 0


def test_gpus_that_nobody_uses_are_told_of(two_gpus):
    assert devices.gpus_left_out() == 1
