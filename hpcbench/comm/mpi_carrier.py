"""Carrier that transports messages of plans over MPI."""

from typing import Any

from mpi4py import MPI


class MpiCarrier:
    """Messages on one communicator.

    Parameters
    ----------
    comm
        The communicator. Tags of plans must be used only for messages of plans.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self.rank: int = comm.rank
        self.size: int = comm.size

    def send(self, content: Any, peer: int, tag: int, *, varies: bool) -> MPI.Request:
        """Start sending bytes."""
        return self._comm.Isend([content, MPI.BYTE], peer, tag)

    def receive(self, inbox: Any, peer: int, tag: int, *, varies: bool) -> MPI.Request:
        """Start receiving bytes. MPI reports the byte count."""
        return self._comm.Irecv([inbox, MPI.BYTE], peer, tag)

    def count(self, status: MPI.Status) -> int:
        """Return the byte count of a received message."""
        return status.Get_count(MPI.BYTE)
