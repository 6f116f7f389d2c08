"""What a predicted number rests on, and how far off it may be."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from hpcbench.predict.constants import ERRORS


class InputBasis(str, Enum):
    """Where an input comes from, the best first."""

    HERE = "measured here"
    ELSEWHERE = "measured elsewhere"
    SHEET = "data sheet"
    ASSUMED = "assumed"

    @property
    def error(self) -> float:
        """Relative error of such a number."""
        return ERRORS[self.value]


def find_worst(bases: Iterable[InputBasis]) -> InputBasis:
    """The least certain of them; what rests on nothing is exact, as if measured here."""
    order = list(InputBasis)
    return max(bases, key=order.index, default=InputBasis.HERE)


@dataclass(frozen=True)
class Estimate:
    """A predicted number with its interval."""

    value: float
    low: float
    high: float
    basis: InputBasis

    @classmethod
    def around(cls, value: float, error: float, basis: InputBasis) -> "Estimate":
        """`value` and as much as `error` on both sides, no lower than 0."""
        return cls(value, max(value - error, 0.0), value + error, basis)

    def inverse(self, numerator: float) -> "Estimate":
        """`numerator` over this, such as samples a second of seconds."""
        value, low, high = (numerator / at if at else math.inf for at in (self.value, self.high, self.low))
        return Estimate(value, low, high, self.basis)


def combine_errors(parts: Iterable[tuple[float, float]]) -> float:
    """Error of a sum of (value, relative error) whose errors are independent."""
    return math.sqrt(sum((value * error) ** 2 for value, error in parts))
