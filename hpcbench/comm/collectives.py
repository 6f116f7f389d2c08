"""Collectives of a group, executed by the MPI library, by a plan, or by the steps of a single call.

In groups of at least two ranks, all ranks call each function. Arrays must be in the memory described by `place`.
"""

from collections.abc import Sequence

from mpi4py import MPI

from hpcbench.codecs.identity import Identity
from hpcbench.codecs.quant import Quant
from hpcbench.comm import homomorphic, steps
from hpcbench.comm.arrays import Array
from hpcbench.comm.channel import Channel
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.member import Member
from hpcbench.comm.memory import Tally
from hpcbench.comm.places import Place
from hpcbench.comm.plan import Operation, Plan
from hpcbench.comm.sample import sample_error
from hpcbench.comm.vector import Exchanged, InPlace, Reduced, Vector
from hpcbench.comm.wait import Wait
from hpcbench.comm.work import Work
from hpcbench.contract.shards import (
    ElementRange,
    all_gather_bytes,
    all_reduce_bytes,
    count_elements,
    cut_evenly,
    reduce_scatter_bytes,
)
from hpcbench.contract.traffic import Algorithm

_PLAIN = Identity()


def all_reduce(
    member: Member, place: Place, buf: Array, channel: Channel, op: MPI.Op, feedback: Feedback | None
) -> Work:
    """Reduce `buf` in place."""
    chosen = member.choice.plan(Operation.ALL_REDUCE, buf, channel, feedback=feedback is not None)
    if chosen is None or chosen.algorithm is Algorithm.NATIVE:
        sent = all_reduce_bytes(_piece_bytes(member, buf, channel), member.rank)
        blocking = _blocking(member, Operation.ALL_REDUCE, buf, channel)
        return member.by_library(
            lambda library, _, buf: library.all_reduce(buf, op, blocking=blocking),
            *(buf, buf, place, channel, sent, chosen),
            sums=True,
        )
    if chosen.algorithm is Algorithm.HOMOMORPHIC and isinstance(channel.codec, Quant):
        if place.on_device:
            raise ValueError("homomorphic sums are computed in host memory: on a GPU, use another algorithm")
        tally, how = Tally(recorder=channel.recorder), chosen.algorithm.value
        slice_ = homomorphic.all_reduce(member.planned, buf, channel.codec, tally)
        return member.calls.at_once(slice_, channel, place, tally, how=how, in_order=True)
    return _by_plan(member, chosen, channel, place, buf, InPlace(buf), feedback)


def reduce_scatter(
    member: Member, place: Place, src: Array, dst: Array, channel: Channel, feedback: Feedback | None
) -> Work:
    """Sum `src` over the ranks. `dst` receives this rank's piece."""
    piece = cut_evenly(src.size, member.size)[member.rank]
    chosen = member.choice.plan(Operation.REDUCE_SCATTER, src, channel, feedback=feedback is not None)
    if chosen is None or chosen.algorithm is Algorithm.NATIVE:
        sent = reduce_scatter_bytes(_piece_bytes(member, src, channel), member.rank)
        blocking = _blocking(member, Operation.REDUCE_SCATTER, src, channel)
        return member.by_library(
            lambda library, src, dst: library.reduce_scatter(src, dst, blocking=blocking),
            *(src, dst, place, channel, sent, chosen),
            sums=True,
        )
    vector = Reduced(src, dst, ElementRange(piece.start, piece.stop))
    return _by_plan(member, chosen, channel, place, src, vector, feedback)


def all_gather(member: Member, place: Place, src: Array, dst: Array, channel: Channel) -> Work:
    """Concatenate the pieces of all ranks."""
    chosen = member.choice.plan(Operation.ALL_GATHER, dst, channel)
    if chosen is None or chosen.algorithm is Algorithm.NATIVE:
        sent = all_gather_bytes(_piece_bytes(member, dst, channel), member.rank)
        blocking = _blocking(member, Operation.ALL_GATHER, dst, channel)
        return member.by_library(
            lambda library, src, dst: library.all_gather(src, dst, blocking=blocking),
            *(src, dst, place, channel, sent, chosen),
        )
    place.copy(dst[cut_evenly(dst.size, member.size)[member.rank]], src)
    return _by_plan(member, chosen, channel, place, src, InPlace(dst), None)


def broadcast(member: Member, place: Place, buf: Array, root: int, channel: Channel) -> Work:
    """Send `buf` of the root to all ranks."""
    chosen = member.choice.plan(Operation.BROADCAST, buf, channel, root=root)
    if chosen is None or chosen.algorithm is Algorithm.NATIVE:
        each = buf.size * channel.travels_as(buf.dtype).itemsize
        sent = (member.size - 1) * each if member.rank == root else 0
        blocking = _blocking(member, Operation.BROADCAST, buf, channel)
        return member.by_library(
            lambda library, _, buf: library.broadcast(buf, root, blocking=blocking),
            *(buf, buf, place, channel, sent, chosen),
        )
    values = buf if member.rank == root else buf[:0]  # on other ranks, `buf` does not contain the message yet
    return _by_plan(member, chosen, channel, place, values, InPlace(buf), None)


