"""Tests of a study's thresholds, for each run or for the mean over the runs of a scheme and cell."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hpcbench.contract.criteria import Quantity, QuantityBound
from hpcbench.report.compare import Cell
from hpcbench.report.evidence import index_by_pairing
from hpcbench.report.measures import Measures, compute_common_rate, select_completed
from hpcbench.report.quantities import Quantity as Measured
from hpcbench.report.quantities.speed import LOSS_VALID, MFU, MODEL_FLOPS, SAMPLES, STEP_SECONDS, TOKENS
from hpcbench.report.quantities.traffic import WIRE
from hpcbench.report.statistics import Interval, Mean, estimate_mean, exponentiate, is_usable

State = Literal["met", "violated", "inconclusive", "unknown"]


@dataclass(frozen=True)
class ThresholdTest:
    """Result of a threshold for one completed run, or for all completed runs of a scheme and cell."""

    runs: tuple[Measures, ...]
    threshold: QuantityBound
    value: float | None
    """Value of the run, or mean over the runs, or None if a log does not contain it."""
    state: State
    interval: Interval | None = None
    """Interval of the mean, whose bounds are the bounds of the one-sided tests."""

    @property
    def kept(self) -> bool:
        """Whether the threshold is met.

        If the value is unknown or the test is inconclusive, the threshold is not met.
        """
        return self.state == "met"

    def __str__(self) -> str:
        threshold = self.threshold
        bounds = {"at least": threshold.lowest, "at most": threshold.highest}
        wanted = " and ".join(f"{side} {bound:g}" for side, bound in bounds.items() if bound is not None)
        value = "is not known" if self.value is None else f"is {self.value:.6g}"
        if threshold.confidence is None:
            return f"{threshold.quantity} {value}; the threshold is {wanted}"
        interval = self.interval
        if interval is not None and interval.low is not None and interval.high is not None:
            value += f" ({interval.low:.6g} to {interval.high:.6g})"
        return (
            f"{threshold.quantity} {value}; the threshold is {wanted} at {100 * threshold.confidence:g} %: {self.state}"
        )


def check_thresholds(cells: Sequence[Cell], thresholds: Sequence[QuantityBound]) -> list[ThresholdTest]:
    """Test completed runs against the applicable thresholds.

    Incomplete runs have no value to test, so their state is reported instead.
    """
    return [test for cell in cells if thresholds for test in _check_cell(cell, thresholds)]


def _check_cell(cell: Cell, thresholds: Sequence[QuantityBound]) -> Iterator[ThresholdTest]:
    base = cell.row(cell.baseline)
    pairs = index_by_pairing(base.runs if base else ())
    for row in cell.rows:
        completed = tuple(select_completed(row.runs))
        for threshold in thresholds if completed else ():
            if not threshold.concerns(row.scheme, completed[0].run.cell):
                continue
            values = [_VALUES[threshold.quantity](run, pairs.get(run.run.pairing)) for run in completed]
            if threshold.confidence is not None:
                yield decide_mean(completed, threshold, values)
                continue
            for run, value in zip(completed, values, strict=True):
                yield ThresholdTest((run,), threshold, value, _compare(value, threshold))


def _compare(value: float | None, threshold: QuantityBound) -> State:
    """Compare a value with the bounds. NaN is out of bounds."""
    if value is None:
        return "unknown"
    low, high = threshold.lowest, threshold.highest
    return "met" if (low is None or value >= low) and (high is None or value <= high) else "violated"


def decide_mean(runs: tuple[Measures, ...], threshold: QuantityBound, values: Sequence[float | None]) -> ThresholdTest:
    """Test the mean of the values with one-sided tests.

    Positive quantities are compared on a logarithmic scale, as speeds are elsewhere in the report.
    """
    if any(value is None for value in values):
        return ThresholdTest(runs, threshold, None, "unknown")
    numbers = [value for value in values if value is not None]
    if not all(map(is_usable, numbers)):
        return ThresholdTest(runs, threshold, math.nan, "violated")
    low, high, level = threshold.lowest, threshold.highest, 1 - (threshold.confidence or 0)
    bounds = [bound for bound in (low, high) if bound is not None]
    logarithmic = threshold.quantity not in ("loss", "loss_difference") and min(*numbers, *bounds, math.inf) > 0
    scale: Callable[[float], float] = math.log if logarithmic else float
    mean = estimate_mean([scale(number) for number in numbers])
    interval = mean.interval(1 - 2 * level) if level < 0.5 else mean.interval(0)
    shown = exponentiate(interval) if logarithmic else interval
    if not mean.error:
        # Without scatter the value itself decides. A single run has an unknown scatter.
        state: State = "inconclusive" if mean.error is None else _compare(numbers[0], threshold)
    else:
        state = _decide(mean, None if low is None else scale(low), None if high is None else scale(high), level)
    return ThresholdTest(runs, threshold, shown.estimate, state, shown)


def _decide(mean: Mean, low: float | None, high: float | None, level: float) -> State:
    below, above = low is not None and mean.p_less(low) <= level, high is not None and mean.p_greater(high) <= level
    if below or above:
        return "violated"
    within = (low is None or mean.p_greater(low) <= level) and (high is None or mean.p_less(high) <= level)
    return "met" if within else "inconclusive"


def list_broken(cells: Sequence[Cell], thresholds: Sequence[QuantityBound]) -> list[str]:
    """Return one line per threshold that is not met, citing the run's log or the scheme."""
    return [f"{_name(test)}: {test}{_cite(test)}" for test in check_thresholds(cells, thresholds) if not test.kept]


