"""Compares schemes with each other: how simple each is, which ones are shown to be beaten, and the sentences about it.

A scheme beats another one if it is shown to be faster at a loss as good or better, or to have a better loss and to be
as fast. Only shown differences count. So the front holds schemes that nothing is shown to beat, which are not always
shown to be the best.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations, product
from typing import Any

from hpcbench.contract.training import CONTENTS
from hpcbench.contract.values import member, text
from hpcbench.report.compare import Cell, Row, family, paired, rates, valid_losses
from hpcbench.report.findings import LossFinding, SpeedFinding, both
from hpcbench.report.measures import own_environment
from hpcbench.report.notation import between

_CASTS = {"none", "bf16", "fp16"}
_TRAITS = ("dimension", "phase", "kind")
"""Fields of a rule that limit it to some of the traffic."""


class Kind(IntEnum):
    """Kinds of schemes, the simplest first. A more complex one must be shown to be worth it."""

    BASELINE = 0
    PLAIN = 1
    CAST = 2
    ONE_CODEC = 3
    BY_TRAFFIC = 4
    UNKNOWN = 5

    @property
    def words(self) -> str:
        """The kind in words for a reader."""
        return _WORDS[self]

    @property
    def is_control(self) -> bool:
        """Whether it is a control that a codec's gain is compared with."""
        return self in (Kind.PLAIN, Kind.CAST)


_WORDS = {
    Kind.BASELINE: "the baseline",
    Kind.PLAIN: "no codec",
    Kind.CAST: "a plain cast to 16 bits",
    Kind.ONE_CODEC: "one codec for all traffic",
    Kind.BY_TRAFFIC: "codecs by traffic, or with feedback",
    Kind.UNKNOWN: "not known",
}


def has_half_messages(row: Row) -> bool:
    """Whether all messages of a scheme's runs have 16 bits before any codec, so that a plain cast gains nothing."""
    train: Any = row.runs[0].run.settings.get("train")
    precision = text(train, "precision")
    chosen = [text(member(train, "comm_precision"), content) for content in CONTENTS]
    return all((precision if name == "auto" else name) in ("bf16", "fp16") for name in chosen)


def kind(cell: Cell, row: Row) -> Kind:
    """The kind of a scheme, by the settings of its runs; unknown for logs that a user named."""
    if row.scheme == cell.baseline:
        return Kind.BASELINE
    run = row.runs[0].run
    scheme: Any = run.settings.get("scheme")
    rules = member(scheme, "rules")
    if run.given or text(scheme, "default") is None or not isinstance(rules, list):
        return Kind.UNKNOWN
    if own_environment(run):
        return Kind.ONE_CODEC  # the MPI library's own, for whatever it sends
    codecs = {text(scheme, "default"), *(text(rule, "codec") for rule in rules)}
    if member(scheme, "optimizer") or any(member(rule, "feedback") for rule in rules):
        return Kind.BY_TRAFFIC
    if codecs <= _CASTS:
        return Kind.PLAIN if codecs == {"none"} else Kind.CAST
    apart = any(member(rule, trait) is not None for rule in rules for trait in _TRAITS)
    return Kind.BY_TRAFFIC if len(codecs) > 1 and apart else Kind.ONE_CODEC


@dataclass(frozen=True)
class Duel:
    """The comparison of one scheme with another one, from pairs of runs."""

    scheme: str
    other: str
    speed: SpeedFinding | None
    """Speed of the scheme over the other's; None if they have no pair."""
    loss: LossFinding | None
    """Loss of the scheme minus the other's; None if no pair has both losses."""

    @property
    def beats(self) -> bool:
        """Whether the scheme is shown to be better in speed or loss, and not worse in the other."""
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
        """The same duel, seen from the other scheme."""
        speed = self.speed.turned() if self.speed else None
        return Duel(self.other, self.scheme, speed, self.loss.turned() if self.loss else None)


