"""How near decoded values are to those that were encoded."""

from dataclasses import dataclass

import numpy as np

from hpcbench.codecs.types import Array

_SLICE = 1 << 20
"""Values that are compared at once, in float64."""


@dataclass(frozen=True)
class Errors:
    """Errors over the values that are finite."""

    relative_rmse: float
    """Root of the mean squared error over that of the mean squared value; 0.0 where nothing differs."""
    max_error: float
    """Largest absolute error."""


def errors(x: Array, y: Array) -> Errors:
    """Compare decoded values with the original.

    Parameters
    ----------
    x, y
        Floating-point values, shape (n,): what was encoded, what was decoded. An infinity or NaN of `y` in the place of
        a finite value is an infinite error.
    """
    largest = squares = power = 0.0
    for start in range(0, x.size, _SLICE):
        before = x[start : start + _SLICE].astype(np.float64)
        finite = np.isfinite(before)
        before = before[finite]
        with np.errstate(invalid="ignore"):
            error = np.abs(y[start : start + _SLICE].astype(np.float64)[finite] - before)
        error[np.isnan(error)] = np.inf
        largest = max(largest, float(error.max(initial=0.0)))
        squares += float(np.square(error).sum())
        power += float(np.square(before).sum())
    if squares == 0.0:
        return Errors(0.0, largest)
    return Errors(float(np.sqrt(squares / power)) if power else float("inf"), largest)


def non_finite_survival(x: Array, y: Array) -> str:
    """What became of the NaN and infinities of `x`: ``kept``, ``as NaN`` (still seen not to be finite) or ``lost``.

    Parameters
    ----------
    x, y
        Values, shape (n,): what was encoded, what was decoded.
    """
    there = ~np.isfinite(x)
    before, after = x[there].astype(np.float64), y[there].astype(np.float64)
    if np.array_equal(before, after, equal_nan=True):
        return "kept"
    return "lost" if np.isfinite(after).any() else "as NaN"
