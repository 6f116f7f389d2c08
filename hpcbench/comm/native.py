"""The MPI library's own collectives: the baseline that every scheme is compared with.

Nonblocking calls, so that the way of waiting is the run's own; blocking ones, which may go faster, where nothing else
is under way. The library keeps the choice of its algorithm; the bytes that are counted are those of the
bandwidth-optimal one.
"""

from mpi4py import MPI

from hpcbench.comm.arrays import Array
from hpcbench.comm.memory import Slice
from hpcbench.comm.shards import length, shards


def all_reduce(comm: MPI.Comm, buf: Array, op: MPI.Op, *, blocking: bool = False) -> Slice:
    """Reduce `buf` in place."""
    if blocking:
        comm.Allreduce(MPI.IN_PLACE, buf, op)
    else:
        yield [comm.Iallreduce(MPI.IN_PLACE, buf, op)]


def reduce_scatter(comm: MPI.Comm, src: Array, dst: Array, *, blocking: bool = False) -> Slice:
    """Sum `src` over the ranks and leave this rank's piece in `dst`."""
    counts = [length(piece) for piece in shards(src.size, comm.size)]
    if blocking:
        comm.Reduce_scatter(src, dst, counts, MPI.SUM)
    else:
        yield [comm.Ireduce_scatter(src, dst, counts, MPI.SUM)]


def all_gather(comm: MPI.Comm, src: Array, dst: Array, *, blocking: bool = False) -> Slice:
    """Join every rank's `src` in `dst`."""
    pieces = shards(dst.size, comm.size)
    spec = [dst, [length(piece) for piece in pieces], [piece.start for piece in pieces], None]
    if blocking:
        comm.Allgatherv(src, spec)
    else:
        yield [comm.Iallgatherv(src, spec)]


def broadcast(comm: MPI.Comm, buf: Array, root: int, *, blocking: bool = False) -> Slice:
    """`buf` of the root to everyone."""
    if blocking:
        comm.Bcast(buf, root)
    else:
        yield [comm.Ibcast(buf, root)]


def all_to_all(comm: MPI.Comm, src: Array, dst: Array, sends: list[slice], receives: list[slice]) -> Slice:
    """Part i of `src` to rank i, the parts that come into `dst`."""

    def spec(buf: Array, parts: list[slice]) -> list[object]:
        return [buf, [length(part) for part in parts], [part.start for part in parts], None]

    yield [comm.Ialltoallv(spec(src, sends), spec(dst, receives))]
