"""Schemes against each other: which are shown to be beaten, and which stand on the front of speed and loss.

A scheme beats another where it is shown to be faster at a loss as good or better, or to have a better loss and to be as
fast. What is not shown beats nothing: the front holds what nothing is shown to beat, not what is shown to be the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from hpcbench.report.compare import Cell, Row, family, paired, rates, valid_losses
from hpcbench.report.findings import LossFinding, SpeedFinding, both


@dataclass(frozen=True)
class Duel:
    """What pairs of runs show of a scheme beside another one."""

    scheme: str
    other: str
    speed: SpeedFinding | None
    """Speed of the scheme over the other's; None without a pair."""
    loss: LossFinding | None
    """Loss of the scheme minus the other's; None without a pair that has both losses."""

    @property
    def beats(self) -> bool:
        """Whether the scheme is shown to be better in speed or loss, and as good or better in the other."""
        if self.speed is None or self.loss is None:
            return False
        if self.speed.shown == "faster":
            return self.loss.shown in ("as good", "better")
        return self.loss.shown == "better" and self.speed.as_fast

    @property
    def faster(self) -> bool:
        """Whether the scheme is shown to be faster."""
        return self.speed is not None and self.speed.shown == "faster"

    def turned(self) -> "Duel":
        """The same, from the other's side."""
        speed = self.speed.turned() if self.speed else None
        return Duel(self.other, self.scheme, speed, self.loss.turned() if self.loss else None)


@dataclass(frozen=True)
class Front:
    """The schemes of a cell that can be compared, the baseline first."""

    schemes: tuple[str, ...]
    duels: tuple[Duel, ...]
    """Each two schemes once; those with the baseline are the findings of its verdicts."""

    def duel(self, scheme: str, other: str) -> Duel | None:
        """The duel of two schemes, from the side of the first; None where they have no pair."""
        found = next((duel for duel in self.duels if {duel.scheme, duel.other} == {scheme, other}), None)
        return found.turned() if found and found.scheme == other else found

    def beaten_by(self, scheme: str) -> list[str]:
        """The schemes that are shown to beat one."""
        sides = [duel if duel.other == scheme else duel.turned() for duel in self._of(scheme)]
        return [duel.scheme for duel in sides if duel.beats]

    @property
    def unbeaten(self) -> list[str]:
        """The schemes on the front."""
        return [scheme for scheme in self.schemes if not self.beaten_by(scheme)]

    def _of(self, scheme: str) -> list[Duel]:
        return [duel for duel in self.duels if scheme in (duel.scheme, duel.other)]


def front(cell: Cell) -> Front:
    """Compare the schemes of a cell with each other, over runs of equal pairing.

    Those that diverged, that have no pair with the baseline, or whose codecs never ran take no part.
    """
    base = cell.row(cell.baseline)
    if base is None or not base.completed:
        return Front((), ())
    rows = [row for row in cell.rows if row.compared and not row.idle]
    found = [Duel(row.scheme, base.scheme, row.speed, row.loss) for row in rows]
    return Front(tuple(row.scheme for row in (base, *rows)), (*found, *_duels(rows, cell)))


def _duels(rows: Sequence[Row], cell: Cell) -> list[Duel]:
    """Each two schemes, without the baseline."""
    pairs = {(a.scheme, b.scheme): paired(a.runs, b.runs) for a, b in combinations(rows, 2)}
    speeds, losses = both(
        family(pairs, rates), family(pairs, valid_losses), cell.criteria.speed_margin, cell.criteria.loss_margin
    )
    return [Duel(*key, speeds.get(key), losses.get(key)) for key in pairs if key in speeds or key in losses]
