"""Estimates from a few repeats, with the intervals that stand in the table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from hpcbench.report.statistics.student import standard_deviation, student_t_quantile


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


def usable(value: float) -> bool:
    """Whether a value that a log claims is a number of which sums and squares are finite, too."""
    return abs(value) < 1e100


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
    half = student_t_quantile((1 + confidence) / 2, n - 1) * standard_deviation(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def geometric_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Geometric mean with its interval, from Student's t on the logarithms.

    Raises
    ------
    ValueError
        No values, or one that is not positive and finite.
    """
    return _from_logs([math.log(x) for x in _positive(values)], confidence)


def paired_ratio(values: Sequence[float], base: Sequence[float], confidence: float = 0.95) -> Interval:
    """Geometric mean of ``values[i] / base[i]`` with its interval.

    Speeds of one allocation scale together, so that ratios, not differences, are alike from pair to pair.

    Raises
    ------
    ValueError
        No pairs, or a value that is not positive and finite.
    """
    pairs = zip(_positive(values), _positive(base), strict=True)
    return _from_logs([math.log(x) - math.log(y) for x, y in pairs], confidence)


def paired_difference(values: Sequence[float], base: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean of ``values[i] - base[i]`` with its interval."""
    return mean_interval([x - y for x, y in zip(values, base, strict=True)], confidence)


def _positive(values: Sequence[float]) -> Sequence[float]:
    if any(not (math.isfinite(x) and x > 0) for x in values):
        raise ValueError("a ratio needs positive, finite values")
    return values


def _from_logs(logs: list[float], confidence: float) -> Interval:
    found = mean_interval(logs, confidence)
    low = None if found.low is None else math.exp(found.low)
    high = None if found.high is None else _exp(found.high)
    return Interval(_exp(found.estimate), low, high, found.pairs)


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
