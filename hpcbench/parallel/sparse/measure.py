"""Measurement of the density below which sending rows is faster than sending the whole gradient of a table.

The measurement takes place before step 1. The ranks send a gradient of the actual length with both methods. Times
differ between ranks, and ranks that select different methods would deadlock. Therefore, all ranks use the maximum of
each time over the ranks.
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
"""Measured densities, in ascending order."""
REPEATS = 5
"""Number of measurements per density. One additional warm-up run creates plans and allocates memory."""


class Switch(NamedTuple):
    """Switch point between the two methods. All ranks have the same values."""

    computed: float
    """Density below which rows take fewer bytes than the whole gradient (`Ways.switch_density`)."""
    measured: float
    """Density up to which sending rows is faster (see `crossing`)."""
    whole_s: float
    """Time in seconds to send the whole gradient."""
    densities: tuple[float, ...]
    """Measured densities."""
    rows_s: tuple[float, ...]
    """Time in seconds to send rows, at each density."""


def measure(by_rows: ByRows | None, piece: Piece | None, *, world: Group, exact: Channel, clock: Clock) -> Switch:
    """Measure the switch point and store it in the reduction (a collective call).

    Parameters
    ----------
    by_rows, piece
        Reducer that sends rows, and the reduced piece, or None on ranks without the table.
    world
        All ranks.
    exact
        Channel without compression, used to exchange the times.
    clock
        Clock that measures the times of this rank.
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
    """Return the element-wise maximum of the times over all ranks."""
    return [max(column) for column in zip(*gather(world, times, exact), strict=True)]


def crossing(densities: Sequence[float], rows: Sequence[float], whole_s: float) -> float:
    """Compute the density up to which rows are faster, by linear interpolation between the measured densities.

    The result is 0 if rows are not faster at the lowest density, and 1 if rows are faster at all densities.
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
    """Measure the times in seconds for the whole gradient and for rows at each density on this rank.

    The measurements of all methods alternate, so that a temporarily slow network affects all methods. The exchange of
    row counts is excluded, because both methods need it.
    """
    ways, like = by_rows.ways(piece), piece.bucket.values
    random = torch.Generator(like.device).manual_seed(0)
    gradient = torch.randn(ways.length, generator=random, dtype=torch.float32, device=like.device).to(like.dtype)
    indices = [None, *(evenly_spread(ways.rows, density) for density in DENSITIES)]
    seconds_by_index: list[list[float]] = [[] for _ in indices]
    for _ in range(1 + REPEATS):
        for index, seconds in zip(indices, seconds_by_index, strict=True):
            times = gradient.clone()  # sums may overwrite the gradient
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
    """Return the indices of evenly spaced rows with this density (at least one row)."""
    count = max(round(rows * density), 1)
    spread: Index = (np.arange(count, dtype=np.int64) * rows // count).astype(np.int32)
    return spread
