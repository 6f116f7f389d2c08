"""Relations between a log's numbers, checked at each step up to the printed digits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import inf, isfinite

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.steps import Steps
from hpcbench.collect.submission import RunResult
from hpcbench.contract.text import make_printable
from hpcbench.report.basis import Basis
from hpcbench.report.traffic import TimeSplit, TrafficSum

TOLERANCE = 0.01
"""Relative difference between a printed and a recomputed value above which the difference is reported."""
_DISTINCT = 3
"""Number of distinct values needed to distinguish missing digits from printed zeros."""
_SAMPLE = 200
"""Number of values used to determine the printed digits of a column."""


@dataclass(frozen=True)
class Relation:
    """A relation: ``printed x times / over`` equals `expected` at every step.

    If `expected` is unknown, the value must be constant over the steps.
    """

    printed: str
    """Column of `Steps`, like `times` and `over`."""
    times: str | None = None
    over: str | None = None
    expected: float | None = None


@dataclass(frozen=True)
class Mismatch:
    """First step that violates a relation."""

    line: int
    printed: float
    recomputed: float
    """Value that the log should contain."""
    value: float
    """Value of the relation at this step."""
    expected: float
    reference: int | None
    """Log line that `expected` was read from, or None if it is a known fact about the run."""
    count: int
    """Number of steps that violate the relation."""
    of: int

    @property
    def ratio(self) -> float:
        """Ratio of `printed` to `recomputed`."""
        return self.value / self.expected


def find_mismatch(steps: Steps, relation: Relation, units: Mapping[str, float]) -> Mismatch | None:
    """Return the first step that violates a relation by more than `TOLERANCE` and rounding, or None if no step does.

    `units` maps columns to the unit of their last printed digit. The unit of other columns is derived from their
    values. If `expected` is unknown, steps are compared with the median step, because the mean of contradictory values
    is meaningless. The result is also None if the log lacks a column.
    """
    names = [name for name in (relation.printed, relation.times, relation.over) if name is not None]
    figures = steps.aligned(*names)
    values = _compute_values(relation, figures)
    if not values:
        return None
    place, expected = None, relation.expected
    if _is_close(values, expected or min(values)):
        return None
    if expected is None:
        place = sorted(range(len(values)), key=values.__getitem__)[len(values) // 2]
        expected = values[place]
    if not expected or not isfinite(expected):
        return None
    lines = [int(line) for line in steps.aligned("line", *names)[0]]
    reference = lines[place] if place is not None else None
    halves = [(units.get(name) or find_unit(column)) / 2 for name, column in zip(names, figures, strict=True)]

    def bounds(row: int) -> tuple[float, float]:
        return _compute_bounds(relation, [column[row] for column in figures], halves)

    least, most = (expected, expected) if place is None else bounds(place)
    wrong = []
    for row in range(len(values)):
        low, high = bounds(row)
        if not (low * (1 - TOLERANCE) <= most and least <= high * (1 + TOLERANCE)):
            wrong.append(row)
    if not wrong:
        return None
    first = wrong[0]
    printed, value = figures[0][first], values[first]
    recomputed = printed * (expected / value) if value else 0.0
    return Mismatch(lines[first], printed, recomputed, value, expected, reference, len(wrong), len(values))


def _is_close(values: Sequence[float], expected: float) -> bool:
    """Return whether all values are close, ignoring rounding. Most logs pass and need no exact check."""
    low, high = expected * (1 - TOLERANCE), expected * (1 + TOLERANCE)
    return isfinite(sum(values)) and low <= min(values) and max(values) <= high


def _compute_values(relation: Relation, figures: Sequence[Sequence[float]]) -> list[float]:
    printed, *others = figures
    if relation.times and relation.over:
        return [p * t / o if o else 0.0 for p, t, o in zip(printed, *others, strict=True)]
    if relation.times:
        return [p * t for p, t in zip(printed, *others, strict=True)]
    if relation.over:
        return [p / o if o else 0.0 for p, o in zip(printed, *others, strict=True)]
    return list(printed)


def _compute_bounds(relation: Relation, figures: Sequence[float], halves: Sequence[float]) -> tuple[float, float]:
    """Return the range of a relation's value before its inputs were rounded."""
    below = [(max(figure - half, 0.0),) for figure, half in zip(figures, halves, strict=True)]
    above = [(figure + half,) for figure, half in zip(figures, halves, strict=True)]
    if relation.over:  # without an upper bound if the divisor may have been 0
        below[-1], above[-1] = above[-1], below[-1]
    unbounded = relation.over and not above[-1][0]
    return _compute_values(relation, below)[0], inf if unbounded else _compute_values(relation, above)[0]


def find_unit(values: Sequence[float]) -> float:
    """Return the unit of a column's last printed digit: the smallest unit among its values.

    Equal values may end in printed zeros. At least three digits are assumed.
    """
    shown = {value for value in values[:_SAMPLE] if isfinite(value) and value}
    # Logs print fewer than twelve digits; rounding errors of a scaled unit affect later digits.
    decimals = [Decimal(f"{value:.12g}").normalize() for value in shown]
    last = min((int(value.as_tuple().exponent) for value in decimals), default=0)
    if len(shown) < _DISTINCT:
        last = min([last, *(value.adjusted() - 2 for value in decimals)])
    return 10.0**last


_COUNTS = {"consumed_samples": 1.0}
"""Columns that frameworks do not round."""
_UNITS = {
    "seconds": 1e-6,
    "samples_per_s": 1e-2,
    "model_flops_per_rank": 1e6,
    "hardware_flops_per_rank": 1e6,
}
"""Unit of the last digit for columns of hpcbench's own logs."""


@dataclass(frozen=True)
class CheckedRun:
    """A run with its log and derived numbers."""

    run: RunResult
    log: RunLog
    basis: Basis
    channels: tuple[TrafficSum, ...]
    """Traffic of each channel."""
    time: TimeSplit | None
    """Breakdown of the step time."""

    @property
    def id(self) -> str:
        """Printable run name."""
        return make_printable(self.run.id, 80)

    @property
    def own(self) -> bool:
        """Whether hpcbench wrote the log."""
        return self.log.dialect == "hpcbench"

    def at(self, line: int | None, text: str) -> str:
        """Format a sentence about one log line or about the whole log."""
        place = make_printable(str(self.log.path) if line is None else self.log.where(line))
        return f"{self.id}: {place}: {text}"

    def mismatch(self, relation: Relation) -> Mismatch | None:
        """Return the first step that violates a relation."""
        return find_mismatch(self.log.steps, relation, _UNITS if self.own else _COUNTS)
