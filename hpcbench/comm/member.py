"""One rank's share of a group: its communicators, its topology and plans, and how a call on them begins."""

from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from hpcbench.codecs.base import Codec
from hpcbench.comm import steps
from hpcbench.comm.arrays import Array
from hpcbench.comm.calls import Calls
from hpcbench.comm.channel import Channel
from hpcbench.comm.choice import Choice
from hpcbench.comm.execute import Call
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.links import Links
from hpcbench.comm.memory import Slice, Tally
from hpcbench.comm.mpi_carrier import MpiCarrier
from hpcbench.comm.native import Library
from hpcbench.comm.places import Place, Places
from hpcbench.comm.plan import Plan
from hpcbench.comm.progress import Progress
from hpcbench.comm.steps import Part
from hpcbench.comm.topology import Topology
from hpcbench.comm.vector import Vector
from hpcbench.comm.work import Work
from hpcbench.contract.traffic import Algorithm


class Member:
    """One rank of a group.

    Parameters
    ----------
    comm
        The communicator. Making a member is a collective call.
    progress, links, places
        As a `Group` is given them.
    whole
        The same rank in the group that this one is a part of.

    Attributes
    ----------
    comm : MPI.Comm
        Carries messages between two ranks, by the tags of their callers.
    planned : MPI.Comm
        Carries the messages of plans, which have tags of their own.
    library : Library
        The MPI library's collectives.
    choice : Choice
        The plans, and the topology by which they are made.
    calls : Calls
        The calls under way.
    """

    def __init__(
        self, comm: MPI.Comm, progress: Progress, links: Links, places: Places, whole: "Member | None"
    ) -> None:
        self.comm, self.progress, self.places = comm, progress, places
        self.planned = comm.Dup()
        self.library: Library = Library(comm, whole.library.half_sums if whole else None)
        topology = whole.choice.topology.part(_numbers(comm, whole.comm)) if whole else Topology.of(comm)
        self.choice: Choice = Choice(comm.rank, topology, links)
        self.calls = Calls(progress)

    def free(self) -> None:
        """Give the communicators back: a collective call, and the last one."""
        self.library.free()
        self.planned.Free()
        self.comm.Free()

    @property
    def rank(self) -> int:
        """Number of the rank in the group."""
        return int(self.comm.rank)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return int(self.comm.size)

    @property
    def topology(self) -> Topology:
        """Nodes of the ranks."""
        return self.choice.topology

    def use(self, topology: Topology) -> None:
        """Make plans for another topology from now on."""
        self.choice = Choice(self.rank, topology, self.choice.links)

    def call(
        self,
        comm: MPI.Comm,
        channel: Channel,
        codec: Codec,
        place: Place,
        dtype: np.dtype[np.generic],
        vector: Vector,
        feedback: Feedback | None = None,
    ) -> Call:
        """What the steps of one call need, with a tally of its own."""
        seed = channel.counters.calls << 20
        tally = Tally(recorder=channel.recorder)
        return Call(
            MpiCarrier(comm), self.topology, place, codec, channel.travels_as(dtype), vector, seed, feedback, tally
        )

    def coded(self, channel: Channel, dtype: np.dtype[np.generic]) -> steps.Coded:
        """The messages between two ranks that go through the codec."""
        itemsize = channel.travels_as(dtype).itemsize

        def coded(part: Part) -> bool:
            one_node = self.topology.near(self.rank, part.peer)
            plain = channel.plain_because(part.span.size * itemsize, one_node=one_node)
            return channel.algorithm is not Algorithm.NATIVE and plain is None

        return coded

    def by_library(
        self,
        call: Callable[[Array, Array], Slice],
        src: Array,
        dst: Array,
        place: Place,
        channel: Channel,
        sent: int,
        chosen: Plan | None,
        *,
        sums: bool = False,
    ) -> Work:
        """Let the MPI library carry `src` to `dst`.

        `sent` is the number of bytes of this rank, in the type that travels.
        """
        dtype = channel.travels_as(src.dtype)
        on_host = sums and self.library.by_processor(dtype)
        slice_ = place.by_library(call, src, dst, dtype, on_host=on_host)
        tally, how = Tally(message_bytes=sent, wire_bytes=sent), Algorithm.NATIVE.value
        return self.calls.at_once(slice_, channel, place, tally, how=how, plain=chosen is not None)


def _numbers(comm: MPI.Comm, whole: MPI.Comm) -> list[int]:
    """The numbers in `whole` of the ranks of `comm`."""
    some, everyone = comm.Get_group(), whole.Get_group()
    try:
        return list(some.Translate_ranks(None, everyone))
    finally:
        some.Free()
        everyone.Free()
