"""Benchmarks at sizes that take milliseconds. Nothing here depends on how long anything takes."""

import pytest
import torch

from triune.kernels import one_tensor
from triune.kernels.one_tensor.reference import one_tensor_reference

ABSENT = "no CUDA device"


@pytest.fixture(autouse=True)
def _no_kernel(monkeypatch):
    """As on a machine without GPU, whatever this one has."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(one_tensor, "unsupported", lambda *situation: ABSENT, raising=False)


@pytest.fixture
def kernel(monkeypatch):
    """The reference in the kernel's place."""
    monkeypatch.setattr(one_tensor, "unsupported", lambda *situation: None, raising=False)
    monkeypatch.setattr(
        one_tensor, "attention", lambda *roles, dropout, **rest: one_tensor_reference(*roles, **rest), raising=False
    )


@pytest.fixture
def check_results():
    """What is true of the results of every benchmark that has ceilings."""

    def check(record):
        ceilings = record["ceilings"]
        for one in record["results"]:
            if one["failed"] is not None:
                assert "milliseconds" not in one
                continue
            (low, high), (first, third) = one["spread"], one["quartiles"]
            assert low <= first <= one["milliseconds"] <= third <= high
            seconds = one["milliseconds"] / 1e3
            assert one["flops_per_second"] == pytest.approx(one["flops"] / seconds)
            assert one["bytes_per_second"] == pytest.approx(one["bytes"] / seconds)
            shares = {
                "arithmetic": one["flops_per_second"] / ceilings["flops_per_second"],
                "memory": one["bytes_per_second"] / ceilings["bytes_per_second"],
            }
            assert one["nearer_ceiling"] == max(shares, key=shares.get)
            assert one["share_of_ceiling"] == pytest.approx(max(shares.values()))
        assert record["ran"]["device"] == "cpu"
        assert record["ran"]["versions"]["torch"] == torch.__version__

    return check
