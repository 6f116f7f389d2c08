"""The positions of a sample that a rank has, and which of its queries look at which keys of another rank.

In causal attention a query looks at the keys before it. Where ranks had neighbouring positions, the first one would be
idle most of the time. In zig-zag order the sample is cut into 2p pieces, and rank r has pieces r and 2p - 1 - r: every
rank has the same work with every other one (the balanced order of striped and zig-zag ring attention).

Shapes: p ranks, m positions of a rank, s = p m positions of the sample.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Order = Callable[[int, int, int], Tensor]
"""Gives the places in the sample of a rank's positions, [m]: from m, the rank, and the number of ranks."""


def in_order(positions: int, rank: int, ranks: int) -> Tensor:
    """Neighbouring positions: rank r has the r-th part of the sample."""
    return torch.arange(rank * positions, (rank + 1) * positions)


def zigzag(positions: int, rank: int, ranks: int) -> Tensor:
    """Pieces r and 2p - 1 - r of the 2p pieces of the sample; both are in order, and so is the whole."""
    half = positions // 2
    first, second = rank * half, (2 * ranks - 1 - rank) * half
    return torch.cat((torch.arange(first, first + half), torch.arange(second, second + half)))


class Pair(NamedTuple):
    """The part of a block of scores that is computed.

    Attributes
    ----------
    queries, keys
        Which of the rank's queries look at which of the other rank's keys.
    causal
        Whether a query looks only at keys up to its own number.
    """

    queries: slice
    keys: slice
    causal: bool


def pair(positions: int, rank: int, source: int, *, causal: bool) -> Pair:
    """What the queries of `rank` and the keys of `source`, both in zig-zag order, have to do with each other.

    Of another rank's keys a causal rank computes one half: all queries with the keys of the other's first piece, or the
    queries of its own second piece with all keys.
    """
    whole = slice(0, positions)
    if not causal or source == rank:
        return Pair(whole, whole, causal)
    if source < rank:
        return Pair(whole, slice(0, positions // 2), False)
    return Pair(slice(positions // 2, positions), whole, False)
