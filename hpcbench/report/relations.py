"""Figures of a log that follow from each other: whether each step's do, up to the digits that were printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite

from hpcbench.collect.steps import Steps

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
    ratio: float
    """Of `printed` to `recomputed`."""
    reference: int | None
    """Line that `recomputed` was taken from; None where it is what is known of the run."""
    count: int
    """Steps that do not fit."""
    of: int


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
    columns = list(zip(*steps.columns("line", *names), strict=True))
    if not columns:
        return None
    lines, figures = columns[0], columns[1:]
    values = _values(relation, figures)
    reference = None
    expected = relation.expected
    if expected is None:
        place = sorted(range(len(values)), key=values.__getitem__)[len(values) // 2]
        expected, reference = values[place], int(lines[place])
    if not expected or not isfinite(expected):
        return None
    low, high = expected * (1 - TOLERANCE), expected * (1 + TOLERANCE)
    if all(low <= value <= high for value in values):
        return None
    rounded = [units.get(name) or unit(column) for name, column in zip(names, figures, strict=True)]
    wrong = [
        place
        for place, value in enumerate(values)
        if not abs(value / expected - 1) <= TOLERANCE + _rounding(rounded, [column[place] for column in figures])
    ]
    if not wrong:
        return None
    first = wrong[0]
    printed = figures[0][first]
    ratio = values[first] / expected
    recomputed = printed / ratio if ratio else 0.0
    return Mismatch(int(lines[first]), printed, recomputed, ratio, reference, len(wrong), len(values))


def _values(relation: Relation, figures: Sequence[Sequence[float]]) -> list[float]:
    printed, *others = figures
    if relation.times and relation.over:
        return [p * t / o if o else 0.0 for p, t, o in zip(printed, *others, strict=True)]
    if relation.times:
        return [p * t for p, t in zip(printed, *others, strict=True)]
    if relation.over:
        return [p / o if o else 0.0 for p, o in zip(printed, *others, strict=True)]
    return list(printed)


def _rounding(units: Sequence[float], figures: Sequence[float]) -> float:
    """Part by which a product of rounded figures may be off."""
    return sum(unit / 2 / abs(figure) for unit, figure in zip(units, figures, strict=True) if figure)


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
