"""One rank's part of a group: its communicators, topology and plans, and the start of calls on them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcbench.codecs.base import Codec
from hpcbench.comm import steps
from hpcbench.comm.calls import Calls
from hpcbench.comm.channel import Channel
from hpcbench.comm.choice import Choice
from hpcbench.comm.execute import Call
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.links import Links
from hpcbench.comm.memory import Tally
from hpcbench.comm.mpi_carrier import MpiCarrier
from hpcbench.comm.native import Library
from hpcbench.comm.places import DevicePlace, Place, Places
from hpcbench.comm.plan import Plan
from hpcbench.comm.progress import Progress
from hpcbench.comm.steps import PeerSpan, PlanStep
from hpcbench.comm.streamed_calls import StreamedCalls
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
        As in `Group`.
    parent
        The same rank in the group that this group is a part of.

    Attributes
    ----------
    comm : MPI.Comm
        Communicator of messages between two ranks, with the tags of their callers.
    planned : MPI.Comm
        Communicator of the messages of plans, which have tags of their own.
    library : Library
        The MPI library's collectives.
    choice : Choice
        The plans, and the topology that they are made for.
    calls : Calls
        The calls under way.
    streamed : StreamedCalls or None
        The calls whose arrays NCCL carries: all calls on arrays of a GPU. None if MPI carries these, too.
    """

    def __init__(
        self, comm: MPI.Comm, progress: Progress, links: Links, places: Places, parent: "Member | None"
    ) -> None:
        self.comm, self.progress, self.places = comm, progress, places
        self.planned = comm.Dup()
        self.library: Library = Library(comm, parent.library.half_sums if parent else None)
        topology = parent.choice.topology.part(_translate_ranks(comm, parent.comm)) if parent else Topology.of(comm)
        self.choice: Choice = Choice(comm.rank, topology, links)
        self.calls = Calls(progress)
        self.streamed: StreamedCalls | None = None
        if places.nccl is not None and comm.size > 1:
            self.streamed = StreamedCalls(places.nccl(comm))

    def free(self) -> None:
        """Free the communicators (a collective call, and the last one)."""
        if self.streamed is not None:
            self.streamed.free()
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
        """Make plans for a different topology from now on."""
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
        """Collect the values that the slices of one call share, with a new tally."""
        seed = channel.counters.calls << 20
        tally = Tally(recorder=channel.recorder)
        return Call(
            MpiCarrier(comm), self.topology, place, codec, channel.travels_as(dtype), vector, seed, feedback, tally
        )

    def coded(self, channel: Channel, dtype: np.dtype[np.generic]) -> steps.Coded:
        """Return a predicate: whether a message between two ranks goes through the codec."""
        itemsize = channel.travels_as(dtype).itemsize

        def coded(part: PeerSpan) -> bool:
            one_node = self.topology.near(self.rank, part.peer)
            plain = channel.plain_because(part.span.size * itemsize, one_node=one_node)
            return channel.algorithm is not Algorithm.NATIVE and plain is None

        return coded

    def by_library(
        self,
        call: Callable[[Any, Any, Any], Any],
        src: Any,
        dst: Any,
        place: Place,
        channel: Channel,
        sent: int,
        chosen: Plan | None,
        *,
        sums: bool = False,
    ) -> Work:
        """Let the library carry `src` to `dst`: MPI, or NCCL if it carries these arrays.

        `call` is given the library and the two arrays. `sent` is the number of bytes of this rank, in the type that
        is sent.
        """
        tally, how = Tally(message_bytes=sent, wire_bytes=sent), Algorithm.NATIVE.value
        plain = chosen is not None
        if self.streamed is not None and isinstance(place, DevicePlace):
            tally.recorder = channel.recorder
            return self.streamed.by_library(call, src, dst, place, channel, tally, how=how, plain=plain)
        dtype = channel.travels_as(src.dtype)
        on_host = sums and self.library.by_processor(dtype)
        slice_ = place.by_library(partial(call, self.library), src, dst, dtype, on_host=on_host)
        return self.calls.at_once(slice_, channel, place, tally, how=how, plain=plain)

    def planned_call(
        self, call: Call, slices: Iterable[Sequence[PlanStep]], channel: Channel, *, how: str, plain: bool
    ) -> Work:
        """Carry out this rank's steps of a plan over MPI, or over NCCL if it carries these arrays."""
        calls = self.streamed if self.streamed is not None and call.place.on_device else self.calls
        return calls.planned(call, slices, channel, how=how, plain=plain)


def _translate_ranks(comm: MPI.Comm, parent: MPI.Comm) -> list[int]:
    """Return the ranks of `comm` as numbers in `parent`."""
    some, everyone = comm.Get_group(), parent.Get_group()
    try:
        return list(some.Translate_ranks(None, everyone))
    finally:
        some.Free()
        everyone.Free()
