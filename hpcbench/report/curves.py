"""Training loss over time, and losses of two runs at equal time."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from hpcbench.collect.run_log import RunLog
from hpcbench.report.statistics import is_usable

WINDOW = 0.05
"""Window of averaged losses as a fraction of a run's steps. Single losses mostly depend on the batch."""


@dataclass(frozen=True)
class Curve:
    """Training loss as a function of the time spent in steps, including the warm-up."""

    times: list[float]
    """End time of each record in seconds, in ascending order."""
    losses: list[float]

    def loss_at(self, seconds: float, window: int) -> float | None:
        """Return the mean of the last `window` losses up to a given time, or None if one is missing or not finite."""
        done = bisect_right(self.times, seconds)
        last = self.losses[done - window : done] if done >= window else []
        return fmean(last) if last and all(map(is_usable, last)) else None


def read_curve(log: RunLog | None) -> Curve | None:
    """Return the training curve of a run, or None if the run was resumed or its log has gaps.

    The time of missing steps is unknown. A log may contain one line for several steps.
    """
    if log is None or log.resumed_from or not log.steps:
        return None
    numbers = list(log.steps)
    each = numbers[0]
    if each < 1 or numbers[-1] != each * len(numbers) or numbers != list(range(each, numbers[-1] + 1, each)):
        return None
    seconds, losses = log.steps.column("seconds"), log.steps.column("loss")
    if not len(seconds) == len(losses) == len(numbers) or not min(seconds) > 0:
        return None
    times = [each * time for time in accumulate(seconds)]
    # The sum is NaN or infinite if any of the times is.
    return Curve(times, losses) if is_usable(times[-1]) else None


def find_losses_at_equal_time(mine: Curve | None, other: Curve | None) -> tuple[float | None, float | None]:
    """Return the losses of two runs at the end of the faster run, or None if a curve is missing or too short."""
    if mine is None or other is None:
        return None, None
    window = max(1, round(WINDOW * min(len(mine.times), len(other.times))))
    until = min(mine.times[-1], other.times[-1])
    return mine.loss_at(until, window), other.loss_at(until, window)
