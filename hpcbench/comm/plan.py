"""How a collective is carried out: chosen, cut, counted and printed before a byte moves. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache, partial
from typing import Protocol

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.comm import steps
from hpcbench.comm.links import DEFAULT, Links
from hpcbench.comm.steps import Part, Pieces, Step
from hpcbench.comm.topology import Topology
from hpcbench.contract.shards import Span, aligned, shards
from hpcbench.contract.traffic import Algorithm


class Operation(str, Enum):
    """What a collective leaves behind."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    BROADCAST = "broadcast"


_UNIT = 1024
"""Elements: slices and pieces begin on a chunk of every codec, where there are enough of them."""
_MEASURED, _EXPECTED = 0.95, 0.8
"""Shares of the library's time that a plan with a codec may take to be chosen: medians differ by some percent from day
to day, a model by more."""


class Builder(Protocol):
    """Makes the steps of a rank."""

    def __call__(self, topology: Topology, rank: int, pieces: Pieces) -> list[Step]: ...


BUILDERS: dict[Algorithm, tuple[Builder, Builder]] = {
    Algorithm.TWO_SHOT: (steps.two_shot_reduce, steps.two_shot_gather),
    Algorithm.HIERARCHICAL: (
        partial(steps.hierarchical_reduce, coded_within=False),
        partial(steps.hierarchical_gather, coded_within=False),
    ),
    Algorithm.HIERARCHICAL_ENCODED: (
        partial(steps.hierarchical_reduce, coded_within=True),
        partial(steps.hierarchical_gather, coded_within=True),
    ),
    Algorithm.RING: (steps.ring_reduce, steps.ring_gather),
}
"""Reduction and gathering of each algorithm that has owners."""


@dataclass(frozen=True, eq=False)
class Plan:
    """One collective on one topology.

    Attributes
    ----------
    operation, algorithm, topology
        What, how, where.
    codec
        Of the encoded messages.
    dtype
        Of the values.
    n
        Elements of the vector.
    slices
        Spans of the owners, by rank, for each slice; of a broadcast the slice alone.
    root
        Of a broadcast.
    why
        What made this the choice.
    """

    operation: Operation
    algorithm: Algorithm
    topology: Topology
    codec: Codec
    dtype: np.dtype[np.generic]
    n: int
    slices: tuple[Pieces, ...]
    root: int = 0
    why: str = "asked for"

    def steps(self, rank: int, k: int) -> list[Step]:
        """Steps of a rank in slice `k`; none where the MPI library does it all."""
        pieces, topology = self.slices[k], self.topology
        if self.algorithm in (Algorithm.NATIVE, Algorithm.HOMOMORPHIC):
            return []
        if self.operation is Operation.BROADCAST:
            return steps.broadcast(topology, rank, self.root, pieces[0], chain=len(self.slices) > 1)
        if self.algorithm is Algorithm.DOUBLING:
            return steps.doubling(topology, rank, pieces)
        reduce, gather = BUILDERS[self.algorithm]
        built = [] if self.operation is Operation.ALL_GATHER else reduce(topology, rank, pieces)
        return built if self.operation is Operation.REDUCE_SCATTER else built + gather(topology, rank, pieces)

    def message_bytes(self, rank: int) -> int:
        """Bytes that a rank sends, before the codec."""
        return sum(part.span.size * self.dtype.itemsize for _, part in self._sent(rank))

    def wire_bytes(self, rank: int, *, between_nodes: bool = False) -> int:
        """Bytes that a rank sends, after the codec; of codecs whose size depends on the values, the most."""
        return sum(
            self._wire(step, part.span)
            for step, part in self._sent(rank)
            if not (between_nodes and self.topology.near(rank, part.peer))
        )

    def busiest_link(self) -> int:
        """Wire bytes that leave the node that sends the most."""
        return max(
            sum(self.wire_bytes(rank, between_nodes=True) for rank in members) for members in self.topology.members
        )

    def _sent(self, rank: int) -> list[tuple[Step, Part]]:
        return [(step, part) for k in range(len(self.slices)) for step in self.steps(rank, k) for part in step.sends]

    def _wire(self, step: Step, span: Span) -> int:
        return self.codec.wire_bytes(span.size, self.dtype) if step.coded else span.size * self.dtype.itemsize

    def __str__(self) -> str:
        head = f"{self.operation.value} of {self.n} {self.dtype} over {self.topology}: {self.algorithm.value}"
        if self.algorithm in (Algorithm.NATIVE, Algorithm.HOMOMORPHIC):
            return f"{head}, by the MPI library ({self.why})"
        lines = [f"{head}, codec {self.codec.name}, {len(self.slices)} slices ({self.why}); rank 0 in the first slice:"]
        for step in self.steps(0, 0):
            peers = ", ".join(str(peer) for peer in dict.fromkeys(part.peer for part in step.sends)) or "nobody"
            message = sum(part.span.size for part in step.sends) * self.dtype.itemsize
            wire = sum(self._wire(step, part.span) for part in step.sends)
            lines.append(f"  {step.name}: {message} bytes as {wire} to rank {peers}")
        return "\n".join(lines)


