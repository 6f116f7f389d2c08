"""Losses of repeated runs as one curve with a band, thinned to what a figure can show."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from hpcbench.report.compare import Row
from hpcbench.report.measures import Measures
from hpcbench.report.statistics import mean_interval, usable

Along = Literal["steps", "seconds"]
MOST_POINTS = 40
"""Of a curve. More make it no clearer at the width of a panel; their means also smooth it."""


@dataclass(frozen=True)
class Point:
    """Mean of the repeats at one place, with the band around it."""

    x: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """A scheme's losses."""

    points: tuple[Point, ...]
    """As far as all losses are finite."""
    evaluations: tuple[Point, ...]
    """Losses on validation data."""
    broken: bool
    """A loss that is no number ended the curve."""
    runs: int
    """Repeats that it is the mean of."""


def shown_runs(row: Row) -> list[Measures]:
    """Runs whose losses are drawn: those that came to their end, by divergence too, or else those that have any."""
    known = [run for run in row.runs if run.run.log is not None and run.run.log.steps.column("loss")]
    return [run for run in known if run.run.state in ("completed", "nan")] or known


def bin_width(rows: Sequence[Row]) -> int:
    """Steps that make one point, the same for all curves of a figure."""
    lasts = [run.run.log.steps.last for row in rows for run in shown_runs(row) if run.run.log]
    longest = max((last.step for last in lasts if last), default=1)
    return max(1, -(-longest // MOST_POINTS))


def curve(row: Row, along: Along, width: int) -> Curve:
    """The losses of a scheme.

    Parameters
    ----------
    row
        The scheme in its cell.
    along
        What lies on the x axis: step numbers, or seconds since the run began. A run that was resumed has no seconds:
        its log does not tell how long the steps before took.
    width
        Steps that make one point: their mean.
    """
    runs = [run for run in shown_runs(row) if along == "steps" or not (run.run.log and run.run.log.resumed_from)]
    places: dict[int, list[tuple[float, float]]] = {}
    evaluated: dict[int, list[tuple[float, float]]] = {}
    for run in runs:
        path = _path(run, along)
        bins: dict[int, list[tuple[float, float]]] = {}
        for step, (x, loss) in path.items():
            bins.setdefault((step - 1) // width, []).append((x, loss))
        for k, inside in bins.items():
            places.setdefault(k, []).append((fmean(x for x, _ in inside), _mean(loss for _, loss in inside)))
        for step, loss in run.run.log.evaluations.items() if run.run.log else ():
            if step in path and step:  # what a random model has would set the scale
                evaluated.setdefault(step, []).append((path[step][0], loss))
    whole = [_point(places[k]) for k in sorted(places)]
    end = next((k for k, point in enumerate(whole) if not math.isfinite(point.mean)), len(whole))
    marks = [_point(evaluated[step]) for step in sorted(evaluated) if end == len(whole) or (step - 1) // width < end]
    finite = tuple(mark for mark in marks if math.isfinite(mark.mean))
    return Curve(tuple(whole[:end]), finite, end < len(whole), len(runs))


def band_words(runs: int) -> str:
    """What a line and the band around it are."""
    if runs < 2:
        return "1 run"
    return "mean and range of 2 runs" if runs == 2 else f"mean of {runs} runs and its 95 % interval"


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the ends of its band: Student's 95 % interval, of two values both, of one none."""
    middle = _mean(values)
    if len(values) < 3 or not math.isfinite(middle):
        return middle, min(values), max(values)
    interval = mean_interval(values)
    low, high = (middle if end is None else end for end in (interval.low, interval.high))
    return middle, low, high


def _point(values: Sequence[tuple[float, float]]) -> Point:
    return Point(fmean(x for x, _ in values), *spread([y for _, y in values]))


def _mean(values: Iterable[float]) -> float:
    """Mean that is no number where one of the values is none, or is beyond all measure."""
    own = list(values)
    return fmean(own) if all(map(usable, own)) else math.nan


def _path(run: Measures, along: Along) -> dict[int, tuple[float, float]]:
    """Place and loss of each step of a run."""
    log = run.run.log
    if log is None:
        return {}
    if along == "steps":
        return {int(step): (step, loss) for step, loss in sorted(log.steps.columns("step", "loss"))}
    found: dict[int, tuple[float, float]] = {}
    passed, before = 0.0, 0.0
    for step, loss, seconds in sorted(log.steps.columns("step", "loss", "seconds"), key=lambda row: row[0]):
        if not (usable(seconds) and seconds >= 0):
            continue
        # A log with a line every ten steps gives the mean time of the ten.
        passed += seconds * (step - before)
        before = step
        found[int(step)] = (passed, loss)
    return found
