"""The dispatch plan of a rank's tokens: the order of sent and of received rows. Index arithmetic.

Sent rows are sorted by expert, and so by the rank that holds the expert. With a capacity every expert receives all its
places from every sample, with zeros in empty ones, so all ranks can compute all counts. Without a capacity exactly the
chosen rows are sent, and the ranks exchange their numbers first.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hpcbench.parallel.experts.routing import Routing
from hpcbench.parallel.experts.travel import Counts

Exchange = Callable[[Sequence[int]], list[int]]
"""An all-to-all of numbers: sends each rank its equal part of a list, and returns the received ones in rank order."""


class Parcels(NamedTuple):
    """The dispatch plan of rows of tokens.

    Attributes
    ----------
    source
        For each sent row, the number of its choice: ``token * k + choice``. For an empty place, the number of choices.
    back
        For each choice, its sent row; for a dropped choice, the number of rows.
    counts
        Rows to each rank, and from each rank.
    by_expert
        For each row, in the order of this rank's experts, its place among the received rows.
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
        """For each received row, its place in the order of this rank's experts."""
        places = torch.empty_like(self.by_expert)
        places[self.by_expert] = torch.arange(len(places), device=places.device)
        return places


def with_places(routing: Routing, *, count: int, places: int, ranks: int) -> Parcels:
    """Plan the rows if each of `count` experts has `places` places per sample. Ranks hold equally many experts."""
    b, s, k = routing.expert.shape
    sample = torch.arange(b, device=routing.expert.device)[:, None, None]
    row = (routing.expert * b + sample) * places + routing.place
    rows = count * b * places
    back = torch.where(routing.accepted, row, rows).reshape(-1)
    source = torch.full((rows + 1,), b * s * k, device=back.device)
    source[back] = torch.arange(b * s * k, device=back.device)  # all dropped choices go to the last row
    each = count // ranks * b * places
    segments = [[b * places] * (count // ranks)] * ranks
    by_expert, experts = _by_expert(segments, back.device)
    return Parcels(source[:-1], back, Counts([each] * ranks, [each] * ranks), by_expert, experts)


def without_places(routing: Routing, *, count: int, ranks: int, exchange: Exchange) -> Parcels:
    """Plan the rows of exactly the choices. Counts of each expert are exchanged."""
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
    """Sort by expert the rows that arrive by sender, and count the rows of each expert.

    Segments are [sender][expert].
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
