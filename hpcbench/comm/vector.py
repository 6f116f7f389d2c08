"""Where an operation's values are read and written."""

from typing import Protocol

from hpcbench.comm.arrays import Array
from hpcbench.comm.memory import Memory
from hpcbench.contract.shards import Span


class Vector(Protocol):
    """What the steps of a plan work on. Spans count elements."""

    def read(self, span: Span) -> Array:
        """Values to send."""

    def into(self, span: Span) -> Array:
        """Where received values go."""

    def total(self, span: Span, memory: Memory) -> Array:
        """Where a sum is formed: holds this rank's own contribution."""


class InPlace:
    """One array that the operation turns into its result."""

    def __init__(self, buf: Array) -> None:
        self._buf = buf

    def read(self, span: Span) -> Array:
        return self._buf[span.start : span.stop]

    into = read

    def total(self, span: Span, memory: Memory) -> Array:
        return self.read(span)


class Reduced:
    """Contributions that stay as they are; sums are formed apart.

    Parameters
    ----------
    src
        The contributions, whole.
    dst
        Receives the sums of the span `own`.
    own
        Of `src`.
    """

    def __init__(self, src: Array, dst: Array, own: Span) -> None:
        self._src, self._dst, self._own = src, dst, own
        self._sums: list[tuple[Span, Array]] = []

    def read(self, span: Span) -> Array:
        for held, values in self._sums:
            if held.start <= span.start and span.stop <= held.stop:
                return values[span.start - held.start : span.stop - held.start]
        return self._src[span.start : span.stop]

    into = read

    def total(self, span: Span, memory: Memory) -> Array:
        to = None
        if self._own.start <= span.start and span.stop <= self._own.stop:
            to = self._dst[span.start - self._own.start : span.stop - self._own.start]
        values: Array = memory.copy(self.read(span), to)
        self._sums.insert(0, (span, values))  # the latest is what counts
        return values


class Exchanged:
    """Values of one array go out, another one receives."""

    def __init__(self, src: Array, dst: Array) -> None:
        self._src, self._dst = src, dst

    def read(self, span: Span) -> Array:
        return self._src[span.start : span.stop]

    def into(self, span: Span) -> Array:
        return self._dst[span.start : span.stop]

    def total(self, span: Span, memory: Memory) -> Array:
        raise TypeError("nothing is summed in an exchange")
