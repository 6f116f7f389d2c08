"""A group: one communicator and its operations.

Every operation receives the channel for its traffic, writes to the caller's buffers, and counts the bytes sent by this
rank. Buffers are contiguous NumPy arrays, or torch or CuPy arrays on a GPU. An operation immediately returns a `Work`
object, which the caller waits for. A group of one rank neither sends nor encodes anything. A GPU operation starts after
the work on the caller's current stream. `wait` returns when the device has completed the operation, so any stream can
use the result.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from mpi4py import MPI

from hpcbench.comm import collectives, messages
from hpcbench.comm.arrays import Array
from hpcbench.comm.channel import Channel
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.links import DEFAULT, Links
from hpcbench.comm.member import Member
from hpcbench.comm.memory import Slice
from hpcbench.comm.places import Places
from hpcbench.comm.progress import Progress
from hpcbench.comm.relay import Relay
from hpcbench.comm.topology import Topology
from hpcbench.comm.work import Work
from hpcbench.contract.shards import ElementRange
from hpcbench.contract.traffic import Algorithm


class Group:
    """Operations on one communicator.

    Parameters
    ----------
    comm
        The communicator. After this call, only the group may use the communicator. Creating a group is a collective
        call.
    progress
        Driver of all operations of the process.
    links
        Speeds of links and codecs, used to select plans.
    places
        Supported memory. By default, arrays may be in host or GPU memory, and MPI is assumed not to be GPU-aware.
    parent
        The group that contains this group. The parent's topology and its choice of 16-bit sums are reused.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        progress: Progress,
        links: Links = DEFAULT,
        places: Places | None = None,
        *,
        parent: "Group | None" = None,
    ) -> None:
        self._own: Member = Member(comm, progress, links, places or Places(), parent._own if parent else None)
        self._parts: list[Group] = []

    @property
    def topology(self) -> Topology:
        """Node of each rank, reported by the MPI library. The setter allows other topologies to be tested."""
        return self._own.topology

    @topology.setter
    def topology(self, topology: Topology) -> None:
        self._own.use(topology)

    def split(self, color: int, key: int) -> "Group":
        """Create groups of ranks with the same color, ordered by key.

        This is a collective call.
        """
        member = self._own
        part = Group(member.comm.Split(color, key), member.progress, member.choice.links, member.places, parent=self)
        self._parts.append(part)
        return part

    def within_node(self) -> "Group":
        """Create a group of the ranks on this rank's node (a collective call)."""
        return self.split(self.topology.node_of[self.rank], self.rank)

    def free(self) -> None:
        """Free the communicators of this group and its subgroups (a final collective call).

        A process is limited to a few thousand communicators.
        """
        for part in self._parts:
            part.free()
        self._own.free()

    @property
    def needs_order(self) -> bool:
        """Whether both ranks must `send` and `recv` in the same order, as NCCL requires for GPU arrays."""
        return self._own.streamed is not None

    @property
    def rank(self) -> int:
        """Rank of the caller in the group."""
        return self._own.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._own.size

    def all_reduce(
        self, buf: Array, *, channel: Channel, op: MPI.Op = MPI.SUM, feedback: Feedback | None = None
    ) -> Work:
        """Reduce `buf` over the ranks, in place. Only sums can be encoded.

        Parameters
        ----------
        buf
            Values, shape (n,).
        channel
            Channel of the traffic.
        op
            The reduction. Operations other than the sum require native channels.
        feedback
            Residuals of this vector, kept between calls.

        Raises
        ------
        ValueError
            The operation cannot be encoded or would be summed in half precision.
        """
        if op is not MPI.SUM and channel.algorithm is not Algorithm.NATIVE:
            raise ValueError("an encoded all-reduce supports only sums: use an exact channel for other operations")
        if self.size == 1:
            return Work.nothing(channel)
        place, (buf,) = self._own.places.of(buf)
        channel.sample("all-reduce", place, (buf,))
        return collectives.all_reduce(self._own, place, buf, channel, op, feedback)

    def reduce_scatter(self, src: Array, dst: Array, *, channel: Channel, feedback: Feedback | None = None) -> Work:
        """Sum `src` over the ranks. `dst` receives this rank's piece, as cut by `cut_evenly`."""
        place, (src, dst) = self._own.places.of(src, dst)
        if self.size == 1:
            place.copy(dst, src)
            return Work.nothing(channel)
        channel.sample("reduce-scatter", place, (src,))
        return collectives.reduce_scatter(self._own, place, src, dst, channel, feedback)

    def all_gather(self, src: Array, dst: Array, *, channel: Channel) -> Work:
        """Concatenate `src` of all ranks in `dst`. The pieces are cut by `cut_evenly`."""
        place, (src, dst) = self._own.places.of(src, dst)
        if self.size == 1:
            place.copy(dst, src)
            return Work.nothing(channel)
        channel.sample("all-gather", place, (src,))
        return collectives.all_gather(self._own, place, src, dst, channel)

    def all_gather_counts(self, src: Array, dst: Array, counts: Sequence[int], *, channel: Channel) -> Work:
        """Concatenate `src` of all ranks in `dst`. Rank i contributes `counts[i]` elements.

        Sizes vary between calls, so no plan is cached. Each rank encodes its part once and sends it directly to all
        other ranks. All ranks must have the same decoded values. Messages within a node are therefore encoded even if
        the channel encodes only traffic between nodes.
        """
        place, (src, dst) = self._own.places.of(src, dst)
        if self.size == 1:
            place.copy(dst, src)
            return Work.nothing(channel)
        channel.sample("all-gather", place, (src,))
        return collectives.all_gather_counts(self._own, place, src, dst, _spans(counts), channel)

    def broadcast(self, buf: Array, root: int, *, channel: Channel) -> Work:
        """Send `buf` of the root to all ranks. Afterwards, the root also holds the decoded values."""
        if self.size == 1:
            return Work.nothing(channel)
        place, (buf,) = self._own.places.of(buf)
        if self.rank == root:
            channel.sample("broadcast", place, (buf,))
        return collectives.broadcast(self._own, place, buf, root, channel)

    def reduce(self, src: Array, dst: Array | None, root: int, *, channel: Channel) -> Work:
        """Sum `src` over the ranks into `dst` of the root. Other ranks need no `dst`. `src` is unchanged."""
        at_root = self.rank == root
        into = dst if at_root and dst is not None else src[:0]
        place, (src, into) = self._own.places.of(src, into)
        if self.size == 1:
            place.copy(into, src)
            return Work.nothing(channel)
        if not at_root:
            channel.sample("reduce", place, (src,))
        return collectives.reduce(self._own, place, src, into, root, channel)

    def all_to_all(
        self, src: Array, dst: Array, counts: tuple[Sequence[int], Sequence[int]], *, channel: Channel
    ) -> Work:
        """Send part i of `src` to rank i, and receive the parts from all ranks in `dst`, in rank order.

        A rank's own part stays exact. However, if the MPI library sends another dtype, all parts are rounded.

        Parameters
        ----------
        src, dst
            One-dimensional arrays. The length of each array is the sum of its counts.
        counts
            Element counts sent to each rank, and element counts received from each rank.
        channel
            Channel of the traffic.
        """
        place, (src, dst) = self._own.places.of(src, dst)
        sends, receives = (_spans(part) for part in counts)
        if self.size == 1:
            place.copy(dst[slice(*receives[0])], src[slice(*sends[0])])
            return Work.nothing(channel)
        if channel.sampler is not None:
            leaving = [src[slice(*span)] for peer, span in enumerate(sends) if peer != self.rank]
            channel.sample("all-to-all", place, leaving)
        return collectives.all_to_all(self._own, place, src, dst, sends, receives, channel)

    def send(
        self,
        buf: Array,
        peer: int,
        *,
        tag: int,
        channel: Channel,
        feedback: Feedback | None = None,
        decodes: bool = False,
    ) -> Work:
        """Encode `buf` and send it. The caller may change `buf` immediately, except with `decodes`.

        Over NCCL, both ranks must start the messages between them in the same order (`needs_order`).

        Parameters
        ----------
        buf
            Values.
        peer, tag
            Destination rank and MPI tag.
        channel
            Channel of the traffic.
        feedback
            Residuals of this vector, to which the error of the message is added.
        decodes
            Whether the decoded values, which the other rank receives, are also written to `buf`. All messages of the
            channel are encoded.
        """
        if channel.sampler is not None:
            place, (there,) = self._own.places.of(buf)
            channel.sample("send", place, (there,))
        return messages.send(self._own, buf, peer, tag, channel, feedback, decodes=decodes)

    def carried(self, channel: Channel, buf: Array, peer: int, *, tag: int, receives: bool) -> Slice:
        """Return a `Slice`, a unit of work that sends or receives one message as part of a larger operation.

        Arrays must be in host memory. The message is counted when it completes.
        """
        return messages.carried(self._own, buf, peer, tag, channel, receives=receives)

    def recv(self, buf: Array, peer: int, *, tag: int, channel: Channel) -> Work:
        """Receive a message from `peer` and decode it into `buf`."""
        return messages.recv(self._own, buf, peer, tag, channel)

    def shift(self, src: Array, dst: Array, *, by: int, tag: int = 0, channel: Channel) -> Work:
        """Send `src` to the rank `by` positions ahead in the ring, and receive `dst` from `by` positions behind."""
        if by % self.size and channel.sampler is not None:
            place, (there,) = self._own.places.of(src)
            channel.sample("shift", place, (there,))
        return messages.shift(self._own, src, dst, by, tag, channel)

    def pass_on(self, src: Array, dst: Array, relay: Relay, *, tag: int, channel: Channel) -> Work:
        """Send `src` to the next rank of the ring, and receive `dst` from the previous rank.

        Parameters
        ----------
        src, dst
            The block to send, and a buffer for the next block. The first hop sends the rank's own block, and later hops
            send the block received last. Blocks have the same shape on all ranks.
        relay
            Object that holds the last received block in encoded form. Each block is encoded only by its owner. If only
            some links are encoded, the block is encoded again for each of these links.
        """
        if channel.sampler is not None and not relay.begun and self.size > 1:  # later blocks belong to other ranks
            place, (there,) = self._own.places.of(src)
            channel.sample("pass-on", place, (there,))
        relay.begun = True
        return messages.pass_on(self._own, src, dst, relay, tag, channel)


def _spans(counts: Sequence[int]) -> list[ElementRange]:
    return [ElementRange(*bounds) for bounds in pairwise(accumulate(counts, initial=0))]
