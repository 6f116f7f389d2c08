"""Division of one level over all questions of a report, the answer first, so that the whole report keeps it.

Whatever is true, a false finding is somewhere in a report with at most the probability `LEVEL`. A question has a share
of the level, and passes it on when it is decided (sequentially rejective weighted Bonferroni tests: Bretz, Maurer,
Brannath and Posch, Statistics in Medicine 28, 2009). The shares depend only on the set of decided questions and never
shrink when that set grows, so that the bound needs no assumption about how the tests depend on each other.

1. The answers: every scheme with a codec, a cast included, against its baseline. All cells of a report share the level.
2. The details of a cell: controls without a codec against the baseline, schemes against each other, losses at equal
   time. They get what the answers of their cell pass on.

Hypotheses of one question that exclude each other, such as "as fast" and "faster by the margin", have the share in
common, because at most one of them is true (Shaffer, Journal of the American Statistical Association 81, 1986).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

LEVEL = 0.05
"""Largest probability that a report contains a false finding."""
SPEED_PART = 0.75
"""Part of a chain's share with which its speed begins.

Its loss begins with the other part, so that a worse loss is found even if the speed stays undecided.
"""
SIDE_PASSES = 0.5
"""Fraction of its share that a speed passes on when it is only known to differ.

It passes on all of it when its interval contains none of its bounds.
"""
TO_PEERS = 0.5
"""Fraction of the share of a decided answer that goes to the undecided ones. The rest goes to the cell's details."""
DETAILS = {"controls": 3, "duels": 4, "times": 1}
"""Relative weights of the details."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Question:
    """The smallest shares with which a comparison is decided."""

    side: float
    """Share above which the side of 0 is significant, or for losses the side of the margin."""
    complete: float
    """Share above which the interval contains no bound of the question, so that it is decided completely."""


@dataclass(frozen=True)
class Chain:
    """The questions about two schemes: speed and loss together, then the gain over each control in turn."""

    speed: Question | None = None
    loss: Question | None = None
    gains: tuple[Question, ...] = ()


@dataclass(frozen=True)
class Shares:
    """Shares of the level that the questions of a chain were asked with."""

    speed: float = 0.0
    loss: float = 0.0
    gains: tuple[float, ...] = ()
    finished: bool = False
    """Whether all is decided, so that the share of the chain may pass to others."""


@dataclass(frozen=True)
class Chains:
    """The chains of one cell, keyed by scheme or pair of schemes."""

    answers: Mapping[Hashable, Chain] = field(default_factory=dict)
    controls: Mapping[Hashable, Chain] = field(default_factory=dict)
    duels: Mapping[Hashable, Chain] = field(default_factory=dict)
    times: Mapping[Hashable, Chain] = field(default_factory=dict)


@dataclass(frozen=True)
class Allotment:
    """The shares of the questions of one cell, keyed by scheme or pair of schemes."""

    answers: Mapping[Hashable, Shares]
    controls: Mapping[Hashable, Shares]
    duels: Mapping[Hashable, Shares]
    times: Mapping[Hashable, Shares]


def ask(chain: Chain, share: float) -> Shares:
    """Ask the questions of one chain, which has a share of the level."""
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
    """Ask chains of equal weight, which divide a share of the level.

    Finished chains pass the part `to_peers` of their share on to the others in equal parts. With 1.0 it is Holm's
    method.
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
    """Divide the level over all questions of a report, given the chains of each cell."""
    # A cell without an answer still gets a share, which its details use.
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
