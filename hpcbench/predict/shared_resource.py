"""Resources that concurrent users share evenly, such as a node's network or a machine's cores."""

from typing import Generic, TypeVar

T = TypeVar("T")


class SharedResource(Generic[T]):
    """A resource whose capacity is divided evenly among its users. The share of a user is at most 1.

    Parameters
    ----------
    capacity
        Number of users that can each get a share of 1 at the same time.

    Attributes
    ----------
    flows
        Heap of users: end in virtual time, number, and payload. Virtual time advances at the rate of a user's share.
    version
        Counter that is incremented whenever the earliest end may have changed.
    """

    def __init__(self, capacity: float = 1.0) -> None:
        self.capacity = capacity
        self.virtual = self.last = 0.0
        self.flows: list[tuple[float, int, T]] = []
        self.version = 0

    def advance(self, now: float) -> None:
        """Advance the time to `now`."""
        if self.flows:
            self.virtual += (now - self.last) * self.share
        self.last = now

    @property
    def share(self) -> float:
        """Share of each user."""
        return min(1.0, self.capacity / len(self.flows))

    def find_end(self) -> float:
        """Return the time at which the first flow ends if no flow is added."""
        return self.last + max(self.flows[0][0] - self.virtual, 0.0) / self.share