def plan(
    operation: Operation,
    n: int,
    dtype: np.dtype[np.generic],
    topology: Topology,
    codec: Codec,
    *,
    algorithm: Algorithm = Algorithm.ENCODED,
    links: Links = DEFAULT,
    slices: int | None = None,
    root: int = 0,
    feedback: bool = False,
    between_nodes: bool = False,
) -> Plan:
    """Choose and lay out a collective.

    Parameters
    ----------
    operation, n, dtype
        What, on a vector of how many elements of which type.
    topology
        Ranks and their nodes.
    codec
        Of the encoded messages.
    algorithm
        ``AUTO`` and ``ENCODED`` leave the choice to `links`.
    links
        What the machine's links and codecs have been measured to do.
    slices
        How many; by default what is expected to be the fastest.
    root
        Of a broadcast.
    feedback
        Whether residuals are kept, which takes one encoding of each contribution and one of each sum.
    between_nodes
        Whether only what crosses nodes may be encoded.

    Raises
    ------
    ValueError
        The algorithm does not do this here; the message says why.
    """
    return _plan(operation, n, dtype, topology, codec, algorithm, links, slices, root, feedback, between_nodes)


@lru_cache(maxsize=4096)
def _plan(
    operation: Operation,
    n: int,
    dtype: np.dtype[np.generic],
    topology: Topology,
    codec: Codec,
    algorithm: Algorithm,
    links: Links,
    slices: int | None,
    root: int,
    feedback: bool,
    between_nodes: bool,
) -> Plan:
    make = partial(_lay_out, operation, n, dtype, topology, codec, root=root)
    if between_nodes:
        reason = _not_between_nodes(operation, algorithm, topology)
        if reason:
            raise ValueError(f"no {operation.value} over {topology} is encoded between nodes only: {reason}")
        found = [make(Algorithm.HIERARCHICAL, count) for count in _counts(n, topology, slices)]
        found += [make(Algorithm.NATIVE, 1)] if algorithm is Algorithm.AUTO else []
        return _best(found, links, "encoded between nodes only")
    if algorithm not in (Algorithm.AUTO, Algorithm.ENCODED):
        reason = refusal(operation, algorithm, topology, feedback=feedback)
        if reason:
            raise ValueError(f"{algorithm.value} does no {operation.value} over {topology}: {reason}")
        return _best([make(algorithm, count) for count in _counts(n, topology, slices)], links, "asked for")
    candidates = [
        make(candidate, count)
        for candidate in _candidates(operation, topology, algorithm)
        if not refusal(operation, candidate, topology, feedback=feedback)
        for count in _counts(n, topology, slices)
    ]
    return _best(candidates, links, "fastest")


def refusal(operation: Operation, algorithm: Algorithm, topology: Topology, *, feedback: bool = False) -> str | None:
    """Why an algorithm cannot do an operation on a topology."""
    if operation is Operation.BROADCAST:
        return None  # a chain or a tree, whatever the reductions do
    if algorithm in (Algorithm.DOUBLING, Algorithm.HOMOMORPHIC) and operation is not Operation.ALL_REDUCE:
        return "it does all-reduce only"
    if algorithm in (Algorithm.HIERARCHICAL, Algorithm.HIERARCHICAL_ENCODED) and not topology.regular_nodes:
        return "it needs the same number of ranks on every node"
    if feedback and algorithm in (Algorithm.RING, Algorithm.DOUBLING, Algorithm.HOMOMORPHIC):
        return "it has no place for error feedback"
    return None


