"""Figures of a run's log that follow from each other: whether each step's do, up to the digits that were printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import inf, isfinite

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.steps import Steps
from hpcbench.collect.submission import RunResult
from hpcbench.contract.text import printable
from hpcbench.report.basis import Basis
from hpcbench.report.traffic import TimeSplit, Traffic

TOLERANCE = 0.01
"""Part by which a printed figure may differ from the one recomputed before it is worth a sentence."""
_DISTINCT = 3
"""Different values that are needed to tell digits that were not printed from zeros."""
_SAMPLE = 200
"""Values that tell to how many digits a column was printed."""


@dataclass(frozen=True)
class Relation:
    """``printed x times / over`` is `expected` at every step; where that is unknown, it is the same at all of them."""

    printed: str
    """A column of `Steps`, as are `times` and `over`."""
    times: str | None = None
    over: str | None = None
    expected: float | None = None


@dataclass(frozen=True)
class Mismatch:
    """The first step whose figures do not follow from each other."""

    line: int
    printed: float
    recomputed: float
    """What would have been printed."""
    value: float
    """Of the relation at that step."""
    expected: float
    reference: int | None
    """Line that `expected` was taken from; None where it is what is known of the run."""
    count: int
    """Steps that do not fit."""
    of: int

    @property
    def ratio(self) -> float:
        """Of `printed` to `recomputed`."""
        return self.value / self.expected


def mismatch(steps: Steps, relation: Relation, units: Mapping[str, float]) -> Mismatch | None:
    """Look for steps at which a relation does not hold.

    Parameters
    ----------
    units
        Column -> unit of the last digit that it is printed with; found out from the values for those that are not here.

    Where `expected` is unknown, the step that is compared with is that of the median value: it is one of the log's own,
    and no mean of figures that disagree.

    Returns
    -------
    Mismatch or None
        None where it holds, up to `TOLERANCE` and the rounding of what was printed, and where the log lacks a column.
    """
    names = [name for name in (relation.printed, relation.times, relation.over) if name is not None]
    figures = steps.aligned(*names)
    values = _values(relation, figures)
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
    halves = [(units.get(name) or unit(column)) / 2 for name, column in zip(names, figures, strict=True)]

    def bounds(row: int) -> tuple[float, float]:
        return _bounds(relation, [column[row] for column in figures], halves)

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
    """Whether all are, whatever was rounded: most logs hold to that, and need no closer look."""
    low, high = expected * (1 - TOLERANCE), expected * (1 + TOLERANCE)
    return isfinite(sum(values)) and low <= min(values) and max(values) <= high


def _values(relation: Relation, figures: Sequence[Sequence[float]]) -> list[float]:
    printed, *others = figures
    if relation.times and relation.over:
        return [p * t / o if o else 0.0 for p, t, o in zip(printed, *others, strict=True)]
    if relation.times:
        return [p * t for p, t in zip(printed, *others, strict=True)]
    if relation.over:
        return [p / o if o else 0.0 for p, o in zip(printed, *others, strict=True)]
    return list(printed)


def _bounds(relation: Relation, figures: Sequence[float], halves: Sequence[float]) -> tuple[float, float]:
    """Least and most that a relation's value may have been before its figures were rounded."""
    below = [(max(figure - half, 0.0),) for figure, half in zip(figures, halves, strict=True)]
    above = [(figure + half,) for figure, half in zip(figures, halves, strict=True)]
    if relation.over:  # a divisor that may have been 0 leaves the value without an upper bound
        below[-1], above[-1] = above[-1], below[-1]
    unbounded = relation.over and not above[-1][0]
    return _values(relation, below)[0], inf if unbounded else _values(relation, above)[0]


def unit(values: Sequence[float]) -> float:
    """Unit of the last digit that a column was printed with: the smallest that any of its values shows.

    Values that are all alike may end in zeros that were printed: they are taken to have three digits at least.
    """
    shown = {value for value in values[:_SAMPLE] if isfinite(value) and value}
    # twelve digits are more than any log prints, and fewer than what scaling a figure by its unit disturbs
    decimals = [Decimal(f"{value:.12g}").normalize() for value in shown]
    last = min((int(value.as_tuple().exponent) for value in decimals), default=0)
    if len(shown) < _DISTINCT:
        last = min([last, *(value.adjusted() - 2 for value in decimals)])
    return 10.0**last


_COUNTS = {"consumed_samples": 1.0}
"""Of what no framework rounds."""
_UNITS = {
    "seconds": 1e-6,
    "samples_per_s": 1e-2,
    "model_flops_per_rank": 1e6,
    "hardware_flops_per_rank": 1e6,
}
"""Of the last digits in our own lines."""


@dataclass(frozen=True)
class Subject:
    """A run, its log, and what was taken from them."""

    run: RunResult
    log: RunLog
    basis: Basis
    channels: tuple[Traffic, ...]
    """What each channel carried."""
    time: TimeSplit | None
    """Where the time of a step went."""

    @property
    def id(self) -> str:
        """The run's name, fit to be printed."""
        return printable(self.run.id, 80)

    @property
    def own(self) -> bool:
        """Whether the log is one of hpcbench."""
        return self.log.dialect == "hpcbench"

    def at(self, line: int | None, words: str) -> str:
        """A sentence on a line of the log, or on all of it."""
        place = printable(str(self.log.path) if line is None else self.log.where(line))
        return f"{self.id}: {place}: {words}"

    def mismatch(self, relation: Relation) -> Mismatch | None:
        """The first step at which a relation does not hold."""
        return mismatch(self.log.steps, relation, _UNITS if self.own else _COUNTS)
