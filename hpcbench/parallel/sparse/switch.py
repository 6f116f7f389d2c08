"""Whether the gradient of a table travels by rows or whole: by the bytes that all replicas send together. Pure.

`measure` finds the density at which both ways are equally quick.

Both ways are weighed after the codec, where the size of its messages is fixed. All replicas know the same counts, so
that all take the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

INDEX_BYTES = 4
"""Bytes of a row's index."""
COUNT_BYTES = 8
"""Bytes of a count of rows. Counts are sent before rows are."""

Counts = Sequence[Sequence[int]]
"""By replica: the rows that it touched; or, where each replica needs its piece only, those among each one's piece."""


@dataclass(frozen=True)
class Ways:
    """The two ways of a table's gradient.

    Attributes
    ----------
    replicas
        Ranks that add up the gradient.
    rows, width
        Rows of the table on a rank, and values of a row.
    length
        Values of the whole gradient, with padding.
    wire_bytes
        Bytes of the whole gradient after the codec, or before it if their number depends on the values.
    scattered
        Whether each replica needs the sum of its piece only (ZeRO stages 1 to 3).
    gathered
        Whether each replica's rows go to all others, not only to the owners of their pieces.
    """

    replicas: int
    rows: int
    width: int
    length: int
    wire_bytes: int
    scattered: bool
    gathered: bool

    @property
    def whole_bytes(self) -> int:
        """Bytes of all replicas if the gradient is reduced whole: a reduce-scatter, and at stage 0 an all-gather."""
        return (self.replicas - 1) * self.wire_bytes * (1 if self.scattered else 2)

    def leaving(self, counts: Counts, replica: int) -> int:
        """Rows that leave one replica, once for each that gets them."""
        own = counts[replica]
        return (self.replicas - 1) * own[0] if self.gathered else sum(own) - own[replica]

    def rows_bytes(self, counts: Counts) -> int:
        """Bytes of all replicas if rows are sent with their indices, rounded up."""
        leaving = sum(self.leaving(counts, replica) for replica in range(self.replicas))
        return leaving * INDEX_BYTES - (-leaving * self.width * self.wire_bytes // self.length)

    def shorter_by_rows(self, counts: Counts) -> bool:
        """Whether rows are fewer bytes."""
        leaving = sum(self.leaving(counts, replica) for replica in range(self.replicas))
        return leaving * (INDEX_BYTES * self.length + self.width * self.wire_bytes) < self.whole_bytes * self.length

    def density(self, counts: Counts) -> float:
        """The part of its rows that a replica touched, a mean over the replicas. A row on a border counts twice."""
        return min(sum(map(sum, counts)) / (self.replicas * self.rows), 1.0)

    @property
    def switch_density(self) -> float:
        """Part of its rows that a replica touches where both ways are equally many bytes.

        It takes each replica to touch equally many, evenly spread over the pieces. Above 1, rows are always fewer.
        """
        receivers = self.replicas if self.gathered else 1
        everything = (self.replicas - 1) * receivers * self.rows
        return self.whole_bytes / (everything * (INDEX_BYTES + self.width * self.wire_bytes / self.length))


def cut_rows(length: int, pieces: int, width: int) -> list[range]:
    """The rows that have values in each of the equal pieces of a gradient. A row on a border is in two."""
    size = length // pieces
    return [range(piece * size // width, -(-(piece + 1) * size // width)) for piece in range(pieces)]
