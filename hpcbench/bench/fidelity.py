"""Difference between decoded and original values."""

from dataclasses import dataclass

import numpy as np

from hpcbench.codecs.types import Array

_SLICE = 1 << 20
"""Number of values that are compared at a time, in float64."""


@dataclass(frozen=True)
class Errors:
    """Errors of the finite values."""

    relative_rmse: float
    """Root mean square error divided by the root mean square value, or 0.0 if all values are equal."""
    max_error: float
    """Largest absolute error."""


def compute_errors(x: Array, y: Array) -> Errors:
    """Compare decoded values with the original.

    Parameters
    ----------
    x, y
        Original and decoded floating-point values, shape (n,). If a finite value becomes infinity or NaN in `y`, its
        error counts as infinite.
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


def classify_non_finite(x: Array, y: Array) -> str:
    """Classify what happened to NaN and infinities in `x`: ``kept``, ``as NaN`` (still not finite) or ``lost``.

    Parameters
    ----------
    x, y
        Original and decoded values, shape (n,).
    """
    there = ~np.isfinite(x)
    before, after = x[there].astype(np.float64), y[there].astype(np.float64)
    if np.array_equal(before, after, equal_nan=True):
        return "kept"
    return "lost" if np.isfinite(after).any() else "as NaN"
