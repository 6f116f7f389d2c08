"""Dispatch plan of a rank's tokens: index arithmetic for the order of sent and received rows.

Sent rows are sorted by expert, and therefore by the rank that holds the expert. With a capacity limit, every expert
receives the same number of rows from every sample. Unused rows are zero, and every rank can compute all counts without
communication. Without a capacity limit, only the routed rows are sent, and the ranks exchange the row counts first.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hpcbench.parallel.experts.routing import Routing
from hpcbench.parallel.experts.travel import Counts

Exchange = Callable[[Sequence[int]], list[int]]
"""All-to-all of integers: sends each rank an equal part of a list, and returns the received integers in rank order."""


class Parcels(NamedTuple):
    """A dispatch plan for token rows.

    Attributes
    ----------
    source
        For each sent row, the index of its choice, ``token * k + choice``, or the number of choices if the row is
        empty.
    back
        For each choice, the index of its sent row, or the number of rows if the choice was dropped.
    counts
        Numbers of rows sent to and received from each rank.
    by_expert
        Indices of the received rows, sorted by this rank's experts.
    experts
        Number of rows of each expert on this rank.
    """

    source: Tensor
    back: Tensor
    counts: Counts
    by_expert: Tensor
    experts: list[int]

    @property
    def by_sender(self) -> Tensor:
        """Index of each received row in the order of this rank's experts."""
        places = torch.empty_like(self.by_expert)
        places[self.by_expert] = torch.arange(len(places), device=places.device)
        return places


def with_places(routing: Routing, *, count: int, places: int, ranks: int) -> Parcels:
    """Plan the rows for `count` experts with a capacity of `places` rows per sample.

    Every rank holds the same number of experts.
    """
    b, s, k = routing.expert.shape
    sample = torch.arange(b, device=routing.expert.device)[:, None, None]
    row = (routing.expert * b + sample) * places + routing.place
    rows = count * b * places
    back = torch.where(routing.accepted, row, rows).reshape(-1)
    source = torch.full((rows + 1,), b * s * k, device=back.device)
    source[back] = torch.arange(b * s * k, device=back.device)  # all dropped choices refer to the last row
    each = count // ranks * b * places
    segments = [[b * places] * (count // ranks)] * ranks
    by_expert, experts = _by_expert(segments, back.device)
    return Parcels(source[:-1], back, Counts([each] * ranks, [each] * ranks), by_expert, experts)


def without_places(routing: Routing, *, count: int, ranks: int, exchange: Exchange) -> Parcels:
    """Plan the rows without a capacity limit. The ranks exchange the row counts of each expert."""
    chosen = routing.expert.reshape(-1)
    source = chosen.argsort(stable=True)
    back = torch.empty_like(source)
    back[source] = torch.arange(len(source), device=source.device)
    counts = chosen.bincount(minlength=count).tolist()
    held = count // ranks
    received = exchange(counts)
    segments = [received[rank * held : (rank + 1) * held] for rank in range(ranks)]
    by_expert, experts = _by_expert(segments, source.device)
    sends = [sum(counts[rank * held : (rank + 1) * held]) for rank in range(ranks)]
    return Parcels(source, back, Counts(sends, [sum(rows) for rows in segments]), by_expert, experts)


def _by_expert(segments: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, list[int]]:
    """Sort received rows from sender order to expert order, and count the rows of each expert.

    The layout of `segments` is [sender][expert].
    """
    first = 0
    starts: list[list[int]] = []
    for rows in segments:
        starts.append([])
        for length in rows:
            starts[-1].append(first)
            first += length
    held = range(len(segments[0]))
    pieces = [
        torch.arange(starts[sender][expert], starts[sender][expert] + segments[sender][expert])
        for expert in held
        for sender in range(len(segments))
    ]
    return torch.cat(pieces).to(device), [sum(rows[expert] for rows in segments) for expert in held]