def _not_between_nodes(operation: Operation, algorithm: Algorithm, topology: Topology) -> str | None:
    """Why there is no plan whose messages within nodes are plain, and those between nodes encoded."""
    if operation is Operation.BROADCAST:
        return "a broadcast passes on what its root has encoded"
    if algorithm not in (Algorithm.HIERARCHICAL, Algorithm.AUTO):
        return f"{algorithm.value} does not tell them from others"
    return refusal(operation, Algorithm.HIERARCHICAL, topology)


def _candidates(operation: Operation, topology: Topology, algorithm: Algorithm) -> Sequence[Algorithm]:
    chosen = [Algorithm.TWO_SHOT]
    if operation is Operation.ALL_REDUCE:
        chosen.append(Algorithm.DOUBLING)
    if topology.nodes > 1 and topology.per_node > 1 and topology.regular_nodes:
        chosen.append(Algorithm.HIERARCHICAL)
    if algorithm is Algorithm.AUTO:
        chosen.append(Algorithm.NATIVE)
    return chosen


def _counts(n: int, topology: Topology, slices: int | None) -> Sequence[int]:
    """Numbers of slices to consider: down to slices of so many elements that a message is worth its cost."""
    if slices is not None:
        return [slices]
    most = max(1, n // (topology.ranks * 4 * _UNIT))
    return [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= most]


def _best(candidates: Sequence[Plan], links: Links, why: str) -> Plan:
    """The fastest; one with a codec in place of the library's own only where the gain is beyond doubt."""
    library = [candidate for candidate in candidates if candidate.algorithm is Algorithm.NATIVE]
    others = [candidate for candidate in candidates if candidate.algorithm is not Algorithm.NATIVE]
    if len(candidates) == 1 or not others:
        return replace(candidates[0], why=why)
    # what was measured is not weighed against what is only expected: a model that errs low would always win
    measured = [other for other in others if links.measured_seconds(other) is not None]
    best = min(measured or others, key=links.seconds)
    seconds, word = links.seconds(best), "measured" if measured else "expected"
    if library:
        plain, margin = links.seconds(library[0]), _MEASURED
        if not measured or links.measured_seconds(library[0]) is None:
            # both by the model, whose omissions then cancel; or the library as measured, should that be faster still
            plain, margin = min(plain, links.model_seconds(library[0])), _EXPECTED
        if seconds > margin * plain:
            return replace(library[0], why=f"{plain * 1e6:.0f} us; {best.codec.name} {seconds * 1e6:.0f} us {word}")
    return replace(best, why=f"{why}, {seconds * 1e6:.0f} us {word}")


def _lay_out(
    operation: Operation,
    n: int,
    dtype: np.dtype[np.generic],
    topology: Topology,
    codec: Codec,
    algorithm: Algorithm,
    slices: int,
    *,
    root: int,
) -> Plan:
    p = topology.ranks
    if algorithm in (Algorithm.NATIVE, Algorithm.HOMOMORPHIC):
        slices = 1
    if operation is Operation.BROADCAST:
        cut: list[Pieces] = [[span] for span in aligned(Span(0, n), slices, _UNIT) if span.size] or [[Span(0, n)]]
    elif operation is Operation.ALL_REDUCE:
        # ranks of equal place on their nodes own neighbouring pieces: those travel within nodes as one
        order = (
            [rank for ranks in zip(*topology.members, strict=True) for rank in ranks]
            if (topology.regular_nodes)
            else list(range(p))
        )
        unit = _UNIT if n >= 4 * p * slices * _UNIT else 64 if n >= 256 * p * slices else 1
        cut = []
        for span in aligned(Span(0, n), slices, p * unit):
            pieces = aligned(span, p, unit)
            cut.append([pieces[order.index(rank)] for rank in range(p)])
    else:
        owned = [aligned(Span(piece.start, piece.stop), slices, _UNIT) for piece in shards(n, p)]
        cut = [[owned[rank][k] for rank in range(p)] for k in range(slices)]
    return Plan(operation, algorithm, topology, codec, dtype, n, tuple(cut), root)
