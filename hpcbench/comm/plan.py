"""Plan of a collective. A plan can be created and printed, and its bytes counted, without sending data."""

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Protocol

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.comm import steps
from hpcbench.comm.steps import PeerSpan, Pieces, PlanStep
from hpcbench.comm.topology import Topology
from hpcbench.contract.shards import ElementRange, cut_aligned, cut_evenly
from hpcbench.contract.traffic import Algorithm


class Operation(str, Enum):
    """Kind of collective operation."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    BROADCAST = "broadcast"
    REDUCE = "reduce"


ROOTED = (Operation.BROADCAST, Operation.REDUCE)
"""Operations from one rank to all ranks, or from all ranks to one."""

UNIT = 1024
"""Slices and pieces of long vectors contain a multiple of this number of elements, to align them with codec chunks.
"""


class Builder(Protocol):
    """A function that returns the steps of a rank."""

    def __call__(self, topology: Topology, rank: int, pieces: Pieces) -> list[PlanStep]:
        """Return the steps of a rank."""


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
"""Reduction and gathering functions of each algorithm in which each piece has an owner."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of one collective on one topology.

    Attributes
    ----------
    operation, algorithm, topology
        The operation, its algorithm, and the topology of the ranks.
    codec
        Codec for encoded messages.
    dtype
        Dtype of the values.
    n
        Number of elements of the vector.
    slices
        Spans of the owners in rank order, for each slice. In a broadcast or a reduction to a root, a slice has a single
        span.
    root
        Root of a broadcast or of a reduction to a root.
    why
        Reason why this plan was chosen.
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

    def steps(self, rank: int, k: int) -> list[PlanStep]:
        """Return the steps of a rank in slice `k`. If the MPI library executes the operation, the list is empty."""
        pieces, topology = self.slices[k], self.topology
        if self.algorithm in (Algorithm.NATIVE, Algorithm.HOMOMORPHIC):
            return []
        if self.operation is Operation.BROADCAST:
            return steps.broadcast(topology, rank, self.root, pieces[0], chain=len(self.slices) > 1)
        if self.operation is Operation.REDUCE:
            return steps.sum_at_root(topology, rank, self.root, pieces[0])
        if self.algorithm is Algorithm.DOUBLING:
            return steps.doubling(topology, rank, pieces)
        reduce, gather = BUILDERS[self.algorithm]
        built = [] if self.operation is Operation.ALL_GATHER else reduce(topology, rank, pieces)
        return built if self.operation is Operation.REDUCE_SCATTER else built + gather(topology, rank, pieces)

    def message_bytes(self, rank: int) -> int:
        """Return the number of bytes that a rank sends, before encoding."""
        return sum(part.span.size * self.dtype.itemsize for _, part in self._sent(rank))

    def wire_bytes(self, rank: int, *, between_nodes: bool = False) -> int:
        """Return the number of bytes that a rank sends, after encoding. If sizes vary, this is the maximum."""
        return sum(
            self._wire(step, part.span)
            for step, part in self._sent(rank)
            if not (between_nodes and self.topology.near(rank, part.peer))
        )

    def busiest_link(self) -> int:
        """Return the largest number of wire bytes that any node sends to other nodes."""
        return max(
            sum(self.wire_bytes(rank, between_nodes=True) for rank in members) for members in self.topology.members
        )

    def _sent(self, rank: int) -> list[tuple[PlanStep, PeerSpan]]:
        return [(step, part) for k in range(len(self.slices)) for step in self.steps(rank, k) for part in step.sends]

    def _wire(self, step: PlanStep, span: ElementRange) -> int:
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


def lay_out(
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
    """Cut the vector into slices, and return the plan of an algorithm."""
    p = topology.ranks
    if algorithm in (Algorithm.NATIVE, Algorithm.HOMOMORPHIC):
        slices = 1
    if operation in ROOTED:
        cut: list[Pieces] = [[span] for span in cut_aligned(ElementRange(0, n), slices, UNIT) if span.size] or [
            [ElementRange(0, n)]
        ]
    elif operation is Operation.ALL_REDUCE:
        # ranks with the same local rank own neighboring pieces, which are sent as one message within nodes
        order = (
            [rank for ranks in zip(*topology.members, strict=True) for rank in ranks]
            if (topology.regular_nodes)
            else list(range(p))
        )
        unit = UNIT if n >= 4 * p * slices * UNIT else 64 if n >= 256 * p * slices else 1
        cut = []
        for span in cut_aligned(ElementRange(0, n), slices, p * unit):
            pieces = cut_aligned(span, p, unit)
            cut.append([pieces[order.index(rank)] for rank in range(p)])
    else:
        owned = [cut_aligned(ElementRange(piece.start, piece.stop), slices, UNIT) for piece in cut_evenly(n, p)]
        cut = [[owned[rank][k] for rank in range(p)] for k in range(slices)]
    return Plan(operation, algorithm, topology, codec, dtype, n, tuple(cut), root)
