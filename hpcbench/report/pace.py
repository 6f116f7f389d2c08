"""Speed of a run over a subset of its steps: work divided by time.

Step times are averaged over steps, and rates over time. Medians are not used, because they would hide stalled steps.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from math import fsum, inf
from operator import mul
from statistics import median, quantiles

from hpcbench.collect.run_log import RunLog
from hpcbench.report.basis import Basis
from hpcbench.report.statistics import is_usable

Rates = tuple[float | None, ...]
"""Work per second: samples, tokens, tokens per rank, and steps.

For otherwise identical runs, the ratio of their speeds is the same for each of these rates.
"""
_RATES = ("samples_per_s", "tokens_per_s", "tokens_per_s_per_rank")
UNITS = ("samples/s", "tokens/s", "tokens/s/rank", "steps/s")
"""Units of `Rates`."""
_NONE = None, None, None


@dataclass(frozen=True)
class Pace:
    """Work per second over a set of steps, and the step times. Values missing from the log are None."""

    samples_per_s: float | None
    tokens_per_s: float | None
    tokens_per_s_per_rank: float | None
    step_seconds: float | None
    """Mean step time, from which the work per second is computed."""
    step_seconds_median: float | None
    step_seconds_p95: float | None
    """95th percentile of the step times."""
    unevenness: float | None
    """Mean step time divided by the median step time. If step times are unknown, inverse rates are used."""
    step_seconds_p99: float | None = None
    """99th percentile of the step times."""

    @property
    def rates(self) -> Rates:
        """Work per second, in the order of `Rates`."""
        steps = 1 / self.step_seconds if self.step_seconds else None
        return self.samples_per_s, self.tokens_per_s, self.tokens_per_s_per_rank, steps


def choose_rate(rates: Sequence[Rates]) -> int:
    """Return the index of the first rate that all runs provide, or of the rate that most of them provide."""
    return max(range(len(UNITS)), key=lambda index: sum(of_run[index] is not None for of_run in rates))


def compute_pace(log: RunLog, rests_on: Basis, steps: Container[float] | None = None) -> Pace:
    """Compute the speed over the counted steps, optionally restricted to `steps`.

    Samples/s are computed from the batch size in the settings. If that batch size is unknown, the samples/s in the log
    are used or, if these are missing, the batch size in the step lines.
    """
    first = rests_on.first
    times, seconds = read_step_times(log, first, steps), _compute_mean_time(log, first, steps)
    middle, late, latest = (median(times), *(_compute_percentile(times, part) for part in (95, 99))) if times else _NONE
    samples = rests_on.batch / seconds if rests_on.batch and seconds else None
    if samples is None:
        samples = compute_mean_rate(log, "samples_per_s", first, steps)
        batches = set(_select_lines(log, first, steps, "samples")[1])
        if samples is None and len(batches) == 1 and seconds:
            samples = batches.pop() / seconds
    tokens = (
        samples * rests_on.seq_len if samples and rests_on.seq_len else compute_mean_rate(log, _RATES[1], first, steps)
    )
    per_rank = tokens / rests_on.ranks if tokens and rests_on.ranks else compute_mean_rate(log, _RATES[2], first, steps)
    unevenness = _compute_unevenness(log, first, seconds, middle)
    return Pace(samples, tokens, per_rank, seconds, middle, late, unevenness, latest)


def read_step_times(log: RunLog, first: int, steps: Container[float] | None = None) -> list[float]:
    """Return the step times in log order, starting with step `first` and optionally restricted to `steps`."""
    return _select_lines(log, first, steps, "seconds")[1]


def compute_mean_rate(log: RunLog, name: str, first: int, steps: Container[float] | None = None) -> float | None:
    """Compute the time-weighted mean of a printed rate, or return None if the log does not contain the rate.

    Values are weighted by the time of their steps. If step times are unknown, all steps are assumed to do the same
    work, so the harmonic mean is used. The mean is 0 if any rate is 0. For running means, the last value is the mean
    over all steps.
    """
    numbers, rates = _select_lines(log, first, steps, name)
    if not rates:
        return None
    if name in log.running_means or min(rates) == max(rates):
        return rates[-1]
    timed, timed_rates, times = _select_lines(log, first, steps, name, "seconds")
    if timed == numbers:
        weights = [count * time for count, time in zip(_count_covered_steps(log, timed), times, strict=True)]
        return _compute_weighted_mean(timed_rates, weights)
    if min(rates) <= 0:
        return 0.0
    return 1 / _compute_weighted_mean([1 / rate for rate in rates], _count_covered_steps(log, numbers))


def _compute_mean_time(log: RunLog, first: int, steps: Container[float] | None) -> float | None:
    numbers, times = _select_lines(log, first, steps, "seconds")
    return _compute_weighted_mean(times, _count_covered_steps(log, numbers)) if times else None


def _compute_weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return fsum(map(mul, values, weights)) / fsum(weights)


def _count_covered_steps(log: RunLog, numbers: Sequence[float]) -> list[float]:
    """Return the number of steps that each line covers, given the lines' step numbers.

    Other frameworks may print one line for several steps, and the last line may cover fewer steps. For a line that
    follows missing lines, the usual number of steps is assumed.
    """
    ordered = sorted(log.steps) if log.dialect != "hpcbench" else []
    gaps = {step: step - before for before, step in pairwise(ordered)}
    if not gaps:
        return [1.0] * len(numbers)
    usual = median(gaps.values())
    return [min(gaps.get(int(step), usual), usual) for step in numbers]


def _compute_unevenness(log: RunLog, first: int, mean: float | None, middle: float | None) -> float | None:
    for name in _RATES:
        rate = None if mean or name in log.running_means else compute_mean_rate(log, name, first)
        if rate:
            mean, middle = 1 / rate, 1 / median(_select_lines(log, first, None, name)[1])
    return mean / middle if mean and middle else None


def _compute_percentile(times: Sequence[float], percent: int) -> float:
    return quantiles(times, n=100, method="inclusive")[percent - 1] if len(times) > 1 else times[0]


def _select_lines(log: RunLog, first: int, steps: Container[float] | None, *names: str) -> list[list[float]]:
    """Return step numbers and quantities of the steps with values for all quantities.

    Steps start at number `first` and are optionally restricted to `steps`. Values that cannot be averaged, and times
    that are not positive, are excluded.
    """
    columns = log.steps.aligned("step", *names, first=first)
    least = [0.0 if name == "seconds" else -inf for name in names]
    fits = [
        (steps is None or step in steps)
        and all(is_usable(value) and value > low for value, low in zip(values, least, strict=True))
        for step, *values in zip(*columns, strict=True)
    ]
    return columns if all(fits) else [list(compress(column, fits)) for column in columns]
