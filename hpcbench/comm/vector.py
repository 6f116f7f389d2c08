"""Source and destination vectors of an operation."""

from typing import Protocol

from hpcbench.comm.arrays import Array
from hpcbench.comm.memory import Memory
from hpcbench.contract.shards import ElementRange


class Vector(Protocol):
    """The values that the steps of a plan read and write. Spans are in elements."""

    def read(self, span: ElementRange) -> Array:
        """Return the values to send."""

    def into(self, span: ElementRange) -> Array:
        """Return the memory for received values."""

    def total(self, span: ElementRange, memory: Memory) -> Array:
        """Return the memory of a sum. The memory contains this rank's own contribution."""


class InPlace:
    """An array that the operation updates in place."""

    def __init__(self, buf: Array) -> None:
        self._buf = buf

    def read(self, span: ElementRange) -> Array:
        """Return the values of the span."""
        return self._buf[span.start : span.stop]

    into = read

    def total(self, span: ElementRange, memory: Memory) -> Array:
        """Return the span itself, because the sum is computed in place."""
        return self.read(span)


class Reduced:
    """Contributions that must not change. Sums are computed in separate memory.

    Parameters
    ----------
    src
        All contributions of this rank.
    dst
        Array that receives the sums of span `own`.
    own
        Span of `src` that this rank owns.
    """

    def __init__(self, src: Array, dst: Array, own: ElementRange) -> None:
        self._src, self._dst, self._own = src, dst, own
        self._sums: list[tuple[ElementRange, Array]] = []

    def read(self, span: ElementRange) -> Array:
        """Return the values of the span from the latest sum that contains it, or from the contributions."""
        for held, values in self._sums:
            if held.start <= span.start and span.stop <= held.stop:
                return values[span.start - held.start : span.stop - held.start]
        return self._src[span.start : span.stop]

    into = read

    def total(self, span: ElementRange, memory: Memory) -> Array:
        """Copy the contributions to memory for the sum. If this rank owns the span, the memory is part of `dst`."""
        to = None
        if self._own.start <= span.start and span.stop <= self._own.stop:
            to = self._dst[span.start - self._own.start : span.stop - self._own.start]
        values: Array = memory.copy(self.read(span), to)
        self._sums.insert(0, (span, values))  # `read` uses the latest sum
        return values


class Exchanged:
    """Two arrays of an exchange: one to send and one to receive."""

    def __init__(self, src: Array, dst: Array) -> None:
        self._src, self._dst = src, dst

    def read(self, span: ElementRange) -> Array:
        """Return the span of the send array."""
        return self._src[span.start : span.stop]

    def into(self, span: ElementRange) -> Array:
        """Return the span of the receive array."""
        return self._dst[span.start : span.stop]

    def total(self, span: ElementRange, memory: Memory) -> Array:
        """Raise TypeError, because an exchange has no sums."""
        raise TypeError("an exchange does not sum values: use a reduction")
