"""The density below which rows of a table's gradient are faster than the whole gradient, measured before step 1.

The ranks that will send the gradient send one of the same length in both ways. Times differ between ranks, and ranks
that chose different ways would deadlock. So all ranks use the maximum of all ranks' times.
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
    """Density below which sending rows takes fewer bytes than sending the whole gradient (`Ways.switch_density`)."""
    measured: float
    """Density up to which sending rows is faster; see `crossing`."""
    whole_s: float
    """Seconds to send the whole gradient."""
    densities: tuple[float, ...]
    """The densities that were measured."""
    rows_s: tuple[float, ...]
    """Seconds to send rows at each of these densities."""


def measure(by_rows: ByRows | None, piece: Piece | None, *, world: Group, exact: Channel, clock: Clock) -> Switch:
    """Measure the switch point and set it in the reduction (a collective call of all ranks).

    Parameters
    ----------
    by_rows, piece
        The reduction by rows and the piece that it reduces; None on ranks without the table.
    world
        All ranks.
    exact
        Channel of the times.
    clock
        Clock that measures this rank's times.
    """
    times = [0.0] * (2 + len(DENSITIES))
    if by_rows and piece:
        times = [by_rows.ways(piece).switch_density, *own_times(by_rows, piece, clock)]
    computed, whole_s, *rows = longest(world, times, exact)
    switch = Switch(computed, crossing(DENSITIES, rows, whole_s), whole_s, DENSITIES, tuple(rows))
    if by_rows:
        by_rows.switch = switch.measured
    return switch


def longest(world: Group, times: Sequence[float], exact: Channel) -> list[float]:
    """Return the largest of all ranks' values, value by value."""
    return [max(column) for column in zip(*gather(world, times, exact), strict=True)]


def crossing(densities: Sequence[float], rows: Sequence[float], whole_s: float) -> float:
    """Interpolate the density up to which rows are faster, linearly between the measured densities.

    It is 0 if rows at the lowest density are not faster, and 1 if they are faster at all densities.
    """
    below: tuple[float, float] | None = None
    for density, seconds in zip(densities, rows, strict=True):
        if seconds >= whole_s:
            if below is None:
                return 0.0
            return below[0] + (density - below[0]) * (whole_s - below[1]) / (seconds - below[1])
        below = density, seconds
    return 1.0


def own_times(by_rows: ByRows, piece: Piece, clock: Clock) -> list[float]:
    """Measure the seconds of the whole gradient on this rank, and of rows at each density.

    Measurements of the ways alternate, so that a slower network affects all of them. Counts of rows are exchanged in
    both ways, and are not in the times.
    """
    ways, like = by_rows.ways(piece), piece.bucket.values
    random = torch.Generator(like.device).manual_seed(0)
    gradient = torch.randn(ways.length, generator=random, dtype=torch.float32, device=like.device).to(like.dtype)
    indices = [None, *(evenly_spread(ways.rows, density) for density in DENSITIES)]
    seconds_by_index: list[list[float]] = [[] for _ in indices]
    for _ in range(1 + REPEATS):
        for index, seconds in zip(indices, seconds_by_index, strict=True):
            times = gradient.clone()  # sums may overwrite it
            counts = by_rows.counted(ways, np.empty(0, np.int32) if index is None else index)  # synchronizes the ranks
            begin = clock.mark()
            if index is None:
                by_rows.send_whole(piece, times, ways.replicas).wait()
            else:
                by_rows.send(piece, times, index, ways.replicas, counts).wait()
            clock.count(begin, clock.mark(), seconds.append)
            clock.settle()
    if piece.feedback:
        piece.feedback.forget()
    return [median(seconds[1:]) for seconds in seconds_by_index]


def evenly_spread(rows: int, density: float) -> Index:
    """Return the indices of evenly spread rows with this density, at least one row."""
    count = max(round(rows * density), 1)
    spread: Index = (np.arange(count, dtype=np.int64) * rows // count).astype(np.int32)
    return spread
