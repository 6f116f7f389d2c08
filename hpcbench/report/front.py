"""The Pareto front of a cell: which schemes are beaten, the simplest unbeaten one, and the sentences about them.

A scheme beats another one if it is significantly faster and its loss is no worse, or if its loss is significantly
better and it is no slower. Only significant differences count. So a scheme on the front is not always the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.present.notation import bounds
from hpcbench.report.compare import Cell, Row
from hpcbench.report.duels import Duel
from hpcbench.report.findings import Speed
from hpcbench.report.kinds import Kind, has_half_messages


@dataclass(frozen=True)
class Front:
    """The schemes of a cell that can be compared, the baseline first."""

    schemes: tuple[str, ...]
    duels: tuple[Duel, ...]
    """The duel of each two schemes. Those with the baseline are the findings of its verdicts."""
    gains: tuple[Duel, ...] = ()
    """The speed of each scheme with a codec compared with each control without one.

    A codec pays only if it is significantly faster than both the baseline and that control.
    """

    def gain(self, scheme: str, control: str) -> Duel | None:
        """Return the duel of a scheme with a codec and a control without one; None if they have no pair."""
        return next((duel for duel in self.gains if (duel.scheme, duel.other) == (scheme, control)), None)

    def duel(self, scheme: str, other: str) -> Duel | None:
        """Return the duel of two schemes, seen from the first; None if they have no pair."""
        found = next((duel for duel in self.duels if {duel.scheme, duel.other} == {scheme, other}), None)
        return found.turned() if found and found.scheme == other else found

    def beaten_by(self, scheme: str) -> list[str]:
        """Return the schemes that significantly beat this one."""
        sides = [duel if duel.other == scheme else duel.turned() for duel in self._of(scheme)]
        return [duel.scheme for duel in sides if duel.beats]

    @property
    def unbeaten(self) -> list[str]:
        """The schemes on the Pareto front."""
        return [scheme for scheme in self.schemes if not self.beaten_by(scheme)]

    def _of(self, scheme: str) -> list[Duel]:
        return [duel for duel in self.duels if scheme in (duel.scheme, duel.other)]


def front(cell: Cell) -> Front:
    """Gather the comparisons of the schemes of a cell with each other, over runs of equal pairing.

    Schemes that diverged, that have no pair with the baseline, or whose codecs never ran are left out.
    """
    base = cell.row(cell.baseline)
    if base is None or not base.completed:
        return Front((), ())
    rows = [row for row in cell.rows if row.compared and not row.idle]
    against_base = [Duel(row.scheme, base.scheme, row.speed, row.loss) for row in rows]
    return Front(tuple(row.scheme for row in (base, *rows)), (*against_base, *cell.duels), cell.gains)


def conclusion(cell: Cell, front: Front) -> list[str]:
    """Return sentences that compare the best scheme with a cast, and name the simplest one that nothing beats.

    Table ``schemes`` compares all schemes with each other.
    """
    rows = [row for row in cell.rows if row.scheme in front.schemes and row.scheme != cell.baseline]
    if not rows or cell.baseline is None:
        return []
    kinds = {scheme: row.kind for scheme in front.schemes if (row := cell.row(scheme))}
    leader = _leader([row for row in rows if not kinds[row.scheme].is_control])
    simplest = _simplest(cell.baseline, rows, front, kinds)
    return [*_compare_with_casts(leader, cell, front, kinds), _last(simplest, kinds)]


def simplest(cell: Cell, front: Front) -> list[str]:
    """Return the simplest of the schemes that no other scheme significantly beats, see `_simplest`."""
    rows = [row for row in cell.rows if row.scheme in front.schemes and row.scheme != cell.baseline]
    kinds = {row.scheme: row.kind for row in rows}
    return _simplest(cell.baseline, rows, front, kinds) if cell.baseline is not None and front.schemes else []


_SPEEDS: dict[Speed, str] = {
    "faster": "faster than",
    "not faster": "not faster than",
    "as fast": "as fast as",
    "not shown": "not significantly faster than",
}


def relation(duel: Duel) -> str:
    """Return a sentence like ``A is not significantly faster than B (1.08, 0.92 to 1.27)``, with the loss finding."""
    if duel.speed is None:
        return f"{duel.scheme} and {duel.other} have no pair that tells their speeds"
    words = "slower than" if duel.speed.slower else _SPEEDS[duel.speed.shown]
    figures = f"{duel.speed.estimate:.2f}, {bounds(duel.speed, '{:.2f}'.format)}"
    return f"{duel.scheme} is {words} {duel.other} ({figures}){_loss(duel)}"


def _loss(duel: Duel) -> str:
    if duel.loss is None:
        return ""
    words = {"as good": "a loss that is no worse", "better": "a better loss", "worse": "a worse loss"}
    return f", at {words[duel.loss.shown]}" if duel.loss.shown in words else ", its loss is inconclusive"


def _leader(rows: Sequence[Row]) -> Row | None:
    """Return the fastest scheme with a good loss, else the fastest with a loss not significantly worse."""
    good = [row for row in rows if row.outcome and row.outcome.group == "good"]
    fair = [row for row in rows if row.outcome and row.outcome.group != "worse"]
    return max(good or fair or rows, key=_speed, default=None)


def _speed(row: Row) -> float:
    return row.speed.estimate if row.speed else 0.0


def _compare_with_casts(leader: Row | None, cell: Cell, front: Front, kinds: dict[str, Kind]) -> list[str]:
    """Return the sentence that compares the best scheme with a codec with the plain cast."""
    if leader is None:
        return []
    casts = [scheme for scheme in front.schemes if kinds[scheme] is Kind.CAST]
    base = cell.row(cell.baseline)
    if not casts and base is not None and has_half_messages(base.runs[0].run):
        return ["Messages have 16 bits without a codec: the baseline is the plain cast that a codec is held against."]
    if not casts:
        return [
            "No plain cast to 16 bits (naive-bf16, naive-fp16) ran beside the schemes: what a codec gains over one is"
            " not known."
        ]
    duels = [front.duel(leader.scheme, cast) for cast in casts]
    return [f"{relation(duel)}." for duel in duels if duel is not None]


def _simplest(baseline: str, rows: Sequence[Row], front: Front, kinds: dict[str, Kind]) -> list[str]:
    """Return the simplest of the schemes that no other scheme significantly beats.

    Candidates are the baseline, controls whose loss is not significantly worse, and schemes that are significantly
    faster at a loss that is no worse.
    """
    candidates = [row.scheme for row in rows if _is_good(row) or (row.kind.is_control and row.loss_shown != "worse")]
    unbeaten = [scheme for scheme in (baseline, *candidates) if not front.beaten_by(scheme)]
    least = min((_kind(scheme, baseline, kinds) for scheme in unbeaten), default=None)
    return [scheme for scheme in unbeaten if _kind(scheme, baseline, kinds) is least]


def _is_good(row: Row) -> bool:
    return row.outcome is not None and row.outcome.group == "good"


def _kind(scheme: str, baseline: str, kinds: dict[str, Kind]) -> Kind:
    return Kind.BASELINE if scheme == baseline else kinds[scheme]


def _last(schemes: Sequence[str], kinds: dict[str, Kind]) -> str:
    if not schemes:
        return "Inconclusive which scheme to take: those that train as well as the baseline are beaten by others."
    own = kinds[schemes[0]]
    if own is Kind.UNKNOWN:
        simple = "; the logs do not tell which of them is the simplest" if len(schemes) > 1 else ""
        return f"No scheme significantly beats {join_names(schemes)}{simple}."
    noun, what = "scheme" if len(schemes) == 1 else "schemes", "" if own is Kind.BASELINE else f" ({own.words})"
    return f"The simplest {noun} that no other one significantly beats: {join_names(schemes)}{what}."


def join_names(names: Sequence[str]) -> str:
    """Join one or more names for a sentence, such as ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
