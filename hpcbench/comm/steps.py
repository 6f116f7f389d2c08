"""Steps of the algorithms: sends, receives, and how received parts are combined. All functions are pure.

An algorithm cuts a vector into pieces, one per owner. The reduction gives each owner the sum of the owner's piece. The
gathering gives every rank all pieces. An all-reduce is a reduction followed by a gathering. The caller chooses owners
and pieces. The functions therefore also implement reduce-scatter, all-gather, and slices of a vector.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from hpcbench.comm.topology import Topology
from hpcbench.contract.shards import ElementRange


class Combine(Enum):
    """How a rank combines a received part with its values."""

    REPLACE = "replace"
    """The part replaces existing values. The sender also uses the decoded values, so that replicas agree."""
    DELIVER = "deliver"
    """The part is written to the receiver's own vector. The sender keeps its exact values."""
    SUM = "sum"
    """The parts are added in order. A rank's own contribution stays exact."""
    SUM_DECODED = "sum decoded"
    """The part is added to the decoded form of this rank's own values, so that both ranks get bitwise identical sums.
    """


class PeerSpan(NamedTuple):
    """Elements that are sent to a rank or received from a rank.

    If the peer is the rank itself, the part is the rank's own contribution to a sum.
    """

    peer: int
    span: ElementRange


@dataclass(frozen=True)
class PlanStep:
    """Independent messages of a rank.

    Attributes
    ----------
    name
        Human-readable name.
    stage
        Stage number, identical on both sides of a message.
    coded
        Whether the messages are encoded.
    combine
        How received parts are combined.
    sends, receives
        Parts in sending order, and in the order in which they are combined. Sender and receiver use the same order.
    """

    name: str
    stage: int
    coded: bool
    combine: Combine
    sends: tuple[PeerSpan, ...]
    receives: tuple[PeerSpan, ...]


Pieces = Sequence[ElementRange]
"""The piece of each owner, indexed by rank."""


def _step(
    name: str, stage: int, coded: bool, combine: Combine, sends: Sequence[PeerSpan], receives: Sequence[PeerSpan]
) -> list[PlanStep]:
    """Return a list that contains the step without empty parts, or an empty list if no parts remain."""
    sends = tuple(part for part in sends if part.span.size)
    receives = tuple(part for part in receives if part.span.size)
    return [PlanStep(name, stage, coded, combine, sends, receives)] if sends or receives else []


def _exchange(
    name: str, stage: int, coded: bool, total: bool, rank: int, owned: dict[int, list[ElementRange]]
) -> list[PlanStep]:
    """Exchange parts directly between all members.

    In a reduction, each member sends to every owner the spans of this owner. In a gathering, each member sends its own
    spans to all others.
    """
    members = list(owned)
    place = members.index(rank)
    # each rank starts with a different peer, so that not all ranks send to the first rank at once
    others = members[place + 1 :] + members[:place]
    if not total:
        sends = [PeerSpan(peer, span) for peer in others for span in owned[rank]]
        receives = [PeerSpan(peer, span) for peer in members if peer != rank for span in owned[peer]]
        return _step(name, stage, coded, Combine.REPLACE, sends, receives)
    sends = [PeerSpan(peer, span) for peer in others for span in owned[peer]]
    receives = [PeerSpan(peer, span) for span in owned[rank] for peer in members]
    return _step(name, stage, coded, Combine.SUM, sends, receives) if len(members) > 1 else []


def two_shot_reduce(topology: Topology, rank: int, pieces: Pieces) -> list[PlanStep]:
    """Send each owner its piece of every rank's vector (arXiv 2306.10209, section 4.3).

    Each value is rounded once, regardless of the number of ranks.
    """
    return _exchange("sum at the owners", 0, True, True, rank, {r: [piece] for r, piece in enumerate(pieces)})


def two_shot_gather(topology: Topology, rank: int, pieces: Pieces) -> list[PlanStep]:
    """Send every owner's piece, encoded once, to every rank."""
    return _exchange("gather from the owners", 1, True, False, rank, {r: [piece] for r, piece in enumerate(pieces)})


