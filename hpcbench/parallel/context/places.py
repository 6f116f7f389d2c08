"""The positions of a rank, and the pairs of its queries and another rank's keys that are computed.

In causal attention a query sees the keys before it. With neighboring positions, the first rank would be idle most of
the time. In zig-zag order the sample is cut into 2p pieces, and rank r has pieces r and 2p - 1 - r: every rank has the
same work with every other one (the balanced order of striped and zig-zag ring attention).

Shapes: p ranks, m positions of a rank, s = p m positions of the sample.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Order = Callable[[int, int, int], Tensor]
"""A function of m, the rank and the number of ranks: the places in the sample of a rank's positions, [m]."""


def in_order(positions: int, rank: int, ranks: int) -> Tensor:
    """Return neighboring positions: rank r has the r-th part of the sample."""
    return torch.arange(rank * positions, (rank + 1) * positions)


def zigzag(positions: int, rank: int, ranks: int) -> Tensor:
    """Return the positions of pieces r and 2p - 1 - r of the 2p pieces of the sample, in ascending order."""
    half = positions // 2
    first, second = rank * half, (2 * ranks - 1 - rank) * half
    return torch.cat((torch.arange(first, first + half), torch.arange(second, second + half)))


class Pair(NamedTuple):
    """The part of a block of scores that is computed.

    Attributes
    ----------
    queries, keys
        The rank's queries, and the other rank's keys that they see.
    causal
        Whether each query attends only to keys up to its own index (causal mask).
    """

    queries: slice
    keys: slice
    causal: bool


def pair(positions: int, rank: int, source: int, *, causal: bool) -> Pair:
    """Return the part of the scores of `rank`'s queries and `source`'s keys to compute, both in zig-zag order.

    With another rank's keys, causal attention computes one half: all queries with the keys of the other's first piece,
    or the queries of the rank's second piece with all keys.
    """
    everything = slice(0, positions)
    if not causal or source == rank:
        return Pair(everything, everything, causal)
    if source < rank:
        return Pair(everything, slice(0, positions // 2), False)
    return Pair(slice(positions // 2, positions), everything, False)
