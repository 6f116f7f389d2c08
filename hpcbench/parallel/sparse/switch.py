"""The choice between rows and the whole gradient of a table, by the bytes that all replicas send. Pure functions.

`measure` finds the density at which both ways are equally fast.

Both ways are compared after the codec if the size of its messages is fixed. All replicas have the same counts, so all
choose the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

INDEX_BYTES = 4
"""Bytes of a row's index."""
COUNT_BYTES = 8
"""Bytes of a count of rows. Counts are sent before rows are."""

Counts = Sequence[Sequence[int]]
"""Number of touched rows of each replica or, if each replica needs only its piece, the number in each piece."""


@dataclass(frozen=True)
class Ways:
    """The two ways of a table's gradient.

    Attributes
    ----------
    replicas
        Ranks that sum the gradient.
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
        """Count the rows that leave one replica, once for each receiver."""
        counted = counts[replica]
        return (self.replicas - 1) * counted[0] if self.gathered else sum(counted) - counted[replica]

    def rows_bytes(self, counts: Counts) -> int:
        """Count the bytes of all replicas if rows are sent with their indices, rounded up."""
        leaving = sum(self.leaving(counts, replica) for replica in range(self.replicas))
        return leaving * INDEX_BYTES - (-leaving * self.width * self.wire_bytes // self.length)

    def shorter_by_rows(self, counts: Counts) -> bool:
        """Return whether rows are fewer bytes."""
        leaving = sum(self.leaving(counts, replica) for replica in range(self.replicas))
        return leaving * (INDEX_BYTES * self.length + self.width * self.wire_bytes) < self.whole_bytes * self.length

    def density(self, counts: Counts) -> float:
        """Return the mean fraction of rows that a replica touched. A row on a border counts twice."""
        return min(sum(map(sum, counts)) / (self.replicas * self.rows), 1.0)

    @property
    def switch_density(self) -> float:
        """Fraction of touched rows at which both ways have the same number of bytes.

        It assumes that each replica touches the same number of rows, evenly spread over the pieces. Above 1, rows
        always have fewer bytes.
        """
        receivers = self.replicas if self.gathered else 1
        everything = (self.replicas - 1) * receivers * self.rows
        return self.whole_bytes / (everything * (INDEX_BYTES + self.width * self.wire_bytes / self.length))


def cut_rows(length: int, pieces: int, width: int) -> list[range]:
    """Return the rows with values in each of the equal pieces of a gradient. A row on a border is in two pieces."""
    size = length // pieces
    return [range(piece * size // width, -(-(piece + 1) * size // width)) for piece in range(pieces)]
