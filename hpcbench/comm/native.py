"""The MPI library's own collectives: the baseline that every scheme is compared with.

Nonblocking calls, so that the way of waiting is the run's own. The library keeps the choice of its algorithm; the
bytes that are counted are those of the bandwidth-optimal one.
"""

from mpi4py import MPI

from hpcbench.comm.arrays import Array
from hpcbench.comm.plan import length, shards
from hpcbench.comm.wait import Wait


def all_reduce(comm: MPI.Comm, wait: Wait, buf: Array, op: MPI.Op) -> None:
    """Reduce `buf` in place."""
    wait([comm.Iallreduce(MPI.IN_PLACE, buf, op)])


def reduce_scatter(comm: MPI.Comm, wait: Wait, src: Array, dst: Array) -> None:
    """Sum `src` over the ranks and leave this rank's piece in `dst`."""
    counts = [length(piece) for piece in shards(src.size, comm.size)]
    wait([comm.Ireduce_scatter(src, dst, counts, MPI.SUM)])


def all_gather(comm: MPI.Comm, wait: Wait, src: Array, dst: Array) -> None:
    """Join every rank's `src` in `dst`."""
    pieces = shards(dst.size, comm.size)
    spec = [dst, [length(piece) for piece in pieces], [piece.start for piece in pieces], None]
    wait([comm.Iallgatherv(src, spec)])
