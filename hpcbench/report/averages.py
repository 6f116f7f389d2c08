"""Averages over the runs of a scheme, of figures that not every run has."""

import math
from collections.abc import Iterable
from statistics import fmean, geometric_mean

from hpcbench.report.statistics import usable
from hpcbench.report.traffic import Unknown


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Arithmetic mean of the values that are known, and numbers that can be summed; None where none is."""
    known = [value for value in values if value is not None and usable(value)]
    return fmean(known) if known else None


def geometric_mean_of_known(values: Iterable[float | None]) -> float | None:
    """Geometric mean of the values that are known and positive: ratios of such are means of their pairs' ratios."""
    known = [value for value in values if value is not None and value > 0 and math.isfinite(value)]
    return geometric_mean(known) if known else None


def mean_unless_unknown(values: Iterable[float | Unknown | None]) -> float | Unknown | None:
    """Arithmetic mean; ``unknown`` as soon as one value is, which is not the same as one that is missing."""
    own = list(values)
    return "unknown" if "unknown" in own else mean_of_known(value for value in own if value != "unknown")
