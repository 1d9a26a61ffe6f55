"""What a process of a pre-training computes on: one GPU. Several share a run as processes of torchrun or accelerate."""

import os
from functools import cached_property

import torch
from transformers import TrainingArguments

from triune.cells import worker_device


def process_count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_device() -> torch.device:
    """As accelerate gives a GPU to each process of a run, and studies give one to each of their workers."""
    rank = os.environ.get("LOCAL_RANK")
    if rank is None or not torch.cuda.is_available():
        return worker_device()
    return torch.device("cuda", int(rank) % torch.cuda.device_count())


def gpus_left_out() -> int:
    return 0 if "LOCAL_RANK" in os.environ else max(0, torch.cuda.device_count() - 1)


class OneGpuArguments(TrainingArguments):
    """Transformers would take the first GPU, whichever a worker has, and spread each batch over all others.

    With that (DataParallel) a step would have a recipe's number of sequences for each GPU, and not for all together.
    """

    @cached_property
    def _setup_devices(self) -> torch.device:
        device: torch.device = super()._setup_devices
        if device.type != "cuda" or "LOCAL_RANK" in os.environ:
            return device
        self._n_gpu = 1
        return process_device()
