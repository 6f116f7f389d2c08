"""Plans of a group. Each plan is selected once and then reused."""

from dataclasses import replace

import numpy as np

from hpcbench.codecs.identity import Identity
from hpcbench.comm.arrays import Array
from hpcbench.comm.channel import Channel
from hpcbench.comm.links import Links
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.planner import Request, plan, refusal
from hpcbench.comm.steps import PlanStep
from hpcbench.comm.topology import Topology
from hpcbench.contract.traffic import Algorithm

_SUMS = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.REDUCE)
_PLAIN = Identity()


class Choice:
    """The plans of one rank.

    Parameters
    ----------
    rank
        Rank in the group.
    topology
        Topology of the group.
    links
        Speeds of links and codecs, used to select plans.
    """

    def __init__(self, rank: int, topology: Topology, links: Links) -> None:
        self.rank, self.topology, self.links = rank, topology, links
        self._plans: dict[tuple[object, ...], Plan] = {}
        self._steps: dict[Plan, list[list[PlanStep]]] = {}

    def plan(
        self, operation: Operation, buf: Array, channel: Channel, *, root: int = 0, feedback: bool = False
    ) -> Plan | None:
        """Return the plan, or None if the channel uses only the MPI library.

        A scheme uses one algorithm for all its traffic. If that algorithm does not support an operation, the fastest
        supported algorithm is used. Traffic that the channel does not encode uses the MPI library.

        Raises
        ------
        ValueError
            `buf` would be summed in half precision, with rounding at each rank. The error is also raised if only
            traffic between nodes is to be encoded and no algorithm supports this.
        """
        if channel.algorithm is Algorithm.NATIVE:
            return None
        dtype = channel.travels_as(buf.dtype)
        if operation in _SUMS and buf.dtype not in (np.float32, np.float64):
            raise ValueError(f"a reduction sums fp32 or fp64, not {buf.dtype}: convert the values first")
        algorithm: Algorithm = channel.algorithm
        codec = channel.codec
        plain = channel.plain_because(buf.size * dtype.itemsize, one_node=self.topology.nodes == 1)
        if plain:
            algorithm, codec = Algorithm.NATIVE, _PLAIN
        between = channel.between_nodes and not plain
        # values sent in a shorter dtype are rounded once as a contribution and once as a sum, like values with
        # residuals; only the ring algorithm, which is kept for comparison, rounds at each hop
        feedback = feedback or (channel.rounds(buf.dtype) and algorithm is not Algorithm.RING)
        key = operation, algorithm, codec.name, buf.size, dtype, channel.slices, root, feedback, between, plain
        if key not in self._plans:
            if not between and refusal(operation, algorithm, self.topology, feedback=feedback):
                algorithm = Algorithm.ENCODED  # for the counters
            request = Request(
                operation,
                buf.size,
                dtype,
                self.topology,
                codec,
                algorithm=algorithm,
                slices=channel.slices,
                root=root,
                feedback=feedback,
                between_nodes=between,
            )
            laid = plan(request, self.links)
            self._plans[key] = replace(laid, why=plain) if plain else laid
        return self._plans[key]

    def steps(self, chosen: Plan) -> list[list[PlanStep]]:
        """Return the steps of this rank in each slice."""
        if chosen not in self._steps:
            self._steps[chosen] = [chosen.steps(self.rank, k) for k in range(len(chosen.slices))]
        return self._steps[chosen]

    def blocking(self, operation: Operation, buf: Array, channel: Channel) -> bool:
        """Return whether the library's blocking call was measured as faster.

        The result is False unless the algorithm is selected automatically.
        """
        return channel.algorithm is Algorithm.AUTO and self.links.blocks(operation.value, buf.nbytes, self.topology)
