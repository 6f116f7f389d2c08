"""Estimates from small samples: means and ratios with 95 % intervals."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from hpcbench.present.notation import Interval as Interval
from hpcbench.report.significance import student_t_cdf, student_t_quantile

CONFIDENCE = 0.95
"""Confidence level of intervals."""


def exponentiate(interval: Interval) -> Interval:
    """Transform the interval of a quantity's natural logarithm into the interval of the quantity."""
    low, high = (None if end is None else _exp(end) for end in (interval.low, interval.high))
    return Interval(_exp(interval.estimate), low, high, interval.pairs)


def is_usable(value: float) -> bool:
    """Return whether a logged value is finite and small enough that sums and squares stay finite."""
    return abs(value) < 1e100


def require_finite(values: Sequence[float]) -> None:
    """Raise an error for values that cannot be used for estimates."""
    if not values or not all(map(math.isfinite, values)):
        raise ValueError("an interval needs finite values")


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Mean:
    """Estimate of a mean or of a difference between means."""

    estimate: float
    error: float | None
    """Standard error, or None for a single value, which has neither an interval nor a test."""
    freedom: float
    """Number of degrees of freedom."""
    count: int
    """Number of values, or pairs of values, on which the estimate is based."""

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return the estimate with Student's t interval: ``estimate +- t * error``."""
        if self.error is None:
            return Interval(self.estimate, None, None, self.count)
        half = student_t_quantile((1 + confidence) / 2, self.freedom) * self.error
        return Interval(self.estimate, self.estimate - half, self.estimate + half, self.count)

    def t(self, null: float = 0.0) -> float:
        """Return the number of standard errors from `null` to the estimate.

        If the standard error is 0, the result is infinite or 0.
        """
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
        """Return the p-value of the hypothesis that the mean is at most `null`."""
        return student_t_cdf(-self.t(null), self.freedom)

    def p_less(self, null: float = 0.0) -> float:
        """Return the p-value of the hypothesis that the mean is at least `null`."""
        return student_t_cdf(self.t(null), self.freedom)

    def p_within(self, margin: float) -> float:
        """Return the p-value of the hypothesis that the absolute mean is at least `margin`.

        The result is the larger p-value of two one-sided tests (Schuirmann, Journal of Pharmacokinetics and
        Biopharmaceutics 15, 1987). The p-value is below 5 % if and only if the 90 % interval of the mean lies within
        the margin. Equivalence is thereby tested directly, not inferred from the lack of a significant difference.
        """
        return max(self.p_greater(-margin), self.p_less(margin))


def estimate_mean(values: Sequence[float]) -> Mean:
    """Return the mean of a sample. For Student's paired test, pass the differences within pairs."""
    require_finite(values)
    n = len(values)
    return Mean(fmean(values), math.sqrt(_compute_variance(values) / n) if n > 1 else None, n - 1, n)


def welch(new: Sequence[float], old: Sequence[float]) -> Mean:
    """Return the difference between the means of two independent samples with unequal variances and sizes.

    Degrees of freedom follow Welch (Biometrika 34, 1947) and Satterthwaite.
    """
    for values in (new, old):
        require_finite(values)
    difference, count = fmean(new) - fmean(old), min(len(new), len(old))
    if count < 2:
        return Mean(difference, None, 0, count)
    parts = [_compute_variance(values) / len(values) for values in (new, old)]
    square = sum(parts)
    # Parts are normalized before squaring, because squares of tiny variances would underflow to 0.
    shares = [part / square for part in parts] if square else [0.5, 0.5]
    sizes = len(new), len(old)
    freedom = 1 / sum(share**2 / (size - 1) for share, size in zip(shares, sizes, strict=True))
    return Mean(difference, math.sqrt(square), freedom, count)


def _compute_variance(values: Sequence[float]) -> float:
    """Return the variance with n - 1 in the denominator.

    The standard library's function is slow, because it computes exact fractions.
    """
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the mean with Student's t interval."""
    return estimate_mean(values).interval(confidence)


def geometric_interval(values: Sequence[float]) -> Interval:
    """Return the geometric mean with an interval from Student's t on the logarithms."""
    return exponentiate(mean_interval([math.log(x) for x in _require_positive(values)]))


def paired_ratio(values: Sequence[float], base: Sequence[float]) -> Interval:
    """Return the geometric mean of ``values[i] / base[i]`` with its interval.

    Within an allocation, all speeds change by similar factors. Therefore, ratios vary less between pairs than
    differences do.
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
    """Return the arithmetic mean of the known, summable values, or None if there are none."""
    numbers = [value for value in values if value is not None and is_usable(value)]
    return fmean(numbers) if numbers else None


def average_known_geometrically(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the known positive values.

    The ratio of two such means equals the geometric mean of the paired ratios.
    """
    numbers = [value for value in values if value is not None and value > 0 and math.isfinite(value)]
    return geometric_mean(numbers) if numbers else None
