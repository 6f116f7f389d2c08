"""The density below which rows of a table's gradient are quicker than the whole of it, measured before the first step.

The ranks that will send the gradient send one as long, in both ways. A rank's own times may differ from those of the
others, and ranks that took other ways would wait for each other for ever. So all take the longest of everyone's times.
"""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import torch

from hpcbench.comm.channel import Channel
from hpcbench.comm.clock import Clock
from hpcbench.comm.group import Group
from hpcbench.parallel.exact import gather
from hpcbench.parallel.pieces import Piece
from hpcbench.parallel.sparse.reduction import ByRows
from hpcbench.parallel.sparse.touched import Index

DENSITIES = (1 / 64, 1 / 16, 1 / 4, 1.0)
"""The densities that are measured, in ascending order."""
REPEATS = 5
"""Measurements of each, after one that is not counted: plans and memory are made in it."""


class Switch(NamedTuple):
    """The switch point of a table's gradient, the same on all ranks."""

    computed: float
    """The density below which rows are fewer bytes: `Ways.switch_density`."""
    measured: float
    """The density up to which rows are quicker: see `crossing`."""
    whole_s: float
    """Seconds of the whole gradient."""
    densities: tuple[float, ...]
    """The densities that were measured."""
    rows_s: tuple[float, ...]
    """Seconds of rows at each of them."""


def measure(by_rows: ByRows | None, piece: Piece | None, *, world: Group, exact: Channel, clock: Clock) -> Switch:
    """Measure the switch point, and let the reduction go by it. This is a collective call of all ranks.

    Parameters
    ----------
    by_rows, piece
        The reduction by rows and the piece that it reduces; None on ranks without the table.
    world
        All ranks.
    exact
        Channel of the times.
    clock
        Measures this rank's times.
    """
    own = [0.0] * (2 + len(DENSITIES))
    if by_rows and piece:
        own = [by_rows.ways(piece).switch_density, *own_times(by_rows, piece, clock)]
    computed, whole, *rows = longest(world, own, exact)
    switch = Switch(computed, crossing(DENSITIES, rows, whole), whole, DENSITIES, tuple(rows))
    if by_rows:
        by_rows.switch = switch.measured
    return switch


def longest(world: Group, own: Sequence[float], exact: Channel) -> list[float]:
    """The largest of all ranks' values, value by value."""
    return [max(column) for column in zip(*gather(world, own, exact), strict=True)]


def crossing(densities: Sequence[float], rows: Sequence[float], whole: float) -> float:
    """The density up to which rows are quicker, on straight lines between those that were measured.

    It is 0 if rows at the lowest density are no quicker, and 1 if they are quicker at all.
    """
    below: tuple[float, float] | None = None
    for density, seconds in zip(densities, rows, strict=True):
        if seconds >= whole:
            if below is None:
                return 0.0
            return below[0] + (density - below[0]) * (whole - below[1]) / (seconds - below[1])
        below = density, seconds
    return 1.0


def own_times(by_rows: ByRows, piece: Piece, clock: Clock) -> list[float]:
    """Seconds of the whole gradient on this rank, and of rows at each density.

    The ways take turns, so that what slows the network down slows all of them. Counts of rows travel in both ways, and
    are not in the times.
    """
    ways, like = by_rows.ways(piece), piece.bucket.values
    random = torch.Generator(like.device).manual_seed(0)
    gradient = torch.randn(ways.length, generator=random, dtype=torch.float32, device=like.device).to(like.dtype)
    indices = [None, *(evenly_spread(ways.rows, density) for density in DENSITIES)]
    found: list[list[float]] = [[] for _ in indices]
    for _ in range(1 + REPEATS):
        for index, seconds in zip(indices, found, strict=True):
            own = gradient.clone()  # sums may take its place
            counts = by_rows.counted(ways, np.empty(0, np.int32) if index is None else index)  # all wait for each other
            begin = clock.mark()
            if index is None:
                by_rows.send_whole(piece, own, ways.replicas).wait()
            else:
                by_rows.send(piece, own, index, ways.replicas, counts).wait()
            clock.count(begin, clock.mark(), seconds.append)
            clock.settle()
    if piece.feedback:
        piece.feedback.forget()
    return [median(seconds[1:]) for seconds in found]


def evenly_spread(rows: int, density: float) -> Index:
    """So large a part of a table's rows, one at least."""
    count = max(round(rows * density), 1)
    spread: Index = (np.arange(count, dtype=np.int64) * rows // count).astype(np.int32)
    return spread
