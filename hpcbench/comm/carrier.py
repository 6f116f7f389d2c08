"""The interface between plans and the library that carries their messages.

Plans, steps and the executor work with ranks, bytes and tags. A carrier sends and receives the bytes: MPI
(mpi_carrier.py) for hpcbench's own training, PyTorch's groups (hpcbench/programs) for other programs.
"""

from typing import Any, Protocol


class Carrier(Protocol):
    """Messages between the ranks of one group. The driver of the slices waits for the requests that it returns."""

    @property
    def rank(self) -> int:
        """Number of this rank in the group."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def send(self, content: Any, peer: int, tag: int, *, varies: bool) -> Any:
        """Begin to send bytes.

        Parameters
        ----------
        content
            The bytes. They may not change before the request has ended.
        peer
            Rank that receives them.
        tag
            Number that is equal on both sides of the message.
        varies
            Whether the number of bytes varies, so that the receiver cannot compute it. Equal on both sides.

        Returns
        -------
        Any
            The request, which a slice yields to wait for it.
        """

    def receive(self, inbox: Any, peer: int, tag: int, *, varies: bool) -> Any:
        """Begin to receive bytes. `inbox` has room for the longest message, and for no more if they do not vary."""

    def count(self, status: Any) -> int:
        """Return the bytes of a received message, from the status that the slice was resumed with."""
