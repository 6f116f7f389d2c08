"""One rank's part of a group: its communicators, topology, plans and calls."""

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
        The communicator. Creating a member is a collective call.
    progress, links, places
        As in `Group`.
    parent
        Member of this rank in the parent group.

    Attributes
    ----------
    comm : MPI.Comm
        Communicator for point-to-point messages with tags chosen by callers.
    planned : MPI.Comm
        Communicator for messages of plans, with a separate set of tags.
    library : Library
        The MPI library's collectives.
    choice : Choice
        The plans and their topology.
    calls : Calls
        Calls in flight.
    streamed : StreamedCalls or None
        Calls on GPU arrays if NCCL transports them, or None if MPI does.
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
        """Free the communicators (a final collective call)."""
        if self.streamed is not None:
            self.streamed.free()
        self.library.free()
        self.planned.Free()
        self.comm.Free()

    @property
    def rank(self) -> int:
        """Rank in the group."""
        return int(self.comm.rank)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return int(self.comm.size)

    @property
    def topology(self) -> Topology:
        """Node of each rank."""
        return self.choice.topology

    def use(self, topology: Topology) -> None:
        """Use a different topology for all later plans."""
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
        """Collect the values that are shared by all slices of one call, and create a new tally."""
        seed = channel.counters.calls << 20
        tally = Tally(recorder=channel.recorder)
        return Call(
            MpiCarrier(comm), self.topology, place, codec, channel.travels_as(dtype), vector, seed, feedback, tally
        )

    def coded(self, channel: Channel, dtype: np.dtype[np.generic]) -> steps.Coded:
        """Return a function whose result says whether messages to and from a peer are encoded."""
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
        """Run a collective of the library: NCCL if it transports these arrays, MPI otherwise.

        `call` receives the library and the two arrays. `sent` is the number of bytes that this rank sends, in the dtype
        in which values are sent.
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
        """Execute this rank's steps of a plan over NCCL if it transports these arrays, or over MPI."""
        calls = self.streamed if self.streamed is not None and call.place.on_device else self.calls
        return calls.planned(call, slices, channel, how=how, plain=plain)


def _translate_ranks(comm: MPI.Comm, parent: MPI.Comm) -> list[int]:
    """Translate the ranks of `comm` to ranks of `parent`."""
    some, everyone = comm.Get_group(), parent.Get_group()
    try:
        return list(some.Translate_ranks(None, everyone))
    finally:
        some.Free()
        everyone.Free()
