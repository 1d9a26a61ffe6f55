"""Turns, failures and reasons."""

import re
import warnings

import pytest
import torch

from triune.benchmarks import tables, timing
from triune.benchmarks.ceilings import Ceilings
from triune.benchmarks.record import add_ratios, result_of
from triune.benchmarks.roofline import draw_roofline
from triune.benchmarks.timing import Entry, best_seconds, only, take_turns, warm_up
from triune.errors import TriuneError
from triune.kernels.one_tensor.call import LAUNCHED

CPU = torch.device("cpu")


def noted(name, notes):
    return Entry(name, lambda: lambda: notes.append(name))


def test_every_round_begins_with_another(monkeypatch):
    monkeypatch.setattr(timing, "SPAN", 0.0)  # one call a sample
    notes: list[str] = []
    entries = [noted(name, notes) for name in "abc"]
    warm_up(entries, CPU)
    assert notes == [*"aaa", *"bbb", *"ccc"]
    notes.clear()
    take_turns(entries, 3, CPU)
    # in the first round each is called once more, to see how many calls a sample needs
    assert "".join(notes) == "aabbcc" + "bca" + "cab"
    assert [len(entry.seconds) for entry in entries] == [3, 3, 3]


def test_short_calls_are_timed_several_at_once():
    notes: list[str] = []
    entry = noted("a", notes)
    warm_up([entry], CPU)
    notes.clear()
    take_turns([entry], 2, CPU)
    assert len(notes) == 1 + 2 * timing.MOST_CALLS
    assert len(entry.seconds) == 2


def test_one_that_cannot_be_made_stops_no_other():
    def make():
        raise RuntimeError("CUDA out of memory.\n  Tried to allocate 9 GiB")

    notes: list[str] = []
    broken, whole = Entry("broken", make), noted("whole", notes)
    warm_up([broken, whole], CPU)
    take_turns([broken, whole], 2, CPU)
    assert broken.failed == "CUDA out of memory. Tried to allocate 9 GiB"
    assert (broken.run, broken.seconds) == (None, [])
    assert (whole.failed, len(whole.seconds)) == (None, 2)


def test_one_that_fails_later_has_no_times():
    calls: list[int] = []

    def run():
        calls.append(0)
        if len(calls) > 1 + timing.WARM_CALLS:
            raise RuntimeError("later")

    entry = Entry("late", lambda: run)
    warm_up([entry], CPU)
    assert entry.failed is None
    take_turns([entry], 2, CPU)
    assert (entry.failed, entry.seconds) == ("later", [])


def test_a_backend_says_why_in_warnings():
    def run():
        warnings.warn("Flash attention kernel not used because: (Triggered internally at x.cpp:1)", stacklevel=1)
        warnings.warn("Flash Attention does not support masks. (Triggered internally at x.cpp:2)", stacklevel=1)
        warnings.warn("Memory Efficient attention has been runtime disabled. (Triggered internally)", stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.")

    entry = Entry("flash", lambda: run)
    warm_up([entry], CPU)
    assert entry.failed == "Flash Attention does not support masks."


def test_a_long_reason_is_cut():
    entry = Entry("x", lambda: (_ for _ in ()).throw(RuntimeError("a" * 1000)))
    warm_up([entry], CPU)
    assert len(entry.failed) == timing.LONGEST_REASON + 2


def test_each_says_when_it_is_warm(capsys):
    def make():
        assert "whole" in capsys.readouterr().err  # said before the next is made
        raise RuntimeError("no")

    warm_up([noted("whole", []), Entry("broken", make)], CPU, "4 × 8")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"not measured: 4 × 8, broken \(\d+\.\d s\)\n", printed.err)
    warm_up([noted("alone", [])], CPU)
    assert re.fullmatch(r"warm: alone \(\d+\.\d s\)\n", capsys.readouterr().err)


def test_one_that_times_itself_is_called_once_a_sample():
    notes: list[str] = []

    def make():
        notes.append("made")
        return lambda: notes.append("ran") or 7.0

    entry = Entry("itself", make, times_itself=True)
    warm_up([entry], CPU)
    assert notes == ["made"]
    take_turns([entry], 2, CPU)
    assert (notes, entry.seconds) == (["made", "ran", "ran"], [7.0, 7.0])
    assert entry.peak_bytes is None


