"""Intervals of a few repeats, as they stand in tables and figures."""

import math
from collections.abc import Sequence

from hpcbench.report.statistics.interval import Interval
from hpcbench.report.statistics.mean import mean_of


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean with Student's interval.

    Raises
    ------
    ValueError
        No values, or one that is not finite.
    """
    return mean_of(values).interval(confidence)


def geometric_interval(values: Sequence[float]) -> Interval:
    """Geometric mean with its interval, from Student's t on the logarithms.

    Raises
    ------
    ValueError
        No values, or one that is not positive and finite.
    """
    return mean_interval([math.log(x) for x in _positive(values)]).exp()


def paired_ratio(values: Sequence[float], base: Sequence[float]) -> Interval:
    """Geometric mean of ``values[i] / base[i]`` with its interval.

    Speeds of one allocation scale together, so that ratios, not differences, are alike from pair to pair.

    Raises
    ------
    ValueError
        No pairs, or a value that is not positive and finite.
    """
    pairs = zip(_positive(values), _positive(base), strict=True)
    return mean_interval([math.log(x) - math.log(y) for x, y in pairs]).exp()


def paired_difference(values: Sequence[float], base: Sequence[float]) -> Interval:
    """Mean of ``values[i] - base[i]`` with its interval."""
    return mean_interval([x - y for x, y in zip(values, base, strict=True)])


def _positive(values: Sequence[float]) -> Sequence[float]:
    if any(not (math.isfinite(x) and x > 0) for x in values):
        raise ValueError("a ratio needs positive, finite values")
    return values
