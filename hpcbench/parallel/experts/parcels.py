"""The order in which a rank's tokens leave for their experts, and in which those of other ranks come. Index arithmetic.

Rows that leave lie by expert, and so by the rank that holds the expert. With a capacity every expert gets all its
places from every sample, empty ones as zeros, so that all ranks know all counts. Without one, exactly the chosen rows
leave, and the ranks tell each other how many there are.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hpcbench.parallel.experts.routing import Routing
from hpcbench.parallel.experts.travel import Counts

Exchange = Callable[[Sequence[int]], list[int]]
"""Tells every rank so many numbers of a list, its equal part in rank order, and gives what all ranks tell this one."""


class Parcels(NamedTuple):
    """Where rows of tokens lie when they travel.

    Attributes
    ----------
    source
        For each row that leaves, the choice that it is of: ``token * k + choice``. An empty place has the number of
        choices.
    back
        For each choice, the row that leaves; for one that was dropped, the number of rows.
    counts
        Rows to each rank, and from each rank.
    by_expert
        For each row, in the order of this rank's experts, its place among the rows that come.
    experts
        Rows of each of this rank's experts.
    """

    source: Tensor
    back: Tensor
    counts: Counts
    by_expert: Tensor
    experts: list[int]

    @property
    def by_sender(self) -> Tensor:
        """For each row that comes, its place in the order of this rank's experts."""
        places = torch.empty_like(self.by_expert)
        places[self.by_expert] = torch.arange(len(places), device=places.device)
        return places


def with_places(routing: Routing, *, count: int, places: int, ranks: int) -> Parcels:
    """Rows where each of `count` experts has so many places for each sample. Ranks hold equally many experts."""
    b, s, k = routing.expert.shape
    sample = torch.arange(b, device=routing.expert.device)[:, None, None]
    row = (routing.expert * b + sample) * places + routing.place
    rows = count * b * places
    back = torch.where(routing.kept, row, rows).reshape(-1)
    source = torch.full((rows + 1,), b * s * k, device=back.device)
    source[back] = torch.arange(b * s * k, device=back.device)  # those that were dropped all go to the last
    each = count // ranks * b * places
    segments = [[b * places] * (count // ranks)] * ranks
    by_expert, experts = _by_expert(segments, back.device)
    return Parcels(source[:-1], back, Counts([each] * ranks, [each] * ranks), by_expert, experts)


def without_places(routing: Routing, *, count: int, ranks: int, exchange: Exchange) -> Parcels:
    """Rows of exactly the choices. Counts of each expert are exchanged."""
    chosen = routing.expert.reshape(-1)
    source = chosen.argsort(stable=True)
    back = torch.empty_like(source)
    back[source] = torch.arange(len(source), device=source.device)
    own = chosen.bincount(minlength=count).tolist()
    held = count // ranks
    told = exchange(own)
    segments = [told[rank * held : (rank + 1) * held] for rank in range(ranks)]
    by_expert, experts = _by_expert(segments, source.device)
    sends = [sum(own[rank * held : (rank + 1) * held]) for rank in range(ranks)]
    return Parcels(source, back, Counts(sends, [sum(rows) for rows in segments]), by_expert, experts)


def _by_expert(segments: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, list[int]]:
    """The order by expert of rows that come by sender, and the rows of each expert. Segments are [sender][expert]."""
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