def test_memory_of_one_that_times_itself_is_all_that_it_adds(monkeypatch):
    """With an allocator of our own, as on a GPU: what others hold does not count, nor what is used afterwards."""
    held = {"now": 0, "peak": 0}

    def hold(count):
        held["now"] += count
        held["peak"] = max(held["peak"], held["now"])

    def make(kept, for_a_while):
        hold(kept + for_a_while)
        hold(-for_a_while)
        return lambda: hold(10_000) or 1.0

    cuda = {"memory_allocated": lambda _: held["now"], "max_memory_allocated": lambda _: held["peak"]}
    cuda |= {"synchronize": lambda _: None, "empty_cache": lambda: None}
    cuda["reset_peak_memory_stats"] = lambda _: held.update(peak=held["now"])
    for name, does in cuda.items():
        monkeypatch.setattr(torch.cuda, name, does)
    sizes = {"a": (300, 50), "b": (100, 20)}
    entries = [Entry(name, lambda size=size: make(*size), times_itself=True) for name, size in sizes.items()]
    warm_up(entries, torch.device("cuda"))
    take_turns(entries, 2, torch.device("cuda"))
    assert [entry.peak_bytes for entry in entries] == [350, 120]


def test_only_some():
    notes: list[str] = []
    entries = [noted(name, notes) for name in ("theirs", "ours", "ours, faster", "other")]
    with only(["ours", "oth"]):
        warm_up(entries, CPU)
    assert [entry.name for entry in entries] == ["ours", "ours, faster", "other"]
    assert "theirs" not in notes
    again = [noted(name, notes) for name in ("theirs", "ours")]
    warm_up(again, CPU)
    assert len(again) == 2


def test_a_text_in_no_name_is_a_mistake():
    notes: list[str] = []
    reason = "no contestant's name contains 'our s': there are theirs; ours"
    with only(["theirs", "our s"]), pytest.raises(TriuneError, match=reason):
        warm_up([noted(name, notes) for name in ("theirs", "ours")], CPU)
    assert notes == []


def test_which_kernels_ran_is_in_the_record_and_beside_the_table():
    def make():
        LAUNCHED["hopper forward"] += 1
        return lambda: None

    LAUNCHED["of somebody else"] += 1
    entries = [Entry("ours", make), Entry("theirs", lambda: lambda: None)]
    warm_up(entries, CPU)
    assert entries[0].about == {"kernels": ["hopper forward"]}
    assert entries[1].about == {}
    results = [
        {"contestant": "ours", "shape": "1 × 128", "attention": "one-tensor", "reason": "so", **entries[0].about}
    ]
    assert tables._reasons(results) == [
        "attention one-tensor: so.",
        "one-tensor kernels of ours at 1 × 128: hopper forward.",
    ]


def test_best_of_several():
    assert best_seconds(lambda: None, CPU) >= 0


def test_shares_and_ratios_by_hand():
    ceilings = Ceilings(flops_per_second=100.0, bytes_per_second=10.0)
    made = {"theirs": [2.0, 4.0, 3.0], "fast": [1.5], "ours": [1.0, 1.0]}
    entries = {name: Entry(name, lambda: lambda: None, seconds=seconds) for name, seconds in made.items()}
    entries["ours"].peak_bytes, entries["fast"].peak_bytes, entries["theirs"].peak_bytes = 30, 90, 60
    broken = Entry("broken", lambda: lambda: None, failed="no")
    results = [result_of(entry, 150.0, 10.0, ceilings) for entry in [*entries.values(), broken]]
    add_ratios(results, ["theirs", "fast", "broken"])
    theirs, fast, ours, none = results
    assert (theirs["milliseconds"], theirs["spread"], theirs["quartiles"]) == (3000, [2000, 4000], [2500, 3500])
    assert (theirs["share_of_ceiling"], theirs["nearer_ceiling"]) == (0.5, "arithmetic")  # 1.5 s of 3 s
    assert ours["share_of_ceiling"] == 1.5
    assert [one["times_faster"] for one in (theirs, fast, ours)] == [0.5, 1.0, 1.5]
    assert [one["reference"] for one in (theirs, fast, ours)] == ["fast"] * 3
    assert [one["memory_ratio"] for one in (theirs, fast, ours)] == [1.0, 1.5, 0.5]
    assert "times_faster" not in none
    assert none["memory_ratio"] is None
    bound = result_of(entries["ours"], 10.0, 10.0, ceilings)
    assert (bound["share_of_ceiling"], bound["nearer_ceiling"]) == (1.0, "memory")


def test_a_figure_of_failures_alone_has_its_ceilings(tmp_path):
    failed = {"contestant": "a $x$", "operator": "shared", "failed": "no", "flops": 1.0, "bytes": 0.0, "shape": "8"}
    ran = {"device": "cpu", "versions": {"torch": "2"}}
    ceilings = {"flops_per_second": 1e12, "bytes_per_second": 1e10}
    draw_roofline({"benchmark": "step", "ran": ran, "ceilings": ceilings, "results": [failed]}, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 1000


def test_without_a_reference_there_is_no_ratio():
    entry = Entry("ours", lambda: lambda: None, seconds=[1.0])
    results = [result_of(entry, 1.0, 1.0, Ceilings(1.0, 1.0))]
    add_ratios(results, ["theirs"])
    assert results[0]["times_faster"] is None
    assert results[0]["milliseconds"] == pytest.approx(1000)
