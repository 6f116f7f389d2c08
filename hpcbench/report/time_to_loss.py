"""Time to a loss: time spent in steps until a run reaches the final loss of another run.

The target is the other run's last validation loss plus the study's margin. Losses are interpolated linearly between
evaluations. If a run has fewer than two evaluations, the mean training loss of the last steps replaces the validation
loss in both runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from hpcbench.collect.run_log import RunLog
from hpcbench.report.curves import WINDOW, Curve, read_curve
from hpcbench.report.statistics import is_usable

Basis = Literal["validation", "training"]
Points = Sequence[tuple[float, float]]
"""Pairs (time, loss) in chronological order, with times in seconds since the start of the run."""


@dataclass(frozen=True)
class TimeToLoss:
    """Times in seconds until two runs reached the final loss of the second run."""

    target: float
    basis: Basis
    """Kind of loss."""
    mine: float | None
    """Time of the first run in seconds, or None if it never reached the loss."""
    other: float


def compare_times_to_loss(mine: RunLog | None, other: RunLog | None, margin: float) -> TimeToLoss | None:
    """Compare the times until two runs reach the final loss of the second run, increased by the fraction `margin`.

    The result is None if the step times of a run are unknown, or if the second run has no final loss.
    """
    ours, theirs = read_curve(mine), read_curve(other)
    if mine is None or other is None or ours is None or theirs is None:
        return None
    basis: Basis = "validation"
    a, b = list_evaluations(mine, ours), list_evaluations(other, theirs)
    if min(len(a), len(b)) < 2:
        basis, (a, b) = "training", _smooth_losses(ours, theirs)
    if not b or not is_usable(b[-1][1]):
        return None
    target = b[-1][1] + margin * abs(b[-1][1])
    reached = find_first_time(b, target)
    return None if reached is None else TimeToLoss(target, basis, find_first_time(a, target), reached)


def list_evaluations(log: RunLog, along: Curve) -> Points:
    """Return pairs of time and validation loss.

    The time of an evaluation is the end of the preceding step, because evaluations are not timed.
    """
    ends = dict(zip(log.steps, along.times, strict=True))
    losses = {0.0 if not step else ends.get(step): loss for step, loss in log.evaluations.items()}
    return sorted((time, loss) for time, loss in losses.items() if time is not None)


def _smooth_losses(ours: Curve, theirs: Curve) -> tuple[Points, Points]:
    """Return training losses, smoothed over the same number of steps in both runs."""
    window = max(1, round(WINDOW * min(len(ours.times), len(theirs.times))))
    return _compute_means(ours, window), _compute_means(theirs, window)


def _compute_means(along: Curve, window: int) -> Points:
    fine = list(map(is_usable, along.losses))
    sums = list(accumulate((loss if ok else 0.0 for loss, ok in zip(along.losses, fine, strict=True)), initial=0.0))
    counts = list(accumulate(fine, initial=0))
    return [
        (along.times[done - 1], (sums[done] - sums[done - window]) / window)
        for done in range(window, len(along.times) + 1)
        if counts[done] - counts[done - window] == window
    ]


def find_first_time(points: Points, target: float) -> float | None:
    """Return the time at which the loss first reaches the target, by linear interpolation, or None if it never does.

    NaN and infinite losses interrupt the interpolation.
    """
    before: tuple[float, float] | None = None
    for time, loss in points:
        if not is_usable(loss):
            before = None
            continue
        if loss <= target:
            if before is None:
                return time
            part = (before[1] - target) / (before[1] - loss)
            return before[0] + part * (time - before[0])
        before = time, loss
    return None
