"""Tests of the interval for the mean of a series: known series, and coverage for correlated steps."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.report.series import FEWEST, compute_series_interval
from hpcbench.report.statistics import Interval, mean_interval

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "series_interval.py"


def steps(rng: random.Random, n: int, correlation: float) -> list[float]:
    values = [rng.gauss(0, 1)]
    for _ in range(n - 1):
        values.append(correlation * values[-1] + (1 - correlation**2) ** 0.5 * rng.gauss(0, 1))
    return values


def test_few_values_have_no_interval() -> None:
    values = [1.0, 2.0] * (FEWEST // 2)
    assert compute_series_interval(values).low is not None
    assert compute_series_interval(values[1:]) == Interval(sum(values[1:]) / (FEWEST - 1), None, None, FEWEST - 1)
    for wrong in ([], [1.0, float("nan")]):
        with pytest.raises(ValueError, match="finite"):
            compute_series_interval(wrong)


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert compute_series_interval([0.25] * 40) == Interval(0.25, 0.25, 0.25, 40)


def test_the_mean_is_of_all_values_although_batches_leave_some_out() -> None:
    values = [100.0, *[1.0, 3.0] * 75]  # 151 values form 37 batches of 4, without the first 3
    interval = compute_series_interval(values)
    assert (interval.estimate, interval.pairs) == (pytest.approx(sum(values) / 151), 151)


def test_values_that_change_sides_are_like_independent_ones() -> None:
    """Negative correlation is treated as no correlation: both series have Student's interval, with variance n - 1."""
    values = [1.0, 2.0] * 20
    intervals, student = compute_series_interval(values), mean_interval(values)
    assert intervals.low == pytest.approx(student.low) and intervals.high == pytest.approx(student.high)


def test_a_drift_has_no_interval() -> None:
    drift = compute_series_interval([float(k) for k in range(200)])
    assert (drift.estimate, drift.low, drift.high) == (99.5, None, None)


@pytest.mark.parametrize(("n", "correlation"), [(50, 0.0), (50, 0.9), (200, 0.5), (200, 0.9), (600, 0.9)])
def test_coverage_of_steps_that_depend_on_those_before(n: int, correlation: float) -> None:
    """In at most 7 % of all runs, the interval excludes the true mean.

    Student's interval would exclude the mean in up to 65 % of the runs.
    """
    rng = random.Random(f"{n} {correlation}")
    runs = [steps(rng, n, correlation) for _ in range(300)]
    intervals = [compute_series_interval(run) for run in runs]
    untrue = sum(
        entry.low is not None and entry.high is not None and not entry.low <= 0 <= entry.high for entry in intervals
    )
    assert untrue <= 0.07 * len(runs)
    given = sum(entry.low is not None for entry in intervals)
    assert given >= (1 if correlation < 0.9 or n >= 600 else 0.25) * len(runs)
    if correlation == 0.9:
        naive = [mean_interval(run) for run in runs]
        assert sum(not (entry.low or 0) <= 0 <= (entry.high or 0) for entry in naive) > 0.4 * len(runs)


def test_the_benchmark_prints_all_rows() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--tiny"], capture_output=True, text=True, check=True)
    rows = re.findall(
        r"^(?:normal|exponential) +0\.\d+ +(\d+) +([\d.]+) +([\d.-]+) +([\d.]+)", done.stdout, re.MULTILINE
    )
    assert [int(n) for n, *_ in rows] == [n for n in (20, 50, 200, 600) for _ in range(4)] * 2
    assert all(float(untrue) <= 15 for *_, untrue in rows)
    assert {given for n, given, *_ in rows if n == "20"} == {"0.0"}
