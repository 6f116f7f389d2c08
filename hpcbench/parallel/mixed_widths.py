"""Sums of gradients with mixed widths, in the manner of DynamiQ (arXiv 2602.08923).

A bucket is cut into super-groups of 256 values. Super-groups with the largest norms are sent with 8 bits, those with
the smallest norms with 2 bits, and the others with the 4-bit codec of the rule:

1. Each replica computes the norm of each super-group. A small exact all-reduce returns the maximum over the replicas.
   A maximum has the same bits on all ranks, whatever the order of the reduction, so all ranks choose the same widths.
2. Each width is one message, which contains its super-groups in the order of the bucket.
3. The messages are summed like other gradients, and the sums are written back to their positions.

With ZeRO, the budget applies to each piece, so each message contains the same number of values for each owner.

Differences from the paper: the budget determines the number of super-groups of each width, not thresholds that depend
on the gradients. Means are not subtracted, and scales are not rounded stochastically.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from mpi4py import MPI
from torch import Tensor

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.contract.mixed_widths import SUPER_GROUP, WidthCounts, count_widths, name_codecs
from hpcbench.parallel.buffers import room, to_buffer, to_tensor
from hpcbench.parallel.pieces import Piece, Reduction
from hpcbench.parallel.whole import start_sum


class MixedWidths:
    """Reducer of gradients whose super-groups have different widths.

    Parameters
    ----------
    channel
        Channel of gradients, which sets the 4-bit codec and the budget.
    exact
        Channel without compression, for norms.
    """

    def __init__(self, channel: Channel, exact: Channel) -> None:
        self._channel, self._exact = channel, exact

    def start(
        self, piece: Piece, gradients: Tensor, divisor: float, group: Group, *, scattered: bool
    ) -> Reduction | None:
        """Start to sum a gradient, divided by `divisor` (a collective call, which waits for the norms of all replicas).

        Without `scattered`, the sum overwrites the values of `gradients`, or of their copy in the wire dtype. Return
        None if the piece of a rank has no complete super-group.
        """
        channel, parts = self._channel, group.size if scattered else 1
        counts = count_widths(gradients.numel() // parts, channel.codec.name, channel.mixed_bits, scattered=scattered)
        if counts is None:
            return None
        values = to_tensor(to_buffer(gradients))
        values /= divisor
        rows = values.view(parts, -1)
        places = self._choose_widths(rows, counts, group)
        sums = [
            start_sum(
                piece,
                to_buffer(message),
                group,
                replace(channel, codec=get_codec(codec)),
                scattered=scattered,
                residuals=None,
            )
            for codec, message in zip(name_codecs(channel.codec.name), _split(rows, places, counts), strict=True)
            if message.numel()
        ]
        if scattered:
            values = to_tensor(room((rows.shape[1],), like=piece.bucket.values))
            places = [each[group.rank : group.rank + 1] for each in places]
        return Reduction(values, sums[0].work, sums, partial(_complete, values, places, counts, sums))

    def _choose_widths(self, rows: Tensor, counts: WidthCounts, group: Group) -> list[Tensor]:
        """Return the indices of the super-groups with 2, 4 and 8 bits, in ascending order, [parts, count] each.

        Among equal norms, the first super-groups have more bits.
        """
        norms = torch.linalg.vector_norm(_group(rows, counts), dim=2)
        buffer = to_buffer(norms.nan_to_num(torch.inf, torch.inf).view(-1))  # a maximum of NaN has no defined order
        self.exchange(buffer, group)
        order = torch.argsort(to_tensor(buffer).view(norms.shape), dim=1, descending=True, stable=True)
        bounds = counts.wide, counts.wide + counts.middle
        chosen = order[:, bounds[1] :], order[:, bounds[0] : bounds[1]], order[:, : bounds[0]]
        return [places.sort(dim=1).values for places in chosen]

    def exchange(self, norms: object, group: Group) -> None:
        """Replace the norms of this replica by their maximum over the replicas (a collective call)."""
        group.all_reduce(norms, channel=self._exact, op=MPI.MAX).wait()  # type: ignore[arg-type]


def _group(rows: Tensor, counts: WidthCounts) -> Tensor:
    """Return a view of the complete super-groups, [parts, groups, SUPER_GROUP]."""
    return rows[:, : counts.groups * SUPER_GROUP].view(-1, counts.groups, SUPER_GROUP)


def _split(rows: Tensor, places: Sequence[Tensor], counts: WidthCounts) -> list[Tensor]:
    """Copy the values of each width into one flat message. The parts of the ranks follow each other."""
    groups = _group(rows, counts)
    lines = torch.arange(len(rows), device=rows.device)[:, None]
    narrow, middle, wide = (groups[lines, each].flatten(1) for each in places)
    middle = torch.cat([middle, rows[:, counts.groups * SUPER_GROUP :]], dim=1)
    return [message.reshape(-1) for message in (narrow, middle, wide)]


def _complete(values: Tensor, places: Sequence[Tensor], counts: WidthCounts, sums: Sequence[Reduction]) -> None:
    """Wait for the sums of all widths, and write them to their positions in `values`."""
    rows = values.view(len(places[0]), -1)
    groups = _group(rows, counts)
    lines = torch.arange(len(rows), device=rows.device)[:, None]
    arrived = iter(sums)
    for each, elements in zip(places, counts.elements, strict=True):
        if not elements:
            continue
        reduction = next(arrived)
        reduction.wait()
        message = reduction.result.view(len(rows), -1)
        length = each.shape[1] * SUPER_GROUP
        groups[lines, each] = message[:, :length].view(len(rows), -1, SUPER_GROUP)
        if length < elements:
            rows[:, counts.groups * SUPER_GROUP :] = message[:, length:]
