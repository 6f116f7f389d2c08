"""Tests that targets of torch_collectives.py are met only if the whole interval is on the required side."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

MIB = 16 << 20
PLAIN = "plain gloo"


def benchmark(name: str) -> Any:
    directory = str(Path(__file__).resolve().parents[2] / "benchmarks")
    sys.path.insert(0, directory)
    try:
        return import_module(name)
    finally:
        sys.path.remove(directory)


@pytest.fixture(scope="module")
def targets() -> Any:
    return benchmark("torch_targets").targets


@pytest.fixture(scope="module")
def torch_collectives() -> Any:
    return benchmark("torch_collectives")


def rows(rate: str, call: str, nbytes: int, **seconds: list[float]) -> list[dict[str, Any]]:
    modes = {"plain": PLAIN, "auto": "auto int8"}
    return [
        {"rate": rate, "call": call, "bytes": nbytes, "mode": modes.get(mode, mode), "seconds": times}
        for mode, times in seconds.items()
    ]


@pytest.mark.parametrize(
    ("times", "phrase"),
    [
        ([0.95, 0.96, 0.94], "met"),
        ([1.05, 1.06, 1.05], "not met"),
        ([0.5, 2.0, 1.0], "not decided"),
        ([1.0], "not decided by one repeat"),
    ],
)
def test_a_target_needs_the_whole_interval(targets: Any, times: list[float], phrase: str) -> None:
    plain = [1.4 * 1.02] * len(times)
    (line,) = targets(rows("none", "all-reduce", MIB, plain=plain, int8=times))
    assert line.endswith(f"(at least 1.4): {phrase}"), line


@pytest.mark.parametrize(
    ("more", "phrase"),
    [([1e-5, 1.1e-5, 1.2e-5], "met"), ([3e-5, 3.1e-5, 3e-5], "not met"), ([1e-5, 4e-5, 2e-5], "not decided")],
)
def test_the_cost_of_a_call_is_paired_and_has_an_interval(targets: Any, more: list[float], phrase: str) -> None:
    plain = [1e-4, 2e-4, 3e-4]  # of a machine that becomes slower: the minima would come from different repeats
    interposed = [a + b for a, b in zip(plain, more, strict=True)]
    (line,) = targets(rows("none", "call of one rank", 4, plain=plain, interposed=interposed))
    assert "[" in line and line.endswith(f"more (at most 20): {phrase}"), line


def test_what_any_kernel_in_python_costs_stands_beside_it(targets: Any) -> None:
    alone = {PLAIN: [1e-6, 2e-6], "interposed": [21e-6, 22e-6], "handed on": [13e-6, 14e-6]}
    result = [
        {"rate": "none", "call": "call of one rank", "bytes": 4, "mode": m, "seconds": s} for m, s in alone.items()
    ]
    lines = targets(result)
    assert lines[0].startswith("a plain call costs 20.0 us") and lines[1].startswith("a kernel in Python that")
    assert "costs 12.0 us" in lines[1]


def test_the_slowest_is_judged_by_all_rows_and_not_by_one(targets: Any) -> None:
    good = rows("none", "all-reduce", 4096, plain=[1.0, 1.0, 1.0], auto=[1.01, 1.02, 1.01])
    wide = rows("none", "all-gather", 4096, plain=[1.0, 1.0, 1.0], auto=[0.8, 1.0, 1.2])
    bad = rows("1gbit", "all-gather", 4096, plain=[1.0, 1.0, 1.0], auto=[1.1, 1.11, 1.1])
    assert targets(good)[-1].endswith("(each at least 0.97): met")
    assert targets(good + wide)[-1].endswith("all-reduce of 4096 B at none (each at least 0.97): not decided")
    assert "the slowest of 3 with auto: 0.91 x" in targets(good + wide + bad)[-1]
    assert targets(good + wide + bad)[-1].endswith("all-gather of 4096 B at 1gbit (each at least 0.97): not met")


@pytest.mark.parametrize(("count", "taken"), [(2, 2.0), (0, 0.0)])
def test_a_rank_that_only_waits_has_no_time_of_a_call(
    torch_collectives: Any, monkeypatch: pytest.MonkeyPatch, count: int, taken: float
) -> None:
    """The slowest rank determines the time.

    A rank that was descheduled for 4 s and made no calls must not count as the slowest.
    """
    clock = iter([1.0, 5.0])
    monkeypatch.setattr(torch_collectives.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(torch_collectives.dist, "barrier", lambda: None)
    monkeypatch.setattr(torch_collectives.dist, "all_reduce", lambda *_: None)
    assert torch_collectives.seconds(lambda: None, count) == taken
