"""Partition of a vector among ranks, and the bytes that optimal collectives send."""

import itertools
from typing import NamedTuple


class ElementRange(NamedTuple):
    """The elements from `start` up to, but excluding, `stop`."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.stop - self.start


def cut_evenly(n: int, parts: int) -> list[slice]:
    """Cut `n` elements into `parts` contiguous pieces whose lengths differ by at most one; longer pieces come first."""
    base, longer = divmod(n, parts)
    bounds = [0]
    for part in range(parts):
        bounds.append(bounds[-1] + base + (part < longer))
    return [slice(start, stop) for start, stop in itertools.pairwise(bounds)]


def count_elements(piece: slice) -> int:
    """Return the number of elements in a piece returned by `cut_evenly`."""
    return int(piece.stop - piece.start)


def cut_aligned(span: ElementRange, parts: int, unit: int) -> list[ElementRange]:
    """Cut a span into `parts` pieces whose offsets are multiples of `unit`. The last pieces may be empty."""
    units = -(-span.size // unit)
    bounds = [min(span.start + piece.start * unit, span.stop) for piece in cut_evenly(units, parts)] + [span.stop]
    return [ElementRange(start, stop) for start, stop in itertools.pairwise(bounds)]


def reduce_scatter_bytes(nbytes: list[int], rank: int) -> int:
    """Return the number of bytes that `rank` sends in a reduce-scatter: the pieces of all other ranks.

    Rank i receives a result of ``nbytes[i]`` bytes.
    """
    return sum(nbytes) - nbytes[rank]


def all_gather_bytes(nbytes: list[int], rank: int) -> int:
    """Return the number of bytes that `rank` sends in an all-gather: ``nbytes[rank]`` to each other rank."""
    return (len(nbytes) - 1) * nbytes[rank]


def all_reduce_bytes(nbytes: list[int], rank: int) -> int:
    """Return the number of bytes that `rank` sends in a reduce-scatter and an all-gather of the same pieces."""
    return reduce_scatter_bytes(nbytes, rank) + all_gather_bytes(nbytes, rank)
