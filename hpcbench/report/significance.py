"""Student's t, and a correction for the number of tests."""

import math
from collections.abc import Sequence
from functools import lru_cache


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
    tail = _tail(t * t, df)
    return tail if t < 0 else 1 - tail


@lru_cache(maxsize=4096)
def _tail(square: float, df: float) -> float:
    """Probability beyond the root of `square` on one side. The tests of a report ask for each several times."""
    return 0.5 * incomplete_beta(df / 2, 0.5, df / (df + square)) if square < math.inf else 0.0


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


def holm(p: Sequence[Sequence[float]]) -> list[list[float]]:
    """p-values adjusted so that the probability of rejecting any true hypothesis is at most the level.

    The method is Holm's step-down (Scandinavian Journal of Statistics 6, 1979). It is valid even if the tests depend on
    each other, as tests with a common baseline do. At most one of several hypotheses that exclude each other is true,
    so that a group of them counts as one until all of it is rejected (Shaffer, Journal of the American Statistical
    Association 81, 1986). Before the first true hypothesis is rejected, only false ones were rejected, so that each
    group with a true one still counts.

    Parameters
    ----------
    p
        p-values of each group. With groups of one it is Holm's own method.

    Returns
    -------
    list of list of float
        The adjusted p-values in the order of `p`.
    """
    found = [[0.0] * len(group) for group in p]
    left = [len(group) for group in p]
    highest = 0.0
    for value, i, j in sorted((value, i, j) for i, group in enumerate(p) for j, value in enumerate(group)):
        highest = max(highest, min(1.0, sum(map(bool, left)) * value))
        found[i][j] = highest
        left[i] -= 1
    return found
