"""How many repeats would be enough."""

import math

from hpcbench.report.statistics.student import student_t_quantile

MOST = 100
"""Repeats beyond which nobody asks for a number."""


def pairs_needed(distance: float, scatter: float, level: float, power: float = 0.8) -> int | None:
    """Pairs with which a one-sided t test would probably show a mean that lies `distance` away.

    The least n with ``(t(1 - level) + t(power)) * scatter / sqrt(n) <= distance``, t with n - 1 degrees of freedom:
    close to the noncentral t, and closer than the scatter of a few pairs is known.

    Parameters
    ----------
    distance
        From the value that is to be excluded to the mean.
    scatter
        Standard deviation of the pairs.
    level
        Of the test, as a part of 1.
    power
        Probability with which it is to succeed.

    Returns
    -------
    int or None
        None where more than `MOST` are needed.
    """

    def enough(n: int) -> bool:
        reach = student_t_quantile(1 - level, n - 1) + student_t_quantile(power, n - 1)
        return reach * scatter <= distance * math.sqrt(n)

    if distance <= 0 or not enough(MOST):
        return None
    low, high = 2, MOST
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
