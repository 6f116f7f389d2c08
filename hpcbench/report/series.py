"""Confidence interval for the mean of correlated values, such as a run's step times."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from hpcbench.report.significance import student_t_quantile
from hpcbench.report.statistics import Interval, require_finite

FEWEST = 30
"""Minimum number of values for an interval. With fewer values, the correlation is unknown."""
_MOST_BATCHES = 50
"""Maximum number of batches. In longer series, batches contain several values to capture long correlations."""
_FEWEST_INDEPENDENT = 2.0
"""Minimum number of independent values for an interval.

Series with fewer independent values are hardly longer than their correlation length.
"""


def compute_series_interval(values: Sequence[float]) -> Interval:
    """Return the mean of a series with its 95 % interval. With too few values, the interval has no bounds.

    Means of batches of successive values are modeled as an AR(1) process. The correlation between neighboring batches
    determines the number of independent values. The estimated correlation is corrected for bias (Marriott and Pope,
    Biometrika 41, 1954), and half of its standard error is added, because an interval that is too narrow does more harm
    than one that is too wide. ``benchmarks/series_interval.py`` shows the coverage.
    """
    require_finite(values)
    mean, absent = fmean(values), Interval(fmean(values), None, None, len(values))
    if len(values) < FEWEST:
        return absent
    deviations = [batch - fmean(values) for batch in _compute_batch_means(values)]
    n = len(deviations)
    squares = math.fsum(deviation * deviation for deviation in deviations)
    if squares == 0:
        return Interval(mean, mean, mean, len(values))
    correlation = math.fsum(a * b for a, b in pairwise(deviations)) / squares
    correlation = (n * correlation + 1) / (n - 3) + 0.5 / math.sqrt(n)
    correlation = min(max(correlation, 0.0), 0.99)
    independent = n * (1 - correlation) / (1 + correlation)
    if independent < _FEWEST_INDEPENDENT:
        return absent
    # The mean is fitted to the values, which costs one independent value.
    variance = squares / n / (1 - 1 / independent)
    half = student_t_quantile(0.975, independent - 1) * math.sqrt(variance / independent)
    return Interval(mean, mean - half, mean + half, len(values))


def _compute_batch_means(values: Sequence[float]) -> list[float]:
    """Return the means of equally long batches of successive values. Surplus values at the start are dropped."""
    size = math.ceil(len(values) / _MOST_BATCHES)
    first = len(values) % size
    return [fmean(values[start : start + size]) for start in range(first, len(values), size)]
