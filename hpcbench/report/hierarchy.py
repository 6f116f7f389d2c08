"""Division of a significance level over all questions of a report, with priority for the answers.

The probability that a report contains any false finding is at most `LEVEL` (strong control of the familywise error
rate). Each question receives a share of the level and passes the share on when decided (sequentially rejective weighted
Bonferroni tests: Bretz, Maurer, Brannath and Posch, Statistics in Medicine 28, 2009). Shares depend only on the set of
decided questions and never shrink as this set grows. The bound therefore holds for any dependence between the tests.

1. Answers: every scheme with a codec, including casts, against its baseline. All cells of a report share the level.
2. Details of a cell: controls without a codec against the baseline, schemes against each other, losses at equal
   time. Details receive the shares that the answers of their cell pass on.

Mutually exclusive hypotheses of a question, such as "as fast" and "faster by the margin", use the same share, because
at most one of them is true (Shaffer, Journal of the American Statistical Association 81, 1986).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

LEVEL = 0.05
"""Maximum probability that a report contains a false finding."""
SPEED_PART = 0.75
"""Fraction of a chain's share that is initially assigned to speed.

The rest is assigned to loss, so that a worse loss can be found even if the speed remains undecided.
"""
SIDE_PASSES = 0.5
"""Fraction of the speed's share that is passed on if the speeds differ significantly, but not by a known amount.

The complete share is passed on if the interval contains no bound of the question.
"""
TO_PEERS = 0.5
"""Fraction of a decided answer's share that goes to undecided answers. The rest goes to the cell's details."""
DETAILS = {"controls": 3, "duels": 4, "times": 1}
"""Relative weights of the details."""

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    """Smallest shares that decide a comparison."""

    side: float
    """Share above which the sign of the difference is significant.

    For losses, the sign is relative to the margin.
    """
    complete: float
    """Share above which the interval contains no bound, so that the question is completely decided."""


@dataclass(frozen=True)
class Chain:
    """Questions about two schemes: speed and loss together, then the gain over each control in turn."""

    speed: Question | None = None
    loss: Question | None = None
    gains: tuple[Question, ...] = ()


@dataclass(frozen=True)
class Shares:
    """Shares of the level that were assigned to the questions of a chain."""

    speed: float = 0.0
    loss: float = 0.0
    gains: tuple[float, ...] = ()
    finished: bool = False
    """Whether all questions are decided, so that the chain's share can be passed on."""


@dataclass(frozen=True)
class _OfCell(Generic[T]):
    """Values of a cell's comparisons, keyed by scheme or pair of schemes."""

    answers: Mapping[Hashable, T] = field(default_factory=dict)
    controls: Mapping[Hashable, T] = field(default_factory=dict)
    duels: Mapping[Hashable, T] = field(default_factory=dict)
    times: Mapping[Hashable, T] = field(default_factory=dict)


Chains = _OfCell[Chain]
Allotment = _OfCell[Shares]


def ask(chain: Chain, share: float) -> Shares:
    """Test the questions of a chain, given the chain's share of the level."""
    if chain.speed is None or chain.loss is None:
        speed, loss = share * (chain.speed is not None), share * (chain.loss is not None)
        lone = chain.speed or chain.loss
        is_finished, passed = (
            lone is None or lone.complete < share,
            share if lone is None else share * _compute_passed(lone, share),
        )
    else:
        speed, loss = SPEED_PART * share, (1 - SPEED_PART) * share
        if decided := chain.loss.complete < loss:
            speed = share
        else:
            loss += speed * _compute_passed(chain.speed, speed)
            decided = chain.loss.complete < loss
        is_finished = decided and chain.speed.complete < speed
        passed = share * decided * _compute_passed(chain.speed, speed)
    gains = []
    for gain in chain.gains:
        gains.append(passed)
        if not gain.side < passed:
            passed, is_finished = 0.0, False
    return Shares(speed, loss, tuple(gains), is_finished)


def _compute_passed(question: Question, share: float) -> float:
    return 1.0 if question.complete < share else SIDE_PASSES if question.side < share else 0.0


def ask_family(chains: Mapping[Key, Chain], share: float, to_peers: float = 1.0) -> dict[Key, Shares]:
    """Test chains that divide a share of the level equally.

    Finished chains pass the fraction `to_peers` of their share on to the unfinished chains, in equal parts. With
    `to_peers` = 1.0, the procedure is Holm's method.
    """
    asked: dict[Key, Shares] = {}
    while True:
        left = [key for key in chains if key not in asked]
        done = len(asked)
        each = share / len(chains) * (1 + to_peers * done / len(left)) if left else 0.0
        answers = {key: ask(chains[key], each) for key in left}
        finished = {key: shares for key, shares in answers.items() if shares.finished}
        asked |= finished
        if not finished:
            return {key: asked[key] if key in asked else answers[key] for key in chains}


def divide_level(cells: Sequence[Chains], level: float = LEVEL) -> list[Allotment]:
    """Divide the level among all questions of a report, given the chains of each cell."""
    # Cells without an answer also receive a share, which is used by their details.
    places = {
        (i, key): chain for i, cell in enumerate(cells) for key, chain in (cell.answers or {None: Chain()}).items()
    }
    asked = ask_family(places, level, TO_PEERS)
    all_finished = all(shares.finished for shares in asked.values())
    allotments = []
    for i, cell in enumerate(cells):
        answers = {key: shares for (k, key), shares in asked.items() if k == i}
        finished = sum(shares.finished for shares in answers.values())
        free = level / len(places) * finished * (1.0 if all_finished else 1 - TO_PEERS)
        weight = sum(DETAILS[name] for name in DETAILS if getattr(cell, name))
        details = {name: ask_family(getattr(cell, name), free * DETAILS[name] / weight) for name in DETAILS if weight}
        allotments.append(Allotment(answers=answers, **{name: details.get(name, {}) for name in DETAILS}))
    return allotments
