"""Pareto front of a cell: dominated schemes, the simplest scheme on that front, and sentences about both.

A scheme dominates another if it is significantly faster and its loss is no worse, or if its loss is significantly
better and it is no slower. Only significant differences count, so schemes on the front are not necessarily the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.present.notation import bounds
from hpcbench.report import sentences as say
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.duels import Duel
from hpcbench.report.findings import INCONCLUSIVE, Loss, Speed, SpeedFinding
from hpcbench.report.kinds import SchemeKind, has_half_messages, resolve_kind


@dataclass(frozen=True)
class Front:
    """Comparable schemes of a cell, starting with the baseline."""

    schemes: tuple[str, ...]
    duels: tuple[Duel, ...]
    """Comparisons of all pairs of schemes. Comparisons with the baseline use the same findings as the verdicts."""
    gains: tuple[Duel, ...] = ()
    """Speed of each scheme with a codec relative to each control without a codec.

    A codec pays only if the scheme is significantly faster than both the baseline and the control.
    """

    def gain(self, scheme: str, control: str) -> Duel | None:
        """Compare a scheme with a codec to a control without a codec, or return None if no pair exists."""
        return next((duel for duel in self.gains if (duel.scheme, duel.other) == (scheme, control)), None)

    def duel(self, scheme: str, other: str) -> Duel | None:
        """Return the comparison of two schemes from the perspective of the first, or None if they have no pair."""
        duel = next((duel for duel in self.duels if {duel.scheme, duel.other} == {scheme, other}), None)
        return duel.turn() if duel and duel.scheme == other else duel

    def beaten_by(self, scheme: str) -> list[str]:
        """Return the schemes that dominate a scheme."""
        sides = [duel if duel.other == scheme else duel.turn() for duel in self._of(scheme)]
        return [duel.scheme for duel in sides if duel.beats]

    @property
    def unbeaten(self) -> list[str]:
        """Schemes on the Pareto front."""
        return [scheme for scheme in self.schemes if not self.beaten_by(scheme)]

    def _of(self, scheme: str) -> list[Duel]:
        return [duel for duel in self.duels if scheme in (duel.scheme, duel.other)]


def compute_front(cell: Cell) -> Front:
    """Gather the pairwise comparisons of a cell's schemes, over runs of the same pairing.

    Schemes are excluded if they diverged, if they have no pair with the baseline, or if their codecs never ran.
    """
    base = cell.row(cell.baseline)
    if base is None or not base.completed:
        return Front((), ())
    rows = [row for row in cell.rows if row.compared and not row.idle]
    against_base = [Duel(row.scheme, base.scheme, row.speed, row.loss) for row in rows]
    return Front(tuple(row.scheme for row in (base, *rows)), (*against_base, *cell.duels), cell.gains)


def conclude(cell: Cell, pareto: Front) -> list[str]:
    """Compare the best scheme that uses a codec with cast-only schemes, and name the simplest scheme on the front.

    Table ``schemes`` compares all schemes with each other.
    """
    rows = _list_compared(cell, pareto)
    if not rows or cell.baseline is None:
        return []
    leader = _find_leader([row for row in rows if not row.kind.is_control])
    lines = _compare_with_casts(leader, cell, pareto) if leader else []
    return [*lines, _name_simplest(cell, find_simplest(cell, pareto))]


def find_simplest(cell: Cell, pareto: Front) -> list[str]:
    """Return the simplest schemes that are not dominated.

    Candidates are the baseline, controls without a significantly worse loss, and schemes that are significantly faster
    without a worse loss.
    """
    if cell.baseline is None or not pareto.schemes:
        return []
    kinds = {cell.baseline: SchemeKind.BASELINE}
    for row in _list_compared(cell, pareto):
        if is_good(row) or (row.kind.is_control and row.loss_shown != "worse"):
            kinds[row.scheme] = row.kind
    unbeaten = [scheme for scheme in kinds if not pareto.beaten_by(scheme)]
    least = min((kinds[scheme] for scheme in unbeaten), default=None)
    return [scheme for scheme in unbeaten if kinds[scheme] is least]


def _list_compared(cell: Cell, pareto: Front) -> list[SchemeRow]:
    return [row for row in cell.rows if row.scheme in pareto.schemes and row.scheme != cell.baseline]


_SPEEDS: dict[Speed, str] = {
    "faster": "faster than",
    "not faster": "not faster than",
    "as fast": "as fast as",
    INCONCLUSIVE: "not significantly faster than",
}
_LOSSES: dict[Loss | None, str] = {
    "no worse": "at a loss that is no worse",
    "better": "at a better loss",
    "worse": "at a worse loss",
    INCONCLUSIVE: "with an inconclusive loss",
    None: "without a loss to compare",
}


def relate(duel: Duel) -> str:
    """Return a sentence like ``A is faster than B (1.18, 1.12 to 1.27), at a loss that is no worse.``."""
    if duel.speed is None:
        return say.NO_COMMON_PAIR.format(scheme=duel.scheme, other=duel.other)
    return say.COMPARED_WITH.format(
        scheme=duel.scheme,
        other=duel.other,
        speed="slower than" if duel.speed.slower else _SPEEDS[duel.speed.shown],
        figures=f"{duel.speed.estimate:.2f}, {describe_interval(duel.speed)}",
        loss=_LOSSES[duel.loss.shown if duel.loss else None],
    )


def describe_interval(speed: SpeedFinding) -> str:
    """Format the interval of a speed ratio. An interval that seems to contradict its finding is called uncorrected."""
    interval = bounds(speed, "{:.2f}".format)
    return say.UNCORRECTED.format(interval=interval) if speed.excludes_one_uncorrected else interval


def _find_leader(rows: Sequence[SchemeRow]) -> SchemeRow | None:
    """Return the fastest good scheme or, if no scheme is good, the fastest scheme with an inconclusive loss."""
    fair = [row for row in rows if row.outcome and row.outcome.group != "worse"]
    candidates = list(filter(is_good, rows)) or fair or rows
    return max(candidates, key=lambda row: row.speed.estimate if row.speed else 0.0, default=None)


def _compare_with_casts(leader: SchemeRow, cell: Cell, pareto: Front) -> list[str]:
    """Compare the best scheme that uses a codec with the schemes that only cast messages."""
    casts = [row.scheme for row in _list_compared(cell, pareto) if row.kind is SchemeKind.CAST]
    base = cell.row(cell.baseline)
    if not casts and base is not None:
        example = base.runs[0].run
        if resolve_kind(example, is_baseline=False) is SchemeKind.CAST:
            return [say.CAST_BASELINE]
        return [say.HALF_MESSAGES if has_half_messages(example) else say.NO_CAST]
    duels = [pareto.duel(leader.scheme, cast) for cast in casts]
    return [relate(duel) for duel in duels if duel is not None]


def is_good(row: SchemeRow) -> bool:
    """Return whether a scheme is significantly faster without a worse loss."""
    return row.outcome is not None and row.outcome.group == "good"


def _name_simplest(cell: Cell, schemes: Sequence[str]) -> str:
    row = cell.row(schemes[0]) if schemes else None
    if row is None:
        return say.ALL_BEATEN
    of_kind = {SchemeKind.UNKNOWN: say.UNBEATEN, SchemeKind.BASELINE: say.SIMPLEST_IS_BASELINE}
    sentence = of_kind.get(row.kind, say.SIMPLEST)
    return sentence.format(schemes=", ".join(schemes), kind=row.kind.description)
