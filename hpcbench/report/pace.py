"""Speed of a run over some of its steps: the work that they did, divided by the time that they took.

A median step would hide every step that stalled. So step times are averaged, and rates are averaged over time.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean, median, quantiles

from hpcbench.collect.run_log import RunLog
from hpcbench.report.basis import Basis
from hpcbench.report.statistics import usable

Rates = tuple[float | None, ...]
"""Work per second in samples, tokens, tokens of a rank, and steps.

If runs differ in nothing else, the ratio of any of these is the ratio of their speeds.
"""
_RATES = ("samples_per_s", "tokens_per_s", "tokens_per_s_per_rank")


@dataclass(frozen=True)
class Pace:
    """Work per second over some steps, and the times of these steps. A value is None if the log does not give it."""

    samples_per_s: float | None
    tokens_per_s: float | None
    tokens_per_s_per_rank: float | None
    step_seconds: float | None
    """Mean step time, by which work per second is computed."""
    step_seconds_median: float | None
    step_seconds_p95: float | None
    """Step time that 95 % of the steps do not exceed."""
    unevenness: float | None
    """Mean step time over the median; if step times are not known, steps took times that are inverse to a rate."""

    @property
    def rates(self) -> Rates:
        """Work per second, in the order of `Rates`."""
        steps = 1 / self.step_seconds if self.step_seconds else None
        return self.samples_per_s, self.tokens_per_s, self.tokens_per_s_per_rank, steps


def pace(log: RunLog, rests_on: Basis, steps: Container[float] | None = None) -> Pace:
    """Compute the speed over the counted steps, or over those that are among `steps`.

    Samples/s follow from the batch in the settings, else they are those that the log prints, or follow from the batch
    that every step line gives.
    """
    first = rests_on.first
    times = step_times(log, first, steps)
    seconds = fmean(times) if times else None
    if rests_on.batch and seconds:
        samples = rests_on.batch / seconds
    else:
        samples = mean_rate(log, "samples_per_s", first, steps)
        batches = set(_column(log, "samples", first, steps))
        if samples is None and len(batches) == 1 and seconds:
            samples = batches.pop() / seconds
    tokens = samples * rests_on.seq_len if samples and rests_on.seq_len else mean_rate(log, _RATES[1], first, steps)
    per_rank = tokens / rests_on.ranks if tokens and rests_on.ranks else mean_rate(log, _RATES[2], first, steps)
    middle, late = (median(times), _p95(times)) if times else (None, None)
    return Pace(samples, tokens, per_rank, seconds, middle, late, _unevenness(log, first, times))


def step_times(log: RunLog, first: int, steps: Container[float] | None = None) -> list[float]:
    """Step times from number `first` on, or of some of these steps, in the order of the log."""
    return [seconds for seconds in _column(log, "seconds", first, steps) if seconds > 0]


def mean_rate(log: RunLog, name: str, first: int, steps: Container[float] | None = None) -> float | None:
    """Mean over time of a rate that the log prints; None if it prints none.

    Each value counts by the time of its step. If step times are not known, all steps did the same work, so that the
    harmonic mean is the mean over time, and 0 if one of them is 0. The last one of running means is the mean over all
    steps.
    """
    values = _column(log, name, first, steps)
    if not values:
        return None
    if name in log.running_means or min(values) == max(values):
        return values[-1]
    timed = [
        (rate, time)
        for step, rate, time in log.steps.columns("step", name, "seconds", first=first)
        if time > 0 and usable(time) and usable(rate) and (steps is None or step in steps)
    ]
    if len(timed) == len(values):
        return fsum(rate * time for rate, time in timed) / fsum(time for _, time in timed)
    return len(values) / fsum(1 / value for value in values) if min(values) > 0 else 0.0


def _unevenness(log: RunLog, first: int, times: Sequence[float]) -> float | None:
    for name in _RATES:
        if not times and name not in log.running_means:
            times = [1 / rate for rate in log.steps.column(name, first=first) if rate > 0 and usable(1 / rate)]
    return fmean(times) / median(times) if times else None


def _p95(times: Sequence[float]) -> float:
    return quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]


def _column(log: RunLog, name: str, first: int, steps: Container[float] | None) -> list[float]:
    """A quantity of the steps from number `first` on, or of some of them. Values that have no mean are left out."""
    if steps is None:
        return [value for value in log.steps.column(name, first=first) if usable(value)]
    return [value for step, value in log.steps.columns("step", name, first=first) if step in steps and usable(value)]