def ring_reduce(topology: Topology, rank: int, pieces: Pieces) -> list[PlanStep]:
    """Send partial sums around the ring. The sums are encoded again, and therefore rounded, at each hop."""
    p = len(pieces)
    steps = []
    for hop in range(p - 1):
        out, came = pieces[(rank - hop - 1) % p], pieces[(rank - hop - 2) % p]
        before, after = (rank - 1) % p, (rank + 1) % p
        steps += _step(
            f"ring sum, hop {hop + 1}",
            hop,
            True,
            Combine.SUM,
            [PeerSpan(after, out)],
            [PeerSpan(before, came), PeerSpan(rank, came)],
        )
    return steps


def ring_gather(topology: Topology, rank: int, pieces: Pieces) -> list[PlanStep]:
    """Send pieces around the ring in the form encoded by their owners."""
    p = len(pieces)
    steps = []
    for hop in range(p - 1):
        out, came = pieces[(rank - hop) % p], pieces[(rank - hop - 1) % p]
        steps += _step(
            f"ring gather, hop {hop + 1}",
            p + hop,
            True,
            Combine.REPLACE,
            [PeerSpan((rank + 1) % p, out)],
            [PeerSpan((rank - 1) % p, came)],
        )
    return steps


def find_doubling_place(rank: int, ranks: int) -> int:
    """Return the place of a rank in recursive doubling. Ranks that hand over their vector share their neighbor's place.

    Before the exchange at distance d, ranks whose places are equal after integer division by d have the same sums.
    """
    extra = ranks - (1 << (ranks.bit_length() - 1))
    return rank // 2 if rank < 2 * extra else rank - extra


def doubling(topology: Topology, rank: int, pieces: Pieces) -> list[PlanStep]:
    """Exchange whole vectors at distances 1, 2, 4, ... (recursive doubling).

    There are few messages, and values are rounded once per message. Ranks beyond the largest power of two first send
    their vector to a neighbor, and finally receive the result unencoded.
    """
    p, vector = len(pieces), ElementRange(min(pieces).start, max(pieces).stop)
    core = 1 << (p.bit_length() - 1)
    extra = p - core
    folded = rank < 2 * extra
    last = core.bit_length() + 1
    if folded and rank % 2:
        return _step("hand over", 0, True, Combine.SUM, [PeerSpan(rank - 1, vector)], []) + _step(
            "receive the result", last, False, Combine.REPLACE, [], [PeerSpan(rank - 1, vector)]
        )
    steps = []
    if folded:
        steps += _step("take over", 0, True, Combine.SUM, [], [PeerSpan(rank, vector), PeerSpan(rank + 1, vector)])
    place = find_doubling_place(rank, p)
    for level in range(core.bit_length() - 1):
        other = place ^ (1 << level)
        peer = 2 * other if other < extra else other + extra
        pair = [PeerSpan(r, vector) for r in sorted((rank, peer))]
        steps += _step(
            f"exchange at distance {1 << level}",
            level + 1,
            True,
            Combine.SUM_DECODED,
            [PeerSpan(peer, vector)],
            pair,
        )
    if folded:
        steps += _step("give the result", last, False, Combine.REPLACE, [PeerSpan(rank + 1, vector)], [])
    return steps


def _across(topology: Topology, rank: int, pieces: Pieces) -> dict[int, list[ElementRange]]:
    """Return the ranks that have the same local rank as this rank (one per node), and the pieces that they own."""
    place = topology.members[topology.node_of[rank]].index(rank)
    return {members[place]: [pieces[members[place]]] for members in topology.members}


def _within(topology: Topology, rank: int, pieces: Pieces) -> dict[int, list[ElementRange]]:
    """Return the ranks of this node. Each of these ranks has the pieces of all ranks with its local rank."""
    return {
        member: [pieces[members[place]] for members in topology.members]
        for place, member in enumerate(topology.members[topology.node_of[rank]])
    }


def _joined(owned: dict[int, list[ElementRange]]) -> dict[int, list[ElementRange]]:
    """Merge adjacent spans. Spans must be kept apart only if they are encoded."""
    result: dict[int, list[ElementRange]] = {}
    for member, spans in owned.items():
        joined: list[ElementRange] = []
        for span in sorted(spans):
            if joined and joined[-1].stop == span.start:
                joined[-1] = ElementRange(joined[-1].start, span.stop)
            else:
                joined.append(span)
        result[member] = joined
    return result


