"""Positions of each rank, and the query-key pairs that a rank computes for another rank's block.

In causal attention, a query attends only to earlier keys. If each rank held consecutive positions, the first rank would
be idle most of the time. In zig-zag order, the sample is cut into 2p pieces, and rank r holds pieces r and 2p - 1 - r.
The work is then the same for every pair of ranks (the balanced order of striped and zig-zag ring attention).

Shapes: p ranks, m positions per rank, s = p m positions per sample.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Order = Callable[[int, int, int], Tensor]
"""Function that returns the global indices of a rank's positions, [m], given m, the rank and the number of ranks."""


def in_order(positions: int, rank: int, ranks: int) -> Tensor:
    """Return consecutive positions. Rank r holds the r-th part of the sample."""
    return torch.arange(rank * positions, (rank + 1) * positions)


def zigzag(positions: int, rank: int, ranks: int) -> Tensor:
    """Return the positions in pieces r and 2p - 1 - r of 2p pieces, in ascending order."""
    half = positions // 2
    first, second = rank * half, (2 * ranks - 1 - rank) * half
    return torch.cat((torch.arange(first, first + half), torch.arange(second, second + half)))


class Pair(NamedTuple):
    """The computed part of a score block.

    Attributes
    ----------
    queries, keys
        Slices of the rank's queries and of the other rank's keys.
    causal
        Whether each query attends only to keys up to its own index (causal mask).
    """

    queries: slice
    keys: slice
    causal: bool


def pair(positions: int, rank: int, source: int, *, causal: bool) -> Pair:
    """Return the part of the scores to compute for queries of `rank` and keys of `source`, both in zig-zag order.

    For keys of another rank, causal attention computes one half of the scores: either all queries with the keys of the
    other rank's first piece, or the queries of this rank's second piece with all keys.
    """
    everything = slice(0, positions)
    if not causal or source == rank:
        return Pair(everything, everything, causal)
    if source < rank:
        return Pair(everything, slice(0, positions // 2), False)
    return Pair(slice(positions // 2, positions), everything, False)
