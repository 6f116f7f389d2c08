"""The interface between plans and the library that transports their messages.

Plans, steps and the executor refer only to ranks, bytes and tags. A carrier sends and receives the bytes. hpcbench's
own training uses MPI (mpi_carrier.py) as the carrier. Other programs use PyTorch process groups (hpcbench/programs).
"""

from typing import Any, Protocol


class Carrier(Protocol):
    """Messages between the ranks of one group. The slice driver waits for the requests that a carrier returns."""

    @property
    def rank(self) -> int:
        """Rank of this process in the group."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def send(self, content: Any, peer: int, tag: int, *, varies: bool) -> Any:
        """Start sending bytes.

        Parameters
        ----------
        content
            The bytes, which must not change before the request completes.
        peer
            Destination rank.
        tag
            Tag of the message.
        varies
            Whether the message size varies, so that the receiver cannot compute it. Sender and receiver pass the same
            value.

        Returns
        -------
        Any
            The request. A slice waits for the request by yielding it.
        """

    def receive(self, inbox: Any, peer: int, tag: int, *, varies: bool) -> Any:
        """Start receiving bytes into `inbox`.

        `inbox` is large enough for the longest message. If sizes do not vary, `inbox` has exactly the message size.
        """

    def count(self, status: Any) -> int:
        """Return the byte count of a received message, given the status of its request."""
