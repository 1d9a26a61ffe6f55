"""A benchmark that is stopped leaves nothing behind."""

import os
import signal

import pytest

from triune import files
from triune.benchmarks import inference

GIVEN = ["bench", "inference", "--size", "tiny", "--batches", "1", "--lengths", "8", "--repeats", 1]
SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(autouse=True)
def interrupts_are_heard():
    """As in a terminal, where these tests run in a shell's background too, which has SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def stopped_by(number):
    def stop(*_, **__):
        os.kill(os.getpid(), number)

    return stop


@pytest.mark.parametrize("number", SIGNALS)
def test_while_it_measures(number, command, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(inference, "take_turns", stopped_by(number))
    result = command(*GIVEN, "--out", tmp_path / "out")
    assert result.returncode == 128 + number
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("number", SIGNALS)
def test_while_it_writes(number, command, tmp_path, monkeypatch):
    (tmp_path / "inference.json").write_text("of an earlier run")
    monkeypatch.setattr(files.os, "fsync", stopped_by(number))
    result = command(*GIVEN, "--out", tmp_path)
    assert result.returncode == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == ["inference.json"]
    assert (tmp_path / "inference.json").read_text() == "of an earlier run"
