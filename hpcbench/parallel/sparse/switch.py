"""Choice between sending rows and sending the whole gradient of a table, by the bytes that all replicas send.

`measure` determines the density at which both methods are equally fast.

If the size of encoded messages is fixed, the encoded sizes are compared. All replicas have the same counts and
therefore make the same choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

INDEX_BYTES = 4
"""Bytes of a row index."""
COUNT_BYTES = 8
"""Bytes of a row count. Counts are sent before rows."""

Counts = Sequence[Sequence[int]]
"""Numbers of touched rows of each replica: one per piece, or one in total if rows are sent to all replicas."""


@dataclass(frozen=True)
class Ways:
    """The two methods for reducing a table gradient: as touched rows, or as a whole.

    Attributes
    ----------
    replicas
        Number of ranks that sum the gradient.
    rows, width
        Number of table rows on a rank, and number of values per row.
    length
        Number of values of the whole gradient, including padding.
    wire_bytes
        Encoded bytes of the whole gradient. If the encoded size depends on the values, the bytes are counted before
        encoding.
    scattered
        Whether each replica needs only the sum of its own piece (ZeRO stages 1 to 3).
    gathered
        Whether each replica sends its rows to all other replicas instead of only to the owners of the pieces.
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
        """Bytes that all replicas send to reduce the whole gradient: reduce-scatter and, at stage 0, all-gather."""
        return (self.replicas - 1) * self.wire_bytes * (1 if self.scattered else 2)

    def leaving(self, counts: Counts, replica: int) -> int:
        """Count the rows that one replica sends, once per receiver."""
        counted = counts[replica]
        return (self.replicas - 1) * counted[0] if self.gathered else sum(counted) - counted[replica]

    def rows_bytes(self, counts: Counts) -> int:
        """Count the bytes that all replicas send for rows and their indices, rounded up."""
        leaving = sum(self.leaving(counts, replica) for replica in range(self.replicas))
        return leaving * INDEX_BYTES - (-leaving * self.width * self.wire_bytes // self.length)

    def shorter_by_rows(self, counts: Counts) -> bool:
        """Return whether rows take fewer bytes than the whole gradient."""
        leaving = sum(self.leaving(counts, replica) for replica in range(self.replicas))
        return leaving * (INDEX_BYTES * self.length + self.width * self.wire_bytes) < self.whole_bytes * self.length

    def density(self, counts: Counts) -> float:
        """Return the mean fraction of touched rows per replica. A row that is split between two pieces counts twice."""
        return min(sum(map(sum, counts)) / (self.replicas * self.rows), 1.0)

    @property
    def switch_density(self) -> float:
        """Fraction of touched rows at which both methods take the same number of bytes.

        The calculation assumes that each replica touches the same number of rows, evenly distributed over the pieces.
        If the fraction is above 1, rows always take fewer bytes.
        """
        receivers = self.replicas if self.gathered else 1
        everything = (self.replicas - 1) * receivers * self.rows
        return self.whole_bytes / (everything * (INDEX_BYTES + self.width * self.wire_bytes / self.length))


def cut_rows(length: int, pieces: int, width: int) -> list[range]:
    """Return the row range of each gradient piece. A row that is split between two pieces is in both ranges."""
    size = length // pieces
    return [range(piece * size // width, -(-(piece + 1) * size // width)) for piece in range(pieces)]
