"""Sources of the inputs to a prediction, and the error of each source."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from hpcbench.predict.constants import ERRORS


class InputBasis(str, Enum):
    """Source of an input, in descending order of reliability."""

    HERE = "measured here"
    ELSEWHERE = "measured elsewhere"
    SHEET = "data sheet"
    ASSUMED = "assumed"

    @property
    def error(self) -> float:
        """Relative error of a number from this source."""
        return ERRORS[self.value]


def find_worst(bases: Iterable[InputBasis]) -> InputBasis:
    """Return the least reliable source.

    If there are no sources, return `HERE`, because a value without inputs is exact.
    """
    order = list(InputBasis)
    return max(bases, key=order.index, default=InputBasis.HERE)


@dataclass(frozen=True)
class PredictedValue:
    """A predicted value with an interval."""

    value: float
    low: float
    high: float
    basis: InputBasis

    @classmethod
    def around(cls, value: float, error: float, basis: InputBasis) -> "PredictedValue":
        """Return `value` with an interval of `error` on both sides, clipped at 0."""
        return cls(value, max(value - error, 0.0), value + error, basis)

    def inverse(self, numerator: float) -> "PredictedValue":
        """Return `numerator` divided by this estimate, for example to convert seconds to samples per second."""
        value, low, high = (numerator / at if at else math.inf for at in (self.value, self.high, self.low))
        return PredictedValue(value, low, high, self.basis)


def combine_errors(parts: Iterable[tuple[float, float]]) -> float:
    """Return the absolute error of a sum, given (value, relative error) pairs with independent errors."""
    return math.sqrt(sum((value * error) ** 2 for value, error in parts))
