"""A group: one communicator and the operations on it.

Every operation takes the channel of its traffic, writes into the caller's buffers (contiguous arrays of NumPy, or of
torch or CuPy on a GPU) and counts the bytes that this rank sent. It returns at once with a `Work`, which the caller
waits for. A group of one rank sends nothing and encodes nothing. An operation on a GPU follows the caller's current
stream. `wait` returns when the device has done it, so that every stream can use the result.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
from mpi4py import MPI

from hpcbench.codecs.base import Codec
from hpcbench.codecs.identity import Identity
from hpcbench.codecs.quant import Quant
from hpcbench.comm import homomorphic, steps
from hpcbench.comm import plan as plans
from hpcbench.comm.arrays import Array
from hpcbench.comm.calls import Calls
from hpcbench.comm.channel import Channel
from hpcbench.comm.choice import Choice
from hpcbench.comm.execute import Call, carry_out
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.links import DEFAULT, Links
from hpcbench.comm.memory import Slice, Tally
from hpcbench.comm.mpi_carrier import MpiCarrier
from hpcbench.comm.native import Library
from hpcbench.comm.places import Place, Places
from hpcbench.comm.plan import Plan
from hpcbench.comm.progress import Progress
from hpcbench.comm.relay import Relay, hop
from hpcbench.comm.sample import sample_error
from hpcbench.comm.steps import Part, Step
from hpcbench.comm.topology import Topology
from hpcbench.comm.vector import Exchanged, InPlace, Reduced, Vector
from hpcbench.comm.wait import Wait
from hpcbench.comm.work import Work
from hpcbench.contract.shards import Span, all_gather_bytes, all_reduce_bytes, length, reduce_scatter_bytes, shards
from hpcbench.contract.traffic import Algorithm

_PLAIN = Identity()


class Group:
    """Operations on one communicator.

    Parameters
    ----------
    comm
        The communicator. Only the group may send on it from now on. Making a group is a collective call.
    progress
        Drives the operations of all groups of a process.
    links
        Speeds of links and codecs, by which plans are chosen.
    places
        Places that arrays may lie in; by default the host, and GPUs that the MPI library does not know.
    whole
        The group that this one is a part of. What its ranks know of their nodes and of the library is not asked again.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        progress: Progress,
        links: Links = DEFAULT,
        places: Places | None = None,
        *,
        whole: "Group | None" = None,
    ) -> None:
        self._comm, self._progress = comm, progress
        self._planned = comm.Dup()  # messages of plans have tags of their own
        self._library: Library = Library(comm, whole._library.half_sums if whole else None)
        topology = whole.topology.part(_numbers(comm, whole._comm)) if whole else Topology.of(comm)
        self._choice = Choice(comm.rank, topology, links)
        self._places = places or Places()
        self._calls = Calls(progress)
        self._parts: list[Group] = []

    @property
    def topology(self) -> Topology:
        """Nodes of the ranks, as the MPI library gives them. It may be replaced to try out another topology."""
        return self._choice.topology

    @topology.setter
    def topology(self, topology: Topology) -> None:
        self._choice = Choice(self.rank, topology, self._choice.links)

    def split(self, color: int, key: int) -> "Group":
        """A group of those ranks of this group that give the same color, in the order of their keys.

        Making it is a collective call.
        """
        part = Group(self._comm.Split(color, key), self._progress, self._choice.links, self._places, whole=self)
        self._parts.append(part)
        return part

    def within_node(self) -> "Group":
        """A group of those ranks of this group that share this rank's node. Making it is a collective call."""
        return self.split(self.topology.node_of[self.rank], self.rank)

    def free(self) -> None:
        """Give the communicators of this group and of its parts back, of which a process has some thousand.

        This is a collective call, and the last one.
        """
        for part in self._parts:
            part.free()
        self._library.free()
        self._planned.Free()
        self._comm.Free()

    @property
    def rank(self) -> int:
        """Number of the caller's rank in the group."""
        return int(self._comm.rank)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return int(self._comm.size)

    def all_reduce(
        self, buf: Array, *, channel: Channel, op: MPI.Op = MPI.SUM, feedback: Feedback | None = None
    ) -> Work:
        """Reduce `buf` over the ranks, in place. Only the sum can be encoded.

        Parameters
        ----------
        buf
            Values, shape (n,).
        channel
            Channel of the traffic.
        op
            The operation. Only native channels can do others than the sum.
        feedback
            Residuals of this vector, kept from call to call.

        Raises
        ------
        ValueError
            The operation cannot be encoded, or is summed in half precision.
        """
        if op is not MPI.SUM and channel.algorithm is not Algorithm.NATIVE:
            raise ValueError("an encoded all-reduce sums: use an exact channel for other operations")
        if self.size == 1:
            return Work.nothing(channel)
        place, (buf,) = self._places.of(buf)
        chosen = self._choice.plan(plans.Operation.ALL_REDUCE, buf, channel, feedback=feedback is not None)
        if chosen is None or chosen.algorithm is Algorithm.NATIVE:
            sent = all_reduce_bytes(self._piece_bytes(buf, channel), self.rank)
            blocking = self._blocking(plans.Operation.ALL_REDUCE, buf, channel)
            return self._by_library(
                lambda _, buf: self._library.all_reduce(buf, op, blocking=blocking),
                *(buf, buf, place, channel, sent, chosen),
                sums=True,
            )
        if chosen.algorithm is Algorithm.HOMOMORPHIC and isinstance(channel.codec, Quant):
            if place.on_device:
                raise ValueError("homomorphic sums are made in host memory: on a GPU use another algorithm")
            tally, how = Tally(recorder=channel.recorder), chosen.algorithm.value
            slice_ = homomorphic.all_reduce(self._planned, buf, channel.codec, tally)
            return self._calls.at_once(slice_, channel, place, tally, how=how, in_order=True)
        return self._carry_out(chosen, channel, place, buf, InPlace(buf), feedback)

    def reduce_scatter(self, src: Array, dst: Array, *, channel: Channel, feedback: Feedback | None = None) -> Work:
        """Sum `src` over the ranks. `dst` receives this rank's piece, cut by `shards`."""
        place, (src, dst) = self._places.of(src, dst)
        piece = shards(src.size, self.size)[self.rank]
        if self.size == 1:
            place.copy(dst, src)
            return Work.nothing(channel)
        chosen = self._choice.plan(plans.Operation.REDUCE_SCATTER, src, channel, feedback=feedback is not None)
        if chosen is None or chosen.algorithm is Algorithm.NATIVE:
            sent = reduce_scatter_bytes(self._piece_bytes(src, channel), self.rank)
            blocking = self._blocking(plans.Operation.REDUCE_SCATTER, src, channel)
            return self._by_library(
                lambda src, dst: self._library.reduce_scatter(src, dst, blocking=blocking),
                *(src, dst, place, channel, sent, chosen),
                sums=True,
            )
        vector = Reduced(src, dst, Span(piece.start, piece.stop))
        return self._carry_out(chosen, channel, place, src, vector, feedback)

    def all_gather(self, src: Array, dst: Array, *, channel: Channel) -> Work:
        """Join `src` of all ranks in `dst`. The pieces are those of `shards`."""
        place, (src, dst) = self._places.of(src, dst)
        if self.size == 1:
            place.copy(dst, src)
            return Work.nothing(channel)
        chosen = self._choice.plan(plans.Operation.ALL_GATHER, dst, channel)
        if chosen is None or chosen.algorithm is Algorithm.NATIVE:
            sent = all_gather_bytes(self._piece_bytes(dst, channel), self.rank)
            blocking = self._blocking(plans.Operation.ALL_GATHER, dst, channel)
            return self._by_library(
                lambda src, dst: self._library.all_gather(src, dst, blocking=blocking),
                *(src, dst, place, channel, sent, chosen),
            )
        place.copy(dst[shards(dst.size, self.size)[self.rank]], src)
        return self._carry_out(chosen, channel, place, src, InPlace(dst), None)

    def all_gather_counts(self, src: Array, dst: Array, counts: Sequence[int], *, channel: Channel) -> Work:
        """Join `src` of all ranks in `dst`, of each rank as many elements as `counts` says.

        Sizes change from call to call, so that no plan is kept. Each rank sends its part straight to all others,
        encoded once: where only traffic between nodes is to be encoded, within them, too. So all ranks hold the same
        decoded values.
        """
        place, (src, dst) = self._places.of(src, dst)
        if self.size == 1:
            place.copy(dst, src)
            return Work.nothing(channel)
        pieces, itemsize = _spans(counts), channel.travels_as(src.dtype).itemsize
        automatic = channel.algorithm is Algorithm.AUTO and channel.codec.name == "none"
        if channel.algorithm is Algorithm.NATIVE or automatic:
            parts = [slice(*piece) for piece in pieces]
            sent = (self.size - 1) * src.size * itemsize
            return self._by_library(
                lambda src, dst: self._library.all_gather(src, dst, pieces=parts),
                *(src, dst, place, channel, sent, None),
            )
        place.copy(dst[slice(*pieces[self.rank])], src)
        plain = channel.plain_because(dst.size * itemsize, one_node=self.topology.nodes == 1)
        codec = _PLAIN if plain else channel.codec
        sample_error(channel, codec, place, src)
        todo = steps.two_shot_gather(self.topology, self.rank, pieces)
        call = self._call(self._planned, channel, codec, place, src.dtype, InPlace(dst))
        return self._calls.planned(call, [todo], channel, how="direct", plain=plain is not None)

    def broadcast(self, buf: Array, root: int, *, channel: Channel) -> Work:
        """Send `buf` of the root to all ranks. The root holds the decoded values afterwards, too."""
        if self.size == 1:
            return Work.nothing(channel)
        place, (buf,) = self._places.of(buf)
        chosen = self._choice.plan(plans.Operation.BROADCAST, buf, channel, root=root)
        if chosen is None or chosen.algorithm is Algorithm.NATIVE:
            each = buf.size * channel.travels_as(buf.dtype).itemsize
            sent = (self.size - 1) * each if self.rank == root else 0
            blocking = self._blocking(plans.Operation.BROADCAST, buf, channel)
            return self._by_library(
                lambda _, buf: self._library.broadcast(buf, root, blocking=blocking),
                *(buf, buf, place, channel, sent, chosen),
            )
        return self._carry_out(chosen, channel, place, buf, InPlace(buf), None)

    def reduce(self, src: Array, dst: Array | None, root: int, *, channel: Channel) -> Work:
        """Sum `src` over the ranks into `dst` of the root. The other ranks need no `dst`, and `src` does not change."""
        at_root = self.rank == root
        into = dst if at_root and dst is not None else src[:0]
        place, (src, into) = self._places.of(src, into)
        if self.size == 1:
            place.copy(into, src)
            return Work.nothing(channel)
        chosen = self._choice.plan(plans.Operation.REDUCE, src, channel, root=root)
        if chosen is None or chosen.algorithm is Algorithm.NATIVE:
            sent = 0 if at_root else src.size * channel.travels_as(src.dtype).itemsize
            blocking = self._blocking(plans.Operation.REDUCE, src, channel)
            return self._by_library(
                lambda src, into: self._library.reduce(src, into, root, blocking=blocking),
                *(src, into, place, channel, sent, chosen),
                sums=True,
            )
        vector = Reduced(src, into, Span(0, src.size if at_root else 0))
        return self._carry_out(chosen, channel, place, src, vector, None)

    def all_to_all(
        self, src: Array, dst: Array, counts: tuple[Sequence[int], Sequence[int]], *, channel: Channel
    ) -> Work:
        """Send part i of `src` to rank i, and receive the parts of all ranks in `dst`, in rank order.

        A rank's own part stays exact, or is rounded like the others where the MPI library carries another type.

        Parameters
        ----------
        src, dst
            Values, shapes (sum of the counts,).
        counts
            Elements to each rank, and elements from each rank.
        channel
            Channel of the traffic.
        """
        place, (src, dst) = self._places.of(src, dst)
        sends, receives = (_spans(part) for part in counts)
        own = self.rank
        if channel.algorithm is Algorithm.NATIVE and self.size > 1:
            parts = [[slice(*span) for span in spans] for spans in (sends, receives)]
            values = sum(span.size for peer, span in enumerate(sends) if peer != own)
            sent = values * channel.travels_as(src.dtype).itemsize
            return self._by_library(
                lambda src, dst: self._library.all_to_all(src, dst, *parts), *(src, dst, place, channel, sent, None)
            )
        place.copy(dst[slice(*receives[own])], src[slice(*sends[own])])
        if self.size == 1:
            return Work.nothing(channel)
        coded = self._coded(channel, src.dtype)
        todo = steps.all_to_all(own, sends, receives, coded=coded)
        if any(step.coded for step in todo):
            sample_error(channel, channel.codec, place, src)
        call = self._call(self._planned, channel, channel.codec, place, src.dtype, Exchanged(src, dst))
        return self._calls.planned(call, [todo], channel, how="direct", plain=_any_plain(todo))

    def send(self, buf: Array, peer: int, *, tag: int, channel: Channel, feedback: Feedback | None = None) -> Work:
        """Encode `buf` and send it; the caller may change `buf` at once.

        Parameters
        ----------
        buf
            Values.
        peer, tag
            Who gets it, and by which tag it is known.
        channel
            Channel of the traffic.
        feedback
            Residuals of this vector, if it is a contribution to a sum.
        """
        todo = steps.message(to=Part(peer, _whole(buf)), coded=self._coded(channel, buf.dtype))
        if feedback is not None:
            todo = [replace(step, combine=steps.Combine.SUM) for step in todo]
        return self._message(buf, buf, todo, tag, channel, feedback)

    def carried(self, channel: Channel, buf: Array, peer: int, *, tag: int, receives: bool) -> Slice:
        """A message for a generator that is itself an operation: it goes on when the message has left or has come.

        Arrays must lie in the host's memory. The message counts when it is done.
        """
        place, (buf,) = self._places.of(buf)
        coded, part = self._coded(channel, buf.dtype), Part(peer, _whole(buf))
        todo = steps.message(of=part, coded=coded) if receives else steps.message(to=part, coded=coded)
        call = self._call(self._comm, channel, channel.codec, place, buf.dtype, Exchanged(buf, buf))
        counters, tally = channel.counters, call.tally
        counters.calls += 1
        counters.plain_calls += _any_plain(todo) and channel.codec.name != "none"
        yield from carry_out(call, todo, tag)
        for name in ("message_bytes", "wire_bytes", "coded_bytes", "network_bytes", "lost_overflows"):
            setattr(counters, name, getattr(counters, name) + getattr(tally, name))
        counters.encode_s += tally.encode_s
        counters.decode_s += tally.decode_s

    def recv(self, buf: Array, peer: int, *, tag: int, channel: Channel) -> Work:
        """Receive a message of `peer` and decode it into `buf`."""
        todo = steps.message(of=Part(peer, _whole(buf)), coded=self._coded(channel, buf.dtype))
        return self._message(buf, buf, todo, tag, channel)

    def shift(self, src: Array, dst: Array, *, by: int, tag: int = 0, channel: Channel) -> Work:
        """Send `src` to the rank `by` places ahead on the ring, and receive `dst` from the rank `by` places behind."""
        if by % self.size == 0:
            place, (src, dst) = self._places.of(src, dst)
            place.copy(dst, src)
            return Work.nothing(channel)
        after, before = (self.rank + by) % self.size, (self.rank - by) % self.size
        to, of = Part(after, _whole(src)), Part(before, _whole(dst))
        todo = steps.message(to=to, of=of, coded=self._coded(channel, src.dtype))
        return self._message(src, dst, todo, tag, channel)

    def pass_on(self, src: Array, dst: Array, relay: Relay, *, tag: int, channel: Channel) -> Work:
        """Send `src` to the next rank of the ring, and receive `dst` from the one before: a hop of blocks.

        Parameters
        ----------
        src, dst
            The rank's own block, or the one that the last hop brought; and room for the next. All ranks' are alike.
        relay
            Keeps what the last hop brought as it came, so that its owner alone encodes a block. Where only some links
            are encoded, each of them encodes the block anew.
        """
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        coded, to, of = self._coded(channel, src.dtype), Part(after, _whole(src)), Part(before, _whole(dst))
        if channel.codec.name == "none" or not (coded(to) and coded(of)):
            return self.shift(src, dst, by=1, tag=tag, channel=channel)
        place, (src, dst) = self._places.of(src, dst)
        if relay.is_empty:
            sample_error(channel, channel.codec, place, src)
        call = self._call(self._comm, channel, channel.codec, place, src.dtype, Exchanged(src, dst))
        work = self._calls.at_once(hop(call, to, of, relay, tag), channel, place, call.tally, how="direct")
        place.settle()
        return work

    def _coded(self, channel: Channel, dtype: np.dtype[np.generic]) -> steps.Coded:
        """The messages between two ranks that go through the codec."""
        itemsize = channel.travels_as(dtype).itemsize

        def coded(part: Part) -> bool:
            one_node = self.topology.near(self.rank, part.peer)
            plain = channel.plain_because(part.span.size * itemsize, one_node=one_node)
            return channel.algorithm is not Algorithm.NATIVE and plain is None

        return coded

    def _blocking(self, operation: plans.Operation, buf: Array, channel: Channel) -> bool:
        """Whether to use the library's blocking call: the same answer on every rank.

        It is never used while operations may be under way in the background: they would stop, and other ranks wait for
        them.
        """
        if self._progress.background:
            return False
        if self._progress.wait is Wait.SPIN:
            return True
        return self._choice.blocking(operation, buf, channel)

    def _by_library(
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
        on_host = sums and self._library.by_processor(dtype)
        slice_ = place.by_library(call, src, dst, dtype, on_host=on_host)
        tally, how = Tally(message_bytes=sent, wire_bytes=sent), Algorithm.NATIVE.value
        return self._calls.at_once(slice_, channel, place, tally, how=how, plain=chosen is not None)

    def _carry_out(
        self, chosen: Plan, channel: Channel, place: Place, values: Array, vector: Vector, feedback: Feedback | None
    ) -> Work:
        slices, how = self._choice.steps(chosen), chosen.algorithm.value
        # a plan may have the codec and no step that runs it, such as a hierarchical one on a single node
        plain = chosen.codec.name != channel.codec.name or not any(step.coded for todo in slices for step in todo)
        sample_error(channel, _PLAIN if plain else chosen.codec, place, values)
        residuals = None if plain else feedback
        call = self._call(self._planned, channel, chosen.codec, place, values.dtype, vector, residuals)
        return self._calls.planned(call, slices, channel, how=how, plain=plain)

    def _message(
        self,
        src: Array,
        dst: Array,
        todo: Sequence[Step],
        tag: int,
        channel: Channel,
        feedback: Feedback | None = None,
    ) -> Work:
        place, (src, dst) = self._places.of(src, dst)
        sends_values = any(step.sends and not step.coded for step in todo)
        vector = Exchanged((place.snapshot(src) if sends_values else src).reshape(-1), dst.reshape(-1))
        call = self._call(self._comm, channel, channel.codec, place, src.dtype, vector, feedback)
        slice_, plain = carry_out(call, todo, tag), _any_plain(todo)
        work = self._calls.at_once(slice_, channel, place, call.tally, how="direct", plain=plain)
        place.settle()
        return work

    def _call(
        self,
        comm: MPI.Comm,
        channel: Channel,
        codec: Codec,
        place: Place,
        dtype: np.dtype[np.generic],
        vector: Vector,
        feedback: Feedback | None = None,
    ) -> Call:
        seed = channel.counters.calls << 20
        tally = Tally(recorder=channel.recorder)
        return Call(
            MpiCarrier(comm), self.topology, place, codec, channel.travels_as(dtype), vector, seed, feedback, tally
        )

    def _piece_bytes(self, buf: Array, channel: Channel) -> list[int]:
        """Bytes of each rank's piece of a vector, in the type that travels."""
        width = channel.travels_as(buf.dtype).itemsize
        return [length(piece) * width for piece in shards(buf.size, self.size)]


def _numbers(comm: MPI.Comm, whole: MPI.Comm) -> list[int]:
    """The numbers in `whole` of the ranks of `comm`."""
    some, everyone = comm.Get_group(), whole.Get_group()
    try:
        return list(some.Translate_ranks(None, everyone))
    finally:
        some.Free()
        everyone.Free()


def _any_plain(todo: Sequence[Step]) -> bool:
    return any(not step.coded for step in todo)


def _spans(counts: Sequence[int]) -> list[Span]:
    return [Span(*bounds) for bounds in pairwise(accumulate(counts, initial=0))]


def _whole(buf: Array) -> Span:
    return Span(0, math.prod(buf.shape))
