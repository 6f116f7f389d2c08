"""How far values lie from the others, however far."""

from collections.abc import Sequence
from statistics import median

FEWEST = 4
"""Values: of three, one often lies apart by chance."""
_SIGMA = 1.4826
"""Standard deviations of a normal distribution in its median absolute deviation."""


def robust_deviations(values: Sequence[float]) -> list[float]:
    """Distance of each value from the median, in units that are standard deviations where the bulk is normal.

    The median absolute deviation is the scale, which one outlier does not stretch. Fewer than `FEWEST` values have no
    outlier: all are 0. Where more than half of the values are equal, any other is infinitely far.
    """
    if len(values) < FEWEST:
        return [0.0] * len(values)
    middle = median(values)
    scale = _SIGMA * median(abs(value - middle) for value in values)
    if scale == 0:
        return [0.0 if value == middle else float("inf") if value > middle else float("-inf") for value in values]
    return [(value - middle) / scale for value in values]
