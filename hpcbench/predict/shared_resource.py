"""What several share evenly at a time: the network of a node, or the cores of a machine."""

from typing import Generic, TypeVar

T = TypeVar("T")


class SharedResource(Generic[T]):
    """Something of which each that uses it has an even share, and no more than a whole.

    Parameters
    ----------
    capacity
        How many have a whole one.

    Attributes
    ----------
    flows
        Those that use it, a heap: when each is through in virtual time, its number, and what it is. Virtual time passes
        as fast as each of them gets on.
    version
        Grows whenever the first end may have changed.
    """

    def __init__(self, capacity: float = 1.0) -> None:
        self.capacity = capacity
        self.virtual = self.last = 0.0
        self.flows: list[tuple[float, int, T]] = []
        self.version = 0

    def advance(self, now: float) -> None:
        """Let the time pass until now."""
        if self.flows:
            self.virtual += (now - self.last) * self.share
        self.last = now

    @property
    def share(self) -> float:
        """The share of each."""
        return min(1.0, self.capacity / len(self.flows))

    def end(self) -> float:
        """When the first of its flows is through, if none is added."""
        return self.last + max(self.flows[0][0] - self.virtual, 0.0) / self.share
