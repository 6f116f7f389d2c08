"""Student's t in pure Python: its distribution, and tests of a mean."""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b) by its continued fraction (Lentz's method).

    Raises
    ------
    ValueError
        a or b is not positive, or x lies outside [0, 1].
    """
    if not (a > 0 and b > 0 and 0 <= x <= 1):
        raise ValueError(f"incomplete beta of a={a}, b={b}, x={x}")
    if x in (0, 1):
        return float(x)
    # The fraction converges fast only below the mean of the distribution.
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    c, d, fraction = 1.0, 0.0, 1.0
    for m in range(10_000):
        term = 1.0
        if m:
            half = m // 2
            if m % 2:
                term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
            else:
                term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        d = 1 / (1 + term * d or tiny)
        c = (1 + term / c) or tiny
        change = c * d
        fraction *= change
        if m and abs(change - 1) < 1e-15:
            break
    return front * (fraction - 1)


def student_t_cdf(t: float, df: float) -> float:
    """Probability that Student's t with `df` degrees of freedom is at most `t`."""
    square = t * t
    tail = 0.5 * incomplete_beta(df / 2, 0.5, df / (df + square)) if square < math.inf else 0.0
    return tail if t < 0 else 1 - tail


@lru_cache(maxsize=4096)
def student_t_quantile(p: float, df: float) -> float:
    """The t that `student_t_cdf` maps to `p`, to a relative 1e-12.

    Raises
    ------
    ValueError
        p lies outside (0, 1), or df is not positive.
    """
    if not (0 < p < 1 and df > 0):
        raise ValueError(f"quantile {p} of Student's t with {df} degrees of freedom")
    if p < 0.5:
        return -student_t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while student_t_cdf(high, df) < p:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if student_t_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def standard_deviation(values: Sequence[float]) -> float:
    """Standard deviation with n - 1 in the denominator: the standard library's takes exact fractions, and its time."""
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def t_statistic(values: Sequence[float], null: float = 0.0) -> float:
    """How many standard errors the mean lies above `null`; infinite, or 0, where the values do not scatter.

    Raises
    ------
    ValueError
        Fewer than two values: they have no scatter.
    """
    if len(values) < 2:
        raise ValueError("a test needs two values or more")
    distance = fmean(values) - null
    error = standard_deviation(values) / math.sqrt(len(values))
    if error == 0:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / error


def p_two_sided(values: Sequence[float], null: float = 0.0) -> float:
    """p-value of the hypothesis that the mean is `null`: Student's t test of one sample, or of differences of pairs."""
    return 2 * student_t_cdf(-abs(t_statistic(values, null)), len(values) - 1)


def p_greater(values: Sequence[float], null: float = 0.0) -> float:
    """p-value of the hypothesis that the mean is at most `null`: small where it is shown to lie above."""
    return student_t_cdf(-t_statistic(values, null), len(values) - 1)


def p_less(values: Sequence[float], null: float = 0.0) -> float:
    """p-value of the hypothesis that the mean is at least `null`: small where it is shown to lie below."""
    return student_t_cdf(t_statistic(values, null), len(values) - 1)
