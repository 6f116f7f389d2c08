"""What tests need beside their p-values: a correction for their number, and enough repeats."""

import math
from collections.abc import Sequence

from hpcbench.report.statistics.student import student_t_quantile


def holm(p: Sequence[Sequence[float]]) -> list[list[float]]:
    """p-values adjusted so that any true hypothesis at all is rejected with at most the level's probability.

    Holm's step-down (Scandinavian Journal of Statistics 6, 1979), valid however the tests depend on each other, as
    those do that share a baseline. Of hypotheses that exclude each other at most one is true: a group of such counts as
    one, until all of it is rejected (Shaffer, Journal of the American Statistical Association 81, 1986). Whoever first
    rejects a true one has rejected only false ones before, so that each group with a true one still counts.

    Parameters
    ----------
    p
        p-values of each group. Groups of one are Holm's own method.

    Returns
    -------
    list of list of float
        In the order of `p`.
    """
    found = [[0.0] * len(group) for group in p]
    left = [len(group) for group in p]
    highest = 0.0
    for value, i, j in sorted((value, i, j) for i, group in enumerate(p) for j, value in enumerate(group)):
        highest = max(highest, min(1.0, sum(map(bool, left)) * value))
        found[i][j] = highest
        left[i] -= 1
    return found


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