def reduce(member: Member, place: Place, src: Array, dst: Array, root: int, channel: Channel) -> Work:
    """Sum `src` over the ranks into `dst` of the root rank. On other ranks, `dst` is empty."""
    at_root = member.rank == root
    chosen = member.choice.plan(Operation.REDUCE, src, channel, root=root)
    if chosen is None or chosen.algorithm is Algorithm.NATIVE:
        sent = 0 if at_root else src.size * channel.travels_as(src.dtype).itemsize
        blocking = _blocking(member, Operation.REDUCE, src, channel)
        return member.by_library(
            lambda library, src, dst: library.reduce(src, dst, root, blocking=blocking),
            *(src, dst, place, channel, sent, chosen),
            sums=True,
        )
    vector = Reduced(src, dst, ElementRange(0, src.size if at_root else 0))
    return _by_plan(member, chosen, channel, place, src, vector, None)


def all_gather_counts(
    member: Member, place: Place, src: Array, dst: Array, pieces: Sequence[ElementRange], channel: Channel
) -> Work:
    """Concatenate pieces of different sizes. `pieces` contains the positions of the pieces in `dst`."""
    itemsize = channel.travels_as(src.dtype).itemsize
    automatic = channel.algorithm is Algorithm.AUTO and channel.codec.name == "none"
    if channel.algorithm is Algorithm.NATIVE or automatic:
        parts = [slice(*piece) for piece in pieces]
        sent = (member.size - 1) * src.size * itemsize
        return member.by_library(
            lambda library, src, dst: library.all_gather(src, dst, pieces=parts),
            *(src, dst, place, channel, sent, None),
        )
    place.copy(dst[slice(*pieces[member.rank])], src)
    plain = channel.plain_because(dst.size * itemsize, one_node=member.topology.nodes == 1)
    codec = _PLAIN if plain else channel.codec
    sample_error(channel, codec, place, src)
    todo = steps.two_shot_gather(member.topology, member.rank, pieces)
    call = member.call(member.planned, channel, codec, place, src.dtype, InPlace(dst))
    return member.planned_call(call, [todo], channel, how="direct", plain=plain is not None)


def all_to_all(
    member: Member,
    place: Place,
    src: Array,
    dst: Array,
    sends: Sequence[ElementRange],
    receives: Sequence[ElementRange],
    channel: Channel,
) -> Work:
    """Send a part of `src` to each rank and receive a part of `dst` from each rank."""
    if channel.algorithm is Algorithm.NATIVE:
        parts = [[slice(*span) for span in spans] for spans in (sends, receives)]
        values = sum(span.size for peer, span in enumerate(sends) if peer != member.rank)
        sent = values * channel.travels_as(src.dtype).itemsize
        return member.by_library(
            lambda library, src, dst: library.all_to_all(src, dst, *parts), *(src, dst, place, channel, sent, None)
        )
    place.copy(dst[slice(*receives[member.rank])], src[slice(*sends[member.rank])])
    todo = steps.all_to_all(member.rank, sends, receives, coded=member.coded(channel, src.dtype))
    if any(step.coded for step in todo):
        sample_error(channel, channel.codec, place, src)
    call = member.call(member.planned, channel, channel.codec, place, src.dtype, Exchanged(src, dst))
    return member.planned_call(call, [todo], channel, how="direct", plain=not all(step.coded for step in todo))


def _blocking(member: Member, operation: Operation, buf: Array, channel: Channel) -> bool:
    """Return whether to use the library's blocking call. All ranks return the same value.

    Blocking calls are never used while operations may progress in the background. Background operations would stall
    during the call, while other ranks wait for them.
    """
    if member.progress.background:
        return False
    if member.progress.wait is Wait.SPIN:
        return True
    return member.choice.blocking(operation, buf, channel)


def _piece_bytes(member: Member, buf: Array, channel: Channel) -> list[int]:
    """Return the size in bytes of each rank's piece of a vector, in the dtype in which values are sent."""
    width = channel.travels_as(buf.dtype).itemsize
    return [count_elements(piece) * width for piece in cut_evenly(buf.size, member.size)]


def _by_plan(
    member: Member,
    chosen: Plan,
    channel: Channel,
    place: Place,
    values: Array,
    vector: Vector,
    feedback: Feedback | None,
) -> Work:
    """Execute a plan of hpcbench instead of a library call."""
    slices, how = member.choice.steps(chosen), chosen.algorithm.value
    # a plan with a codec may have no encoded step, for example a hierarchical plan on a single node
    plain = chosen.codec.name != channel.codec.name or not any(step.coded for todo in slices for step in todo)
    sample_error(channel, _PLAIN if plain else chosen.codec, place, values)
    residuals = None if plain else feedback
    call = member.call(member.planned, channel, chosen.codec, place, values.dtype, vector, residuals)
    return member.planned_call(call, slices, channel, how=how, plain=plain)
