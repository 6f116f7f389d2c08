"""Means of pairs and of independent samples, and what Student's t says of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from hpcbench.report.statistics.intervals import Interval
from hpcbench.report.statistics.student import student_t_cdf, student_t_quantile


@dataclass(frozen=True)
class Mean:
    """An estimated mean, or difference of means."""

    estimate: float
    error: float | None
    """Standard error; None where one value only was measured."""
    freedom: float
    """Degrees of freedom."""
    count: int
    """Values, or pairs of values, that it rests on."""

    def interval(self, confidence: float = 0.95) -> Interval:
        """The estimate with Student's interval."""
        if self.error is None:
            return Interval(self.estimate, None, None, self.count)
        half = student_t_quantile((1 + confidence) / 2, self.freedom) * self.error
        return Interval(self.estimate, self.estimate - half, self.estimate + half, self.count)

    def p_less(self, null: float) -> float:
        """p-value of the hypothesis that the mean is at least `null`; 1 where there is no scatter to judge it by."""
        if self.error is None:
            return 1.0
        distance = self.estimate - null
        if self.error == 0:
            return 0.0 if distance < 0 else 0.5 if distance == 0 else 1.0
        return student_t_cdf(distance / self.error, self.freedom)

    def p_greater(self, null: float) -> float:
        """p-value of the hypothesis that the mean is at most `null`; 1 where there is no scatter to judge it by."""
        return 1.0 if self.error is None else 1 - self.p_less(null)

    def p_unlike(self, null: float) -> float:
        """p-value of the hypothesis that the mean is `null`."""
        return min(1.0, 2 * min(self.p_less(null), self.p_greater(null)))

    def p_within(self, low: float, high: float) -> float:
        """p-value of the hypothesis that the mean lies outside (low, high): two one-sided tests."""
        return max(self.p_greater(low), self.p_less(high))


def paired(new: Sequence[float], old: Sequence[float]) -> Mean:
    """Mean of ``new[i] - old[i]``."""
    differences = [x - y for x, y in zip(new, old, strict=True)]
    n = len(differences)
    error = stdev(differences) / math.sqrt(n) if n > 1 else None
    return Mean(fmean(differences), error, max(n - 1, 1), n)


def welch(new: Sequence[float], old: Sequence[float]) -> Mean:
    """Difference of the means of two independent samples, of scatter and size of their own.

    Degrees of freedom after Welch (Biometrika 34, 1947) and Satterthwaite.
    """
    difference = fmean(new) - fmean(old)
    count = min(len(new), len(old))
    if count < 2:
        return Mean(difference, None, 1, count)
    parts = [(stdev(values) ** 2 / len(values), len(values) - 1) for values in (new, old)]
    square = sum(part for part, _ in parts)
    freedom = square**2 / sum(part**2 / n for part, n in parts) if square else count - 1
    return Mean(difference, math.sqrt(square), freedom, count)
