"""Tests of losses at equal wall-clock time, compared with values computed by hand."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcbench.collect.run_log import RunLog
from hpcbench.contract.events import Start
from hpcbench.contract.step_line import Step
from hpcbench.report.curves import find_losses_at_equal_time, read_curve


def log(seconds: Sequence[float | None], losses: Sequence[float | None], first: int = 1, each: int = 1) -> RunLog:
    run_log = RunLog(Path("log.txt"))
    for k, (time, loss) in enumerate(zip(seconds, losses, strict=True)):
        run_log.steps.add(Step(first + k * each, 100, line=k + 1, loss=loss, seconds=time))
    return run_log


def falling(n: int) -> list[float]:
    return [10.0 - k for k in range(n)]


def test_the_time_of_the_faster_run_is_when_losses_are_taken() -> None:
    # The slower run has completed 2 of its 4 steps when the faster one has completed all: losses 9 and 7.
    slow, fast = log([2.0] * 4, falling(4)), log([1.0] * 4, falling(4))
    assert find_losses_at_equal_time(read_curve(slow), read_curve(fast)) == (9.0, 7.0)
    assert find_losses_at_equal_time(read_curve(fast), read_curve(slow)) == (7.0, 9.0)


def test_the_warm_up_takes_time_like_any_step() -> None:
    warm, cold = log([1.0] * 4, falling(4)), log([3.0, 1.0, 1.0, 1.0], falling(4))
    assert find_losses_at_equal_time(read_curve(cold), read_curve(warm)) == (9.0, 7.0)


def test_losses_are_means_of_a_twentieth_of_the_steps() -> None:
    our_curve = read_curve(log([1.0] * 40, [float(k) for k in range(40)]))
    other = read_curve(log([2.0] * 40, [float(k) for k in range(40)]))
    assert find_losses_at_equal_time(our_curve, other) == (38.5, 18.5)


def test_a_line_for_ten_steps_stands_for_ten() -> None:
    sparse, dense = log([1.0] * 4, falling(4), first=10, each=10), log([2.0] * 40, [5.0] * 40)
    # 40 seconds: all of the sparse run, 20 steps of the other
    assert find_losses_at_equal_time(read_curve(sparse), read_curve(dense)) == (7.0, 5.0)


def resumed() -> RunLog:
    run_log = log([1.0] * 4, falling(4))
    run_log.events.append(Start.read({"resumed_from": 2}, line=1))
    return run_log


@pytest.mark.parametrize(
    "unknown",
    [
        None,
        log([], []),
        log([1.0, None, 1.0], falling(3)),
        log([1.0] * 3, [3.0, None, 2.0]),
        log([1.0] * 3, falling(3), first=2),
        log([1.0, 0.0, 1.0], falling(3)),
        log([1.0, math.nan, 1.0], falling(3)),
        log([1.0, math.inf, 1.0], falling(3)),
        log([1.0] * 3, falling(3), first=0),
        log([1.0] * 3, falling(3), first=3, each=-1),
        resumed(),
    ],
)
def test_runs_whose_time_is_not_known_have_no_curve(unknown: RunLog | None) -> None:
    assert read_curve(unknown) is None
    assert find_losses_at_equal_time(read_curve(unknown), read_curve(log([1.0], [2.0]))) == (None, None)


def test_a_run_that_had_hardly_begun_is_not_compared() -> None:
    crawl, fast = log([100.0] * 4, falling(4)), log([1.0] * 4, falling(4))
    assert find_losses_at_equal_time(read_curve(crawl), read_curve(fast)) == (None, 7.0)


def test_losses_that_are_no_numbers_are_not_averaged() -> None:
    broken = read_curve(log([1.0] * 4, [9.0, 8.0, 7.0, math.nan]))
    assert find_losses_at_equal_time(broken, read_curve(log([1.0] * 4, falling(4)))) == (None, 7.0)
