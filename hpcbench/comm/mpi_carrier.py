"""Messages of plans, carried by MPI."""

from typing import Any

from mpi4py import MPI


class MpiCarrier:
    """The messages of one communicator.

    Parameters
    ----------
    comm
        The communicator. Only messages of plans may be sent on it with the tags of plans.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self.rank: int = comm.rank
        self.size: int = comm.size

    def send(self, content: Any, peer: int, tag: int, *, varies: bool) -> MPI.Request:
        """Begin to send bytes."""
        return self._comm.Isend([content, MPI.BYTE], peer, tag)

    def receive(self, inbox: Any, peer: int, tag: int, *, varies: bool) -> MPI.Request:
        """Begin to receive bytes. MPI reports how many arrived."""
        return self._comm.Irecv([inbox, MPI.BYTE], peer, tag)

    def count(self, status: MPI.Status) -> int:
        """Return the bytes of a received message."""
        return status.Get_count(MPI.BYTE)
