"""A rank of a group whose other ranks are not there: its collectives send nothing, and give values that mean nothing.

With it a layer that tensor parallelism has split is timed on one rank. The time is what the rank itself computes, and
what Python does around the collectives.
"""

from mpi4py import MPI

from hpcbench.comm.arrays import Array
from hpcbench.comm.channel import Channel
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.group import Group
from hpcbench.comm.work import Work
from hpcbench.contract.shards import cut_evenly


class LoneRank(Group):
    """The first rank of a group, alone.

    Parameters
    ----------
    size
        Number of ranks that the group seems to have.
    """

    def __init__(self, size: int) -> None:
        self._size = size  # it has no communicator, and so nothing of a group's own

    @property
    def rank(self) -> int:
        """Number of the caller's rank in the group."""
        return 0

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._size

    def all_reduce(
        self, buf: Array, *, channel: Channel, op: MPI.Op = MPI.SUM, feedback: Feedback | None = None
    ) -> Work:
        """Leave the values as they are."""
        return Work.nothing(channel)

    def reduce_scatter(self, src: Array, dst: Array, *, channel: Channel, feedback: Feedback | None = None) -> Work:
        """Copy this rank's piece of its own values."""
        dst[:] = src[cut_evenly(len(src), self._size)[0]]
        return Work.nothing(channel)

    def all_gather(self, src: Array, dst: Array, *, channel: Channel) -> Work:
        """Copy this rank's values to each rank's place."""
        for place in cut_evenly(len(dst), self._size):
            dst[place] = src
        return Work.nothing(channel)
