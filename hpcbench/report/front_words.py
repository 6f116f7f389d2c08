"""What is shown of schemes against each other, in sentences; the last one names the simplest that nothing beats."""

from collections.abc import Sequence

from hpcbench.report.compare import Cell, Row
from hpcbench.report.front import Duel, Front
from hpcbench.report.kinds import Kind, has_half_messages, kind
from hpcbench.report.notation import between

_MOST = 2
"""Names of schemes that beat one; of more, the number is said."""


def conclusion(cell: Cell, front: Front) -> list[str]:
    """Front, dominated schemes, the best one beside the plain cast, and the simplest that nothing beats."""
    rows = [row for row in cell.rows if row.scheme in front.schemes and row.scheme != cell.baseline]
    if not rows or cell.baseline is None:
        return []
    kinds = {scheme: kind(cell, row) for scheme in front.schemes if (row := cell.row(scheme))}
    leader = _leader([row for row in rows if not kinds[row.scheme].is_control])
    simplest = _simplest(cell.baseline, rows, front, kinds)
    said = [*_front(front), *_beside_casts(leader, cell, front, kinds), *_fastest(leader, rows, front, kinds, simplest)]
    return [*said, _last(simplest, kinds)]


def simplest(cell: Cell, front: Front) -> list[str]:
    """The simplest schemes of those that are as good as the baseline in loss, and that nothing is shown to beat."""
    rows = [row for row in cell.rows if row.scheme in front.schemes and row.scheme != cell.baseline]
    kinds = {row.scheme: kind(cell, row) for row in rows}
    return _simplest(cell.baseline, rows, front, kinds) if cell.baseline is not None and front.schemes else []


def relation(duel: Duel) -> str:
    """``A is not shown to be faster than B (1.08, 0.92 to 1.27)``, with what is shown of the loss."""
    if duel.speed is None:
        return f"{duel.scheme} and {duel.other} have no pair that tells their speeds"
    if duel.speed.slower:
        words = "slower than"
    else:
        known = {"faster": "faster than", "not faster": "not faster than", "not shown": "not shown to be faster than"}
        words = known[duel.speed.shown]
    return f"{duel.scheme} is {words} {duel.other} ({_figures(duel)}){_loss(duel)}"


def _figures(duel: Duel) -> str:
    """Ratio and interval, as they stand within brackets."""
    return between(duel.speed, "{:.2f}".format, ", 1 pair").replace(" (", ", ").removesuffix(")")


def _loss(duel: Duel) -> str:
    if duel.loss is None:
        return ""
    words = {"as good": "a loss as good", "better": "a better loss", "worse": "a worse loss"}
    return f", at {words[duel.loss.shown]}" if duel.loss.shown in words else ", its loss not shown to be as good"


def _leader(rows: Sequence[Row]) -> Row | None:
    """The fastest by estimate: of those that are good, or else of those that are not shown to be worse in loss."""
    good = [row for row in rows if row.outcome and row.outcome.group == "good"]
    fair = [row for row in rows if row.outcome and row.outcome.group != "worse"]
    return max(good or fair or rows, key=_speed, default=None)


def _speed(row: Row) -> float:
    return row.speed.estimate if row.speed else 0.0


def _front(front: Front) -> list[str]:
    beaten = {scheme: by for scheme in front.schemes if (by := front.beaten_by(scheme))}
    if not beaten:
        return ["No scheme is shown to beat another in speed and loss together."]
    parts = [f"{scheme} by {_some(by)}" for scheme, by in beaten.items()]
    unbeaten = f"On the front of speed and loss, which nothing is shown to beat: {_listed(front.unbeaten)}."
    return [f"Shown to be beaten in speed and loss together: {'; '.join(parts)}.", unbeaten]


def _beside_casts(leader: Row | None, cell: Cell, front: Front, kinds: dict[str, Kind]) -> list[str]:
    """The best scheme with a codec beside the control that every gain of a codec is held against."""
    if leader is None:
        return []
    casts = [scheme for scheme in front.schemes if kinds[scheme] is Kind.CAST]
    base = cell.row(cell.baseline)
    if not casts and base is not None and has_half_messages(base):
        return ["Messages have 16 bits without a codec: the baseline is the plain cast that a codec is held against."]
    if not casts:
        return [
            "No plain cast to 16 bits (naive-bf16, naive-fp16) ran beside the schemes: what a codec gains over one is"
            " not known."
        ]
    duels = [front.duel(leader.scheme, cast) for cast in casts]
    return [f"{relation(duel)}." for duel in duels if duel is not None]


def _fastest(
    leader: Row | None, rows: Sequence[Row], front: Front, kinds: dict[str, Kind], simplest: Sequence[str]
) -> list[str]:
    """Whether the fastest by estimate is shown to be so; of what it is not shown to be faster than, the simplest."""
    good = [row.scheme for row in rows if row.outcome and row.outcome.group == "good"]
    if leader is None or leader.scheme not in good or len(good) < 2:
        return []
    duels = {other: front.duel(leader.scheme, other) for other in good if other != leader.scheme}
    if all(duel and duel.faster for duel in duels.values()):
        return [f"Of those as good in loss {leader.scheme} is shown to be faster than each other one."]
    said = [
        f"{relation(duel)}."
        for other, duel in duels.items()
        if duel and other in simplest and not duel.faster and kinds[other] is not Kind.CAST
    ]
    return ["Which of those as good in loss is the fastest is not shown.", *said]


def _simplest(baseline: str, rows: Sequence[Row], front: Front, kinds: dict[str, Kind]) -> list[str]:
    good = [row.scheme for row in rows if row.outcome and row.outcome.group == "good"]
    unbeaten = [scheme for scheme in (baseline, *good) if not front.beaten_by(scheme)]
    least = min((_kind(scheme, baseline, kinds) for scheme in unbeaten), default=None)
    return [scheme for scheme in unbeaten if _kind(scheme, baseline, kinds) is least]


def _kind(scheme: str, baseline: str, kinds: dict[str, Kind]) -> Kind:
    return Kind.BASELINE if scheme == baseline else kinds[scheme]


def _last(schemes: Sequence[str], kinds: dict[str, Kind]) -> str:
    if not schemes:
        return "Which scheme to take is not shown: those that train as well as the baseline are beaten by others."
    own = kinds[schemes[0]]
    if own is Kind.UNKNOWN:
        simple = "; which of them is the simplest the logs do not say" if len(schemes) > 1 else ""
        return f"No scheme is shown to beat {_listed(schemes)}{simple}."
    noun, what = "scheme" if len(schemes) == 1 else "schemes", "" if own is Kind.BASELINE else f" ({own.words})"
    return f"The simplest {noun} that nothing is shown to beat: {_listed(schemes)}{what}."


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST
    return _listed([*names[:_MOST], f"{more} more"] if more > 0 else names)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
