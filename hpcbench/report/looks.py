"""Repeated looks at a growing study: fractions of the significance level, and the next useful number of pairs.

Each report of a growing study is another chance for a false finding. The significance level is therefore divided among
scheduled looks at fixed numbers of pairs (alpha spending: Lan and DeMets, Biometrika 70, 1983). The fractions add up to
1, so the bound on false findings holds for any dependence between looks. With few pairs, the p-values of two looks are
almost independent, and a tighter bound would gain little.
"""

import math
from bisect import bisect_left

from hpcbench.report.significance import student_t_quantile

LOOKS = (3, 5, 8, 12, 20, 30, 50, 100)
"""Scheduled numbers of pairs. Other numbers of pairs are rounded up to the next scheduled number."""
PARTS = (0.6, 0.2, 0.1, 0.05, 0.03, 0.01, 0.005, 0.005)
"""Fraction of the level for each look.

Looks with few pairs get most of the level, because Student's t then has the widest tails.
"""
MOST = LOOKS[-1]
"""Maximum number of pairs that is recommended."""


def compute_level_part(pairs: int) -> float:
    """Return the fraction of the level for a comparison with `pairs` pairs."""
    return PARTS[min(bisect_left(LOOKS, pairs), len(LOOKS) - 1)]


def find_next_look(distance: float, scatter: float, share: float, pairs: int, power: float = 0.8) -> int | None:
    """Return the next look at which a one-sided t-test would probably detect a mean at `distance` from a value.

    `scatter` is the standard deviation of the pairs, `share` the test's level before division over the looks, `pairs`
    the current number of pairs, and `power` the probability that the test is significant. None is returned if more than
    `MOST` pairs are needed or if the mean is on the wrong side of the value.
    """
    later = (look for look in LOOKS if look > pairs)
    return next((n for n in later if is_sufficient(n, distance, scatter, share * compute_level_part(n), power)), None)


def is_sufficient(n: int, distance: float, scatter: float, level: float, power: float = 0.8) -> bool:
    """Return whether n pairs would probably detect a mean at `distance`.

    The condition is ``(t(1 - level) + t(power)) * scatter / sqrt(n) <= distance``, where t has n - 1 degrees of
    freedom. This condition approximates the noncentral t distribution. The error is smaller than the uncertainty of
    `scatter` for a few pairs.
    """
    if distance <= 0 or not level > 0:
        return False
    reach = student_t_quantile(1 - level, n - 1) + student_t_quantile(power, n - 1)
    return reach * scatter <= distance * math.sqrt(n)