def hierarchical_reduce(topology: Topology, rank: int, pieces: Pieces, *, coded_within: bool) -> list[PlanStep]:
    """Sum within nodes first, then between ranks with the same local rank. Each value leaves its node once."""
    within = _within(topology, rank, pieces)
    return [
        *_exchange("sum within nodes", 0, coded_within, True, rank, within if coded_within else _joined(within)),
        *_exchange("sum between nodes", 1, True, True, rank, _across(topology, rank, pieces)),
    ]


def hierarchical_gather(topology: Topology, rank: int, pieces: Pieces, *, coded_within: bool) -> list[PlanStep]:
    """Send pieces between ranks with the same local rank first, then within nodes. Owners encode pieces once."""
    within = _within(topology, rank, pieces)
    return [
        *_exchange("gather between nodes", 2, True, False, rank, _across(topology, rank, pieces)),
        *_exchange("gather within nodes", 3, coded_within, False, rank, within if coded_within else _joined(within)),
    ]


def broadcast(topology: Topology, rank: int, root: int, span: ElementRange, *, chain: bool) -> list[PlanStep]:
    """Send one rank's span to all ranks. The span is encoded once and forwarded unchanged.

    The span is forwarded along a chain, with pipelined slices, or down a binomial tree. In both cases, the ranks of a
    node are adjacent, so a chain enters each node only once.
    """
    home = topology.node_of[root]
    order = sorted(range(topology.ranks), key=lambda r: (r != root, (topology.node_of[r] - home) % topology.nodes, r))
    place, p = order.index(rank), topology.ranks
    lowest = (place & -place) if place else 1 << (p - 1).bit_length()
    if chain:
        parent, children = place - 1, [place + 1]
    else:
        parent = place - lowest
        children = [place + (1 << k) for k in reversed(range(lowest.bit_length() - 1))]
    sends = [PeerSpan(order[child], span) for child in children if child < p]
    receives = [PeerSpan(order[parent], span)] if place else []
    return _step("receive", 0, True, Combine.REPLACE, [], receives) + _step(
        "pass on", 0, True, Combine.REPLACE, sends, []
    )


def sum_at_root(topology: Topology, rank: int, root: int, span: ElementRange) -> list[PlanStep]:
    """Send every rank's values to the root, which adds them in rank order. Each value is rounded once."""
    members = range(topology.ranks)
    if rank == root:
        receives = [PeerSpan(peer, span) for peer in members] if topology.ranks > 1 else []
        return _step("sum at the root", 0, True, Combine.SUM, [], receives)
    return _step("send to the root", 0, True, Combine.SUM, [PeerSpan(root, span)], [])


Coded = Callable[[PeerSpan], bool]
"""Function that returns whether a message is encoded. Sender and receiver get the same result."""


def all_to_all(rank: int, sends: Pieces, receives: Pieces, *, coded: Coded) -> list[PlanStep]:
    """Send each rank its part. Sent and received spans refer to two different vectors."""
    p = len(sends)
    others = [(rank + step) % p for step in range(1, p)]
    to = [PeerSpan(peer, sends[peer]) for peer in others]
    return _delivered("exchange", to, [PeerSpan(peer, receives[peer]) for peer in reversed(others)], coded)


def message(*, to: PeerSpan | None = None, of: PeerSpan | None = None, coded: Coded) -> list[PlanStep]:
    """Send a part to one rank, receive a part from one rank, or do both at once."""
    return _delivered("message", [to] if to else [], [of] if of else [], coded)


def _delivered(name: str, sends: Sequence[PeerSpan], receives: Sequence[PeerSpan], coded: Coded) -> list[PlanStep]:
    """Return steps with the encoded parts first, followed by the unencoded parts.

    Encoding does not depend on other ranks. Receives of unencoded parts are posted only when their step starts.
    """
    return [
        step
        for how in (True, False)
        for step in _step(
            name,
            0,
            how,
            Combine.DELIVER,
            [part for part in sends if coded(part) is how],
            [part for part in receives if coded(part) is how],
        )
    ]
