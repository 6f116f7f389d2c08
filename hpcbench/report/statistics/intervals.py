"""Estimates from a few repeats, with the intervals that stand in the table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from hpcbench.report.statistics.student import student_t_quantile


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % confidence interval.

    `low` and `high` are None where one value only was measured: it has no interval, however close it looks.
    """

    estimate: float
    low: float | None
    high: float | None
    pairs: int
    """How many values, mostly of pairs of runs, it rests on."""


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean with Student's interval: ``mean +- t * s / sqrt(n)``, s with n-1 in the denominator.

    Raises
    ------
    ValueError
        No values, or one that is not finite.
    """
    if not values or not all(map(math.isfinite, values)):
        raise ValueError("an interval needs finite values")
    n = len(values)
    mean = fmean(values)
    if n < 2:
        return Interval(mean, None, None, n)
    half = student_t_quantile((1 + confidence) / 2, n - 1) * stdev(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def paired_ratio(values: Sequence[float], base: Sequence[float], confidence: float = 0.95) -> Interval:
    """Geometric mean of ``values[i] / base[i]`` with its interval, from Student's t on the logarithms.

    Speeds of one allocation scale together, so that ratios, not differences, are alike from pair to pair.

    Raises
    ------
    ValueError
        No pairs, or a value that is not positive and finite.
    """
    if any(not (math.isfinite(x) and x > 0) for x in (*values, *base)):
        raise ValueError("a ratio needs positive, finite values")
    logs = mean_interval([math.log(x / y) for x, y in zip(values, base, strict=True)], confidence)
    low = None if logs.low is None else math.exp(logs.low)
    high = None if logs.high is None else _exp(logs.high)
    return Interval(math.exp(logs.estimate), low, high, logs.pairs)


def paired_difference(values: Sequence[float], base: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean of ``values[i] - base[i]`` with its interval."""
    return mean_interval([x - y for x, y in zip(values, base, strict=True)], confidence)


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