@dataclass(frozen=True)
class Front:
    """The schemes of a cell that can be compared, the baseline first."""

    schemes: tuple[str, ...]
    duels: tuple[Duel, ...]
    """The duel of each two schemes. Those with the baseline are the findings of its verdicts."""
    gains: tuple[Duel, ...] = ()
    """The speed of each scheme with a codec beside each control without one, as a family of its own.

    A codec pays only if it is shown to be faster than both the baseline and that control.
    """

    def gain(self, scheme: str, control: str) -> Duel | None:
        """The duel of a scheme with a codec and a control without one; None if they have no pair."""
        return next((duel for duel in self.gains if (duel.scheme, duel.other) == (scheme, control)), None)

    def duel(self, scheme: str, other: str) -> Duel | None:
        """The duel of two schemes, seen from the first; None if they have no pair."""
        found = next((duel for duel in self.duels if {duel.scheme, duel.other} == {scheme, other}), None)
        return found.turned() if found and found.scheme == other else found

    def beaten_by(self, scheme: str) -> list[str]:
        """The schemes that are shown to beat this one."""
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

    Schemes that diverged, that have no pair with the baseline, or whose codecs never ran are left out.
    """
    base = cell.row(cell.baseline)
    if base is None or not base.completed:
        return Front((), ())
    rows = [row for row in cell.rows if row.compared and not row.idle]
    found = [Duel(row.scheme, base.scheme, row.speed, row.loss) for row in rows]
    kinds = {row.scheme: kind(cell, row) for row in rows}
    plain = [row for row in rows if kinds[row.scheme] is Kind.PLAIN]
    coded = [row for row in rows if not kinds[row.scheme].is_control]
    duels = _duels(combinations(rows, 2), cell)
    gains = _duels(product(coded, plain), cell, with_losses=False)
    return Front(tuple(row.scheme for row in (base, *rows)), (*found, *duels), tuple(gains))


def _duels(rivals: Iterable[tuple[Row, Row]], cell: Cell, with_losses: bool = True) -> list[Duel]:
    """The duels of pairs of schemes, whose speeds, and losses where they count, are one family."""
    pairs = {(a.scheme, b.scheme): paired(a.runs, b.runs) for a, b in rivals}
    values = family(pairs, valid_losses) if with_losses else {}
    speeds, losses = both(family(pairs, rates), values, cell.criteria.speed_margin, cell.criteria.loss_margin)
    return [Duel(*key, speeds.get(key), losses.get(key)) for key in pairs if key in speeds or key in losses]


_MOST = 2
"""Most names that a sentence lists of the schemes that beat one. Beyond that it gives their number."""


def conclusion(cell: Cell, front: Front) -> list[str]:
    """Sentences about the front, beaten schemes, the best one beside the plain cast, and the simplest unbeaten one."""
    rows = [row for row in cell.rows if row.scheme in front.schemes and row.scheme != cell.baseline]
    if not rows or cell.baseline is None:
        return []
    kinds = {scheme: kind(cell, row) for scheme in front.schemes if (row := cell.row(scheme))}
    leader = _leader([row for row in rows if not kinds[row.scheme].is_control])
    simplest = _simplest(cell.baseline, rows, front, kinds)
    said = [*_front(front), *_beside_casts(leader, cell, front, kinds), *_fastest(leader, rows, front, kinds, simplest)]
    return [*said, _last(simplest, kinds)]


def simplest(cell: Cell, front: Front) -> list[str]:
    """The simplest of the schemes that are as good as the baseline in loss and that nothing is shown to beat."""
    rows = [row for row in cell.rows if row.scheme in front.schemes and row.scheme != cell.baseline]
    kinds = {row.scheme: kind(cell, row) for row in rows}
    return _simplest(cell.baseline, rows, front, kinds) if cell.baseline is not None and front.schemes else []


def relation(duel: Duel) -> str:
    """The sentence ``A is not shown to be faster than B (1.08, 0.92 to 1.27)``, with the finding about the loss."""
    if duel.speed is None:
        return f"{duel.scheme} and {duel.other} have no pair that tells their speeds"
    if duel.speed.slower:
        words = "slower than"
    else:
        known = {"faster": "faster than", "not faster": "not faster than", "not shown": "not shown to be faster than"}
        words = known[duel.speed.shown]
    return f"{duel.scheme} is {words} {duel.other} ({_figures(duel)}){_loss(duel)}"


def _figures(duel: Duel) -> str:
    """Ratio and interval, in the form that they have within brackets."""
    return between(duel.speed, "{:.2f}".format, ", 1 pair").replace(" (", ", ").removesuffix(")")


def _loss(duel: Duel) -> str:
    if duel.loss is None:
        return ""
    words = {"as good": "a loss as good", "better": "a better loss", "worse": "a worse loss"}
    return f", at {words[duel.loss.shown]}" if duel.loss.shown in words else ", its loss not shown to be as good"


def _leader(rows: Sequence[Row]) -> Row | None:
    """The fastest scheme by estimate of those with a good loss, else of those whose loss is not shown to be worse."""
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
    """The sentence about the best scheme with a codec and the plain cast, which every codec is compared with."""
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
    """The sentence about the fastest scheme if it is shown to be that, else about the simplest of the fast ones."""
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
        simple = "; the logs do not tell which of them is the simplest" if len(schemes) > 1 else ""
        return f"No scheme is shown to beat {_listed(schemes)}{simple}."
    noun, what = "scheme" if len(schemes) == 1 else "schemes", "" if own is Kind.BASELINE else f" ({own.words})"
    return f"The simplest {noun} that nothing is shown to beat: {_listed(schemes)}{what}."


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST
    return _listed([*names[:_MOST], f"{more} more"] if more > 0 else names)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