def count_states(cells: Sequence[Cell], thresholds: Sequence[QuantityBound]) -> list[str]:
    """Summarize the thresholds with a confidence level in one sentence.

    The list is empty if there are no such thresholds.
    """
    tests = [test for test in check_thresholds(cells, thresholds) if test.threshold.confidence is not None]
    states = ("met", "violated", "inconclusive", "unknown")
    counts = [f"{count} {state}" for state in states if (count := sum(test.state == state for test in tests))]
    return [f"Thresholds with a confidence: {', '.join(counts)}."] if counts else []


def _name(test: ThresholdTest) -> str:
    run = test.runs[0].run
    return run.id if test.threshold.confidence is None else f"{run.scheme}, {len(test.runs)} runs"


def _cite(test: ThresholdTest) -> str:
    log = test.runs[0].run.log
    return f" ({log.path})" if log and test.threshold.confidence is None else ""


def _compute_ratio(run: Measures, base: Measures | None) -> float | None:
    rates = compute_common_rate(run, base) if base is not None else None
    return rates[0] / rates[1] if rates else None


def _compute_difference(run: Measures, base: Measures | None) -> float | None:
    if base is None or base.loss_valid is None or run.loss_valid is None:
        return None
    return run.loss_valid - base.loss_valid


def _read_run_value(quantity: Measured, scale: float = 1.0) -> Callable[[Measures, Measures | None], float | None]:
    """Return a function that reads a value without using the baseline."""

    def compute(run: Measures, base: Measures | None) -> float | None:
        value = quantity.compute(run)
        return None if value is None or value == "unknown" else value / scale

    return compute


_VALUES: dict[Quantity, Callable[[Measures, Measures | None], float | None]] = {
    "samples_per_s": _read_run_value(SAMPLES),
    "tokens_per_s": _read_run_value(TOKENS),
    "step_seconds": _read_run_value(STEP_SECONDS),
    "mfu": _read_run_value(MFU),
    "wire_over_message": _read_run_value(WIRE),
    "tflops": _read_run_value(MODEL_FLOPS, 1e12),
    "loss": _read_run_value(LOSS_VALID),
    "speed_ratio": _compute_ratio,
    "loss_difference": _compute_difference,
}
