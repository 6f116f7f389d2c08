"""Detection of level changes in a series of submissions.

The speed of a machine varies more from day to day than from run to run. Each submission therefore counts as one value,
the mean logarithm of its speeds. Significance is based on the variation between submissions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from hpcbench.report.hierarchy import LEVEL
from hpcbench.report.history.read import SubmissionSpeed
from hpcbench.report.statistics import Mean, welch


@dataclass(frozen=True)
class LevelChange:
    """A significant level change."""

    at: int
    """Index of the first point after the change."""
    ratio: float
    """Speed after the change divided by the speed before."""
    p: float
    """P-value, corrected for all tested positions."""


@dataclass(frozen=True)
class SpeedLevel:
    """Consecutive points without a significant change."""

    first: int
    last: int
    log_speed: float


def find_changes(points: Sequence[SubmissionSpeed], tests: int = 1) -> list[LevelChange]:
    """Find level changes, in chronological order.

    Two kinds of tests are made: submissions before a position against submissions after this position, and each inner
    span against all other submissions. Both kinds use Student's t with a pooled variance, because one side may contain
    a single submission. The smallest p-value is used, after Bonferroni's correction for the number of positions or
    spans, each at half the level. If this p-value is significant, the resulting parts of the series are searched
    recursively. In a series of only two submissions, the runs of both are compared (Welch's t-test), because the
    variation between submissions is unknown.

    Parameters
    ----------
    points
        Points of a series, in chronological order.
    tests
        Number of series tested together, for Bonferroni's correction.
    """
    if len(points) == 2:
        change = _compare_runs(*points)
        return [change] if change and tests * change.p < LEVEL else []
    values = [point.log_speed for point in points]
    places = _find_places(values, tests)
    starts = [0, *sorted(places), len(values)]
    means = [fmean(values[first:last]) for first, last in pairwise(starts)]
    return [
        LevelChange(at, math.exp(after - before), places[at])
        for at, (before, after) in zip(starts[1:-1], pairwise(means), strict=True)
    ]


def _find_places(values: Sequence[float], tests: int, start: int = 0) -> dict[int, float]:
    """Return corrected p-values, keyed by the index at which a level may begin (excluding the first)."""
    size = len(values)
    if size < 3:  # variation between submissions is unknown
        return {}
    splits = [(at, size) for at in range(1, size)]
    spans = [(first, last) for first in range(1, size) for last in range(first + 2, size)]
    candidates = [(_test(values, *span) * 2 * tests * len(kind), span) for kind in (splits, spans) for span in kind]
    p, (first, last) = min(candidates)
    if p >= LEVEL:
        return {}
    ends = [0, first, last, *([size] if last < size else [])]
    places = {start + end: p for end in ends[1:] if end < size}
    for begin, end in pairwise(ends):
        places |= _find_places(values[begin:end], tests, start + begin)
    return places


def _test(values: Sequence[float], first: int, last: int) -> float:
    """Return the p-value of the hypothesis that values `first` to `last` have the same mean as the other values."""
    inside, others = values[first:last], [*values[:first], *values[last:]]
    difference, freedom = fmean(inside) - fmean(others), len(values) - 2
    squares = math.fsum((value - fmean(side)) ** 2 for side in (inside, others) for value in side)
    error = math.sqrt(squares / freedom * (1 / len(inside) + 1 / len(others)))
    if error < 1e-12:  # no variation except rounding
        return 0.0 if abs(difference) > 1e-9 else 1.0
    return Mean(difference, error, freedom, len(values)).p_two_sided()


def _compare_runs(old: SubmissionSpeed, new: SubmissionSpeed) -> LevelChange | None:
    difference = welch(list(map(math.log, new.speeds)), list(map(math.log, old.speeds)))
    if difference.error is None:
        return None
    return LevelChange(1, math.exp(difference.estimate), difference.p_two_sided())


def split_levels(points: Sequence[SubmissionSpeed], changes: Sequence[LevelChange]) -> list[SpeedLevel]:
    """Return the levels between the changes."""
    ends = [0, *(change.at for change in changes), len(points)]
    return [
        SpeedLevel(first, last - 1, fmean(point.log_speed for point in points[first:last]))
        for first, last in pairwise(ends)
    ]
