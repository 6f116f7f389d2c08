"""A mean of a few values, or a difference of two, and what Student's t says of it: its interval, and its p-values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from hpcbench.report.statistics.interval import Interval, need_finite
from hpcbench.report.statistics.student import student_t_cdf, student_t_quantile


@dataclass(frozen=True)
class Mean:
    """An estimated mean, or difference of means."""

    estimate: float
    error: float | None
    """Standard error; None where one value only was measured: then there is no interval and no test."""
    freedom: float
    """Degrees of freedom."""
    count: int
    """Values, or pairs of values, that it rests on."""

    def interval(self, confidence: float = 0.95) -> Interval:
        """The estimate with Student's interval: ``estimate +- t * error``."""
        if self.error is None:
            return Interval(self.estimate, None, None, self.count)
        half = student_t_quantile((1 + confidence) / 2, self.freedom) * self.error
        return Interval(self.estimate, self.estimate - half, self.estimate + half, self.count)

    def t(self, null: float = 0.0) -> float:
        """How many standard errors the estimate lies above `null`; infinite, or 0, where the values do not scatter.

        Raises
        ------
        ValueError
            There is one value only: it has no scatter. All tests raise it.
        """
        if self.error is None:
            raise ValueError("a test needs two values or more")
        distance = self.estimate - null
        if self.error == 0:
            return math.copysign(math.inf, distance) if distance else 0.0
        return distance / self.error

    def p_two_sided(self, null: float = 0.0) -> float:
        """p-value of the hypothesis that the mean is `null`."""
        return 2 * student_t_cdf(-abs(self.t(null)), self.freedom)

    def p_greater(self, null: float = 0.0) -> float:
        """p-value of the hypothesis that the mean is at most `null`: small where it is shown to lie above."""
        return student_t_cdf(-self.t(null), self.freedom)

    def p_less(self, null: float = 0.0) -> float:
        """p-value of the hypothesis that the mean is at least `null`: small where it is shown to lie below."""
        return student_t_cdf(self.t(null), self.freedom)

    def p_within(self, margin: float) -> float:
        """p-value of the hypothesis that the mean lies `margin` or more away from 0, on either side.

        Two one-sided tests (Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987): the larger p-value
        counts. It is below 5 % exactly where the 90 % interval of the mean lies within the margin. So equivalence is
        shown, and not concluded from a difference that was not found.
        """
        return max(self.p_greater(-margin), self.p_less(margin))


def mean_of(values: Sequence[float]) -> Mean:
    """Mean of a sample; of the differences of pairs it is what Student's paired test looks at.

    Raises
    ------
    ValueError
        No values, or one that is not finite.
    """
    need_finite(values)
    n = len(values)
    return Mean(fmean(values), math.sqrt(_variance(values) / n) if n > 1 else None, n - 1, n)


def welch(new: Sequence[float], old: Sequence[float]) -> Mean:
    """Difference of the means of two independent samples, of scatter and size of their own.

    Degrees of freedom after Welch (Biometrika 34, 1947) and Satterthwaite.

    Raises
    ------
    ValueError
        A sample without values, or a value that is not finite.
    """
    for values in (new, old):
        need_finite(values)
    difference, count = fmean(new) - fmean(old), min(len(new), len(old))
    if count < 2:
        return Mean(difference, None, 0, count)
    parts = [_variance(values) / len(values) for values in (new, old)]
    square = sum(parts)
    # Each part is taken over their sum before it is squared: squares of tiny variances would be 0.
    shares = [part / square for part in parts] if square else [0.5, 0.5]
    sizes = len(new), len(old)
    freedom = 1 / sum(share**2 / (size - 1) for share, size in zip(shares, sizes, strict=True))
    return Mean(difference, math.sqrt(square), freedom, count)


def _variance(values: Sequence[float]) -> float:
    """With n - 1 in the denominator. The standard library's takes exact fractions, and its time."""
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
