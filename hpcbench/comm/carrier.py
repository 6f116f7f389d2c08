"""The seam between plans and the library that carries their messages.

Plans, steps and the executor know ranks, bytes and tags. A carrier sends and receives them: MPI (mpi_carrier.py) for
hpcbench's own training, and PyTorch's groups (hpcbench/programs) for programs of others.
"""

from typing import Any, Protocol


class Carrier(Protocol):
    """Messages between the ranks of one group. What it returns is given back to it, or to whoever drives the slices."""

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
            Whether the receiver cannot know the number of bytes: equal on both sides, too.

        Returns
        -------
        Any
            The request, which a slice yields to wait for it.
        """

    def receive(self, inbox: Any, peer: int, tag: int, *, varies: bool) -> Any:
        """Begin to receive bytes. `inbox` has room for the longest message, and for no more if they do not vary."""

    def count(self, status: Any) -> int:
        """Bytes of a received message, by what the slice was resumed with."""
