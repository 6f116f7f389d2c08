"""Estimates from a few values that scatter: means and ratios, each with its 95 % interval."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from hpcbench.present.notation import Interval as Interval
from hpcbench.report.significance import student_t_cdf, student_t_quantile

CONFIDENCE = 0.95
"""Confidence of an interval."""


def exponentiate(interval: Interval) -> Interval:
    """Return the interval of a quantity whose natural logarithm has this interval."""
    low, high = (None if end is None else _exp(end) for end in (interval.low, interval.high))
    return Interval(_exp(interval.estimate), low, high, interval.pairs)


def is_usable(value: float) -> bool:
    """Return whether a value of a log is a number whose sums and squares are finite, too."""
    return abs(value) < 1e100


def require_finite(values: Sequence[float]) -> None:
    """Refuse values that nothing can be estimated from."""
    if not values or not all(map(math.isfinite, values)):
        raise ValueError("an interval needs finite values")


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Mean:
    """An estimated mean, or difference of means."""

    estimate: float
    error: float | None
    """Standard error; None if there is only one value, which has no interval and no test."""
    freedom: float
    """Number of degrees of freedom."""
    count: int
    """Number of values, or pairs of values, that it rests on."""

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return the estimate with Student's interval: ``estimate +- t * error``."""
        if self.error is None:
            return Interval(self.estimate, None, None, self.count)
        half = student_t_quantile((1 + confidence) / 2, self.freedom) * self.error
        return Interval(self.estimate, self.estimate - half, self.estimate + half, self.count)

    def t(self, null: float = 0.0) -> float:
        """Return the number of standard errors from `null` to the estimate; infinite or 0 if no value scatters."""
        if self.error is None:
            raise ValueError("a test needs two values or more")
        distance = self.estimate - null
        if self.error == 0:
            return math.copysign(math.inf, distance) if distance else 0.0
        return distance / self.error

    def p_two_sided(self, null: float = 0.0) -> float:
        """Return the p-value of the hypothesis that the mean is `null`."""
        return 2 * student_t_cdf(-abs(self.t(null)), self.freedom)

    def p_greater(self, null: float = 0.0) -> float:
        """Return the p-value of the hypothesis that the mean is at most `null`; small if it is significantly above."""
        return student_t_cdf(-self.t(null), self.freedom)

    def p_less(self, null: float = 0.0) -> float:
        """Return the p-value of the hypothesis that the mean is at least `null`; small if it is significantly below."""
        return student_t_cdf(self.t(null), self.freedom)

    def p_within(self, margin: float) -> float:
        """Return the p-value of the hypothesis that the mean lies `margin` or more away from 0, on either side.

        Two one-sided tests (Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987): the larger p-value
        counts. It is below 5 % exactly if the 90 % interval of the mean lies within the margin. So equivalence is
        shown, and not concluded from the lack of a difference.
        """
        return max(self.p_greater(-margin), self.p_less(margin))


def estimate_mean(values: Sequence[float]) -> Mean:
    """Return the mean of a sample. Student's paired test is about the mean of the differences of pairs."""
    require_finite(values)
    n = len(values)
    return Mean(fmean(values), math.sqrt(_compute_variance(values) / n) if n > 1 else None, n - 1, n)


def welch(new: Sequence[float], old: Sequence[float]) -> Mean:
    """Return the difference of the means of two independent samples, each with its own scatter and size.

    Degrees of freedom are those of Welch (Biometrika 34, 1947) and Satterthwaite.
    """
    for values in (new, old):
        require_finite(values)
    difference, count = fmean(new) - fmean(old), min(len(new), len(old))
    if count < 2:
        return Mean(difference, None, 0, count)
    parts = [_compute_variance(values) / len(values) for values in (new, old)]
    square = sum(parts)
    # Each part is taken over their sum before it is squared: squares of tiny variances would be 0.
    shares = [part / square for part in parts] if square else [0.5, 0.5]
    sizes = len(new), len(old)
    freedom = 1 / sum(share**2 / (size - 1) for share, size in zip(shares, sizes, strict=True))
    return Mean(difference, math.sqrt(square), freedom, count)


def _compute_variance(values: Sequence[float]) -> float:
    """Return the variance with n - 1 in the denominator.

    The standard library's function computes exact fractions, which is slow.
    """
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the mean with Student's interval."""
    return estimate_mean(values).interval(confidence)


def geometric_interval(values: Sequence[float]) -> Interval:
    """Return the geometric mean with its interval, from Student's t on the logarithms."""
    return exponentiate(mean_interval([math.log(x) for x in _require_positive(values)]))


def paired_ratio(values: Sequence[float], base: Sequence[float]) -> Interval:
    """Return the geometric mean of ``values[i] / base[i]`` with its interval.

    Speeds of one allocation scale together, so that ratios are similar from pair to pair, and differences are not.
    """
    pairs = zip(_require_positive(values), _require_positive(base), strict=True)
    return exponentiate(mean_interval([math.log(x) - math.log(y) for x, y in pairs]))


def paired_difference(values: Sequence[float], base: Sequence[float]) -> Interval:
    """Return the mean of ``values[i] - base[i]`` with its interval."""
    return mean_interval([x - y for x, y in zip(values, base, strict=True)])


def _require_positive(values: Sequence[float]) -> Sequence[float]:
    if any(not (math.isfinite(x) and x > 0) for x in values):
        raise ValueError("a ratio needs positive, finite values")
    return values


def average_known(values: Iterable[float | None]) -> float | None:
    """Return the arithmetic mean of the known values that can be summed; None if there is none."""
    numbers = [value for value in values if value is not None and is_usable(value)]
    return fmean(numbers) if numbers else None


def average_known_geometrically(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the known positive values. Ratios of such means are means of pairs' ratios."""
    numbers = [value for value in values if value is not None and value > 0 and math.isfinite(value)]
    return geometric_mean(numbers) if numbers else None
