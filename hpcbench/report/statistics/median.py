"""The median of a run's step times, with a bootstrap interval that needs no resampling."""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from hpcbench.report.statistics.interval import Interval, need_finite
from hpcbench.report.statistics.student import incomplete_beta

FEWEST = 6
"""Values: of five, even the least and the greatest enclose the median in less than 95 % of all samples."""


def median_interval(values: Sequence[float]) -> Interval:
    """Median with the 95 % percentile interval of its bootstrap distribution, widened where values follow each other.

    Resampling would only approach what is known: the median of a resample is one of the values, each with a binomial
    weight (Efron, Annals of Statistics 7, 1979, section 3), so that the interval ends at two order statistics. Values
    of one run are not independent, though: where neighbours lie on the same side of the median more often than chance
    has it, fewer of them count, and the two move apart by the root of that.

    Parameters
    ----------
    values
        In the order in which they were taken.

    Raises
    ------
    ValueError
        No values, or one that is not finite.
    """
    need_finite(values)
    n = len(values)
    ordered = sorted(values)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    if n < FEWEST:
        return Interval(median, None, None, n)
    middle = (n - 1) / 2
    apart = (middle - lower_rank(n)) * math.sqrt(values_a_count(values, median))
    low = max(0, math.floor(middle - apart))
    return Interval(median, ordered[low], ordered[n - 1 - low], n)


@lru_cache(maxsize=4096)
def lower_rank(n: int, tail: float = 0.025) -> int:
    """Rank, from 0, of the value that the bootstrap's median lies below with at most the probability `tail`.

    A resample's median is at most the k-th of n values if more than half of its n draws are among the k lowest. Of an
    even number, the lower of the two middle ones is taken, which is never above their mean; the interval's other end
    is the same rank from above.
    """
    half = (n + 1) // 2
    low, high = 1, n
    while low < high:
        k = (low + high) // 2
        # The binomial distribution's upper tail: of n draws, `half` or more.
        if incomplete_beta(half, n - half + 1, k / n) >= tail:
            high = k
        else:
            low = k + 1
    return low - 1


def values_a_count(values: Sequence[float], median: float) -> float:
    """How many successive values tell as much of the median as one independent value would; 1 or more.

    ``(1 + r) / (1 - r)``, r being the correlation of neighbours' sides of the median: exact where the sides are a
    Markov chain, too low where the memory is longer.
    """
    above = [value > median for value in values]
    changes = sum(a != b for a, b in pairwise(above))
    same = len(above) - 1 - changes
    # r = (same - changes) / (same + changes); a series that never changes sides is one value.
    return max(1.0, same / changes) if changes else float(len(above))
