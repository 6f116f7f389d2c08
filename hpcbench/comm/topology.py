"""Assignment of a communicator's ranks to nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # plans are also created on hosts without MPI
    from mpi4py import MPI


@dataclass(frozen=True)
class Topology:
    """The nodes of a group's ranks.

    Attributes
    ----------
    node_of
        Node index of each rank. Nodes are numbered in the order of their first ranks.
    """

    node_of: tuple[int, ...]

    @classmethod
    def flat(cls, ranks: int) -> "Topology":
        """Put all ranks on one node."""
        return cls((0,) * ranks)

    @classmethod
    def regular(cls, nodes: int, per_node: int) -> "Topology":
        """Create a topology with the same number of consecutive ranks on each node."""
        return cls(tuple(node for node in range(nodes) for _ in range(per_node)))

    @classmethod
    def of(cls, comm: "MPI.Comm") -> "Topology":
        """Ask the MPI library which ranks share memory (a collective call)."""
        from mpi4py import MPI

        local = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
        firsts = comm.allgather(local.bcast(comm.rank))
        local.Free()
        return cls.by_label(firsts)

    @classmethod
    def by_label(cls, labels: Sequence[int | str]) -> "Topology":
        """Create a topology in which ranks with equal labels share a node."""
        numbers: dict[int | str, int] = {}
        return cls(tuple(numbers.setdefault(label, len(numbers)) for label in labels))

    def part(self, ranks: Sequence[int]) -> "Topology":
        """Return the topology of a subset of the ranks, in the given order."""
        return Topology.by_label([self.node_of[rank] for rank in ranks])

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.node_of)

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """Ranks of each node, in order."""
        members: list[list[int]] = [[] for _ in range(max(self.node_of, default=-1) + 1)]
        for rank, node in enumerate(self.node_of):
            members[node].append(rank)
        return tuple(map(tuple, members))

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.members)

    @property
    def regular_nodes(self) -> bool:
        """Whether every node has the same number of ranks."""
        return len({len(ranks) for ranks in self.members}) <= 1

    @property
    def per_node(self) -> int:
        """Ranks per node. If the nodes differ, the maximum is returned."""
        return max((len(ranks) for ranks in self.members), default=0)

    def near(self, a: int, b: int) -> bool:
        """Return whether two ranks share a node."""
        return self.node_of[a] == self.node_of[b]

    def __str__(self) -> str:
        if self.regular_nodes:
            return f"{self.nodes} nodes x {self.per_node} ranks"
        return f"{self.ranks} ranks on {self.nodes} nodes, {' + '.join(str(len(ranks)) for ranks in self.members)}"
