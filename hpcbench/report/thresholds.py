"""The bounds that a study set for its runs, and the bounds that are broken."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpcbench.contract.criteria import Quantity, QuantityBound
from hpcbench.report.compare import Cell
from hpcbench.report.evidence import by_pairing
from hpcbench.report.measures import Measures, common_rate
from hpcbench.report.quantities import Quantity as Measured
from hpcbench.report.quantities.speed import LOSS_VALID, MFU, MODEL_FLOPS, SAMPLES, STEP_SECONDS, TOKENS
from hpcbench.report.quantities.traffic import WIRE


@dataclass(frozen=True)
class Judged:
    """One threshold, tested on one completed run."""

    run: Measures
    threshold: QuantityBound
    value: float | None
    """The value; None if the run does not give it, so that it is not known whether the bound is kept."""

    @property
    def kept(self) -> bool:
        """Whether the value is known and lies within the bounds. NaN lies outside."""
        low, high = self.threshold.min, self.threshold.max
        return self.value is not None and (low is None or self.value >= low) and (high is None or self.value <= high)

    def __str__(self) -> str:
        low, high = self.threshold.min, self.threshold.max
        asked = " and ".join(
            f"{words} {bound:g}" for words, bound in (("at least", low), ("at most", high)) if bound is not None
        )
        said = "is not known" if self.value is None else f"is {self.value:.6g}"
        return f"{self.threshold.quantity} {said}, asked for: {asked}"


def judge(cells: Sequence[Cell], thresholds: Sequence[QuantityBound]) -> list[Judged]:
    """Test each completed run against the thresholds that concern it.

    Runs that did not complete have no value to test. Their state is reported instead.
    """
    found = []
    for cell in cells if thresholds else ():
        base = cell.row(cell.baseline)
        pairs = by_pairing(base.runs if base else ())
        for measures in cell.runs:
            run = measures.run
            if run.state == "completed":
                own = [threshold for threshold in thresholds if threshold.concerns(run.scheme, run.cell)]
                other = pairs.get(run.pairing)
                found += [Judged(measures, one, _VALUES[one.quantity](measures, other)) for one in own]
    return found


def broken(cells: Sequence[Cell], thresholds: Sequence[QuantityBound]) -> list[str]:
    """Return a line for each bound that is not shown to be kept, with the log of its run."""
    return [
        f"{one.run.run.id}: {one}" + (f" ({one.run.run.log.path})" if one.run.run.log else "")
        for one in judge(cells, thresholds)
        if not one.kept
    ]


def _ratio(run: Measures, base: Measures | None) -> float | None:
    rates = common_rate(run, base) if base is not None else None
    return rates[0] / rates[1] if rates else None


def _difference(run: Measures, base: Measures | None) -> float | None:
    if base is None or base.loss_valid is None or run.loss_valid is None:
        return None
    return run.loss_valid - base.loss_valid


def _own(quantity: Measured, scale: float = 1.0) -> Callable[[Measures, Measures | None], float | None]:
    """Return a value that belongs to the run alone."""

    def value(run: Measures, base: Measures | None) -> float | None:
        found = quantity.compute(run)
        return None if found is None or found == "unknown" else found / scale

    return value


_VALUES: dict[Quantity, Callable[[Measures, Measures | None], float | None]] = {
    "samples_per_s": _own(SAMPLES),
    "tokens_per_s": _own(TOKENS),
    "step_seconds": _own(STEP_SECONDS),
    "mfu": _own(MFU),
    "wire_over_message": _own(WIRE),
    "tflops": _own(MODEL_FLOPS, 1e12),
    "loss": _own(LOSS_VALID),
    "speed_ratio": _ratio,
    "loss_difference": _difference,
}
