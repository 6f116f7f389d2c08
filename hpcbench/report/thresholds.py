"""Tests of a study's thresholds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpcbench.contract.criteria import Quantity, QuantityBound
from hpcbench.report.compare import Cell
from hpcbench.report.evidence import index_by_pairing
from hpcbench.report.measures import Measures, compute_common_rate
from hpcbench.report.quantities import Quantity as Measured
from hpcbench.report.quantities.speed import LOSS_VALID, MFU, MODEL_FLOPS, SAMPLES, STEP_SECONDS, TOKENS
from hpcbench.report.quantities.traffic import WIRE


@dataclass(frozen=True)
class ThresholdTest:
    """A threshold, tested on a completed run."""

    run: Measures
    threshold: QuantityBound
    value: float | None
    """Value of the run, or None if its log does not contain it."""

    @property
    def kept(self) -> bool:
        """Whether the value is known and within the bounds. NaN is out of bounds."""
        low, high = self.threshold.min, self.threshold.max
        return self.value is not None and (low is None or self.value >= low) and (high is None or self.value <= high)

    def __str__(self) -> str:
        bounds = {"at least": self.threshold.min, "at most": self.threshold.max}
        wanted = " and ".join(f"{side} {bound:g}" for side, bound in bounds.items() if bound is not None)
        value = "is not known" if self.value is None else f"is {self.value:.6g}"
        return f"{self.threshold.quantity} {value}, asked for: {wanted}"


def check_thresholds(cells: Sequence[Cell], thresholds: Sequence[QuantityBound]) -> list[ThresholdTest]:
    """Test each completed run against the applicable thresholds.

    Incomplete runs have no value to test. Their state is reported instead.
    """
    tests = []
    for cell in cells if thresholds else ():
        base = cell.row(cell.baseline)
        pairs = index_by_pairing(base.runs if base else ())
        for measures in cell.runs:
            run = measures.run
            if run.state != "completed":
                continue
            other = pairs.get(run.pairing)
            for threshold in thresholds:
                if threshold.concerns(run.scheme, run.cell):
                    value = _VALUES[threshold.quantity](measures, other)
                    tests.append(ThresholdTest(measures, threshold, value))
    return tests


def list_broken(cells: Sequence[Cell], thresholds: Sequence[QuantityBound]) -> list[str]:
    """Return one line per threshold that is not met or whose value is unknown, citing the run's log."""
    return [
        f"{test.run.run.id}: {test}" + (f" ({test.run.run.log.path})" if test.run.run.log else "")
        for test in check_thresholds(cells, thresholds)
        if not test.kept
    ]


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
