"""What an estimate is: a value with the interval that holds the truth 95 times in a hundred."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % confidence interval.

    `low` and `high` are None where one value only was measured: it has no interval, however close it looks.
    """

    estimate: float
    low: float | None
    high: float | None
    pairs: int
    """How many values, mostly of pairs of runs, it rests on."""

    def exp(self) -> "Interval":
        """The interval of what this is the natural logarithm of."""
        low, high = (None if end is None else _exp(end) for end in (self.low, self.high))
        return Interval(_exp(self.estimate), low, high, self.pairs)


def usable(value: float) -> bool:
    """Whether a value that a log claims is a number of which sums and squares are finite, too."""
    return abs(value) < 1e100


def need_finite(values: Sequence[float]) -> None:
    """Say that there is nothing to estimate from.

    Raises
    ------
    ValueError
        No values, or one that is not finite.
    """
    if not values or not all(map(math.isfinite, values)):
        raise ValueError("an interval needs finite values")


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
