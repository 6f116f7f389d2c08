"""Group with a single real rank. Collectives send nothing, and their results are meaningless.

The group is used to time a tensor-parallel layer on one rank. The time includes the rank's computation and the Python
code around collectives.
"""

from mpi4py import MPI

from hpcbench.comm.arrays import Array
from hpcbench.comm.channel import Channel
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.group import Group
from hpcbench.comm.work import Work
from hpcbench.contract.shards import cut_evenly


class LoneRank(Group):
    """First rank of a group whose other ranks do not exist.

    Parameters
    ----------
    size
        Number of ranks that the group reports.
    """

    def __init__(self, size: int) -> None:
        self._size = size  # Without a communicator, the group's own state is not created.

    @property
    def rank(self) -> int:
        """Rank of the caller in the group."""
        return 0

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._size

    def all_reduce(
        self, buf: Array, *, channel: Channel, op: MPI.Op = MPI.SUM, feedback: Feedback | None = None
    ) -> Work:
        """Leave the values unchanged."""
        return Work.nothing(channel)

    def reduce_scatter(self, src: Array, dst: Array, *, channel: Channel, feedback: Feedback | None = None) -> Work:
        """Copy this rank's piece of its own input."""
        dst[:] = src[cut_evenly(len(src), self._size)[0]]
        return Work.nothing(channel)

    def all_gather(self, src: Array, dst: Array, *, channel: Channel) -> Work:
        """Copy this rank's values to every rank's slot."""
        for place in cut_evenly(len(dst), self._size):
            dst[place] = src
        return Work.nothing(channel)
