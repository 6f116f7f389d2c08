"""Sums of gradients with mixed widths, in the manner of DynamiQ (arXiv 2602.08923).

A bucket is cut into super-groups of 256 values. Super-groups with the largest norms are sent with 8 bits, those with
the smallest norms with 2 bits, and the others with the 4-bit codec of the rule:

1. Each replica computes the level of each super-group: its norm on a logarithmic scale with steps of sqrt(2). An exact
   all-reduce of one byte per super-group returns the maximum over the replicas. The maximum of integers is the same on
   all ranks, so all ranks choose the same widths.
2. The numbers of super-groups of each width minimize the expected error within the budget.
3. All super-groups of one width form one message, in the order of the bucket.
4. The messages are summed like other gradients, and the sums are written back to their positions.

With ZeRO, the budget applies to each piece, so each message contains the same number of values for each owner.

Differences from the paper: norms are the maximum over replicas, not the sum. Means are not subtracted. Rounding and
scales are those of the rule's codec, and each width is a separate message.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from torch import Tensor

from hpcbench.codecs.registry import get_codec
from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.contract.mixed_widths import SUPER_GROUP, WidthBudget, WidthCounts, make_budget, name_codecs
from hpcbench.parallel.buffers import room, to_buffer, to_tensor
from hpcbench.parallel.pieces import Piece, Reduction
from hpcbench.parallel.whole import start_sum

Levels = np.ndarray[Any, np.dtype[np.uint8]]
LEVEL_OF_ONE = 128
"""Level of a super-group whose norm is 1. Level 255 includes norms that are not finite."""
ERRORS = (1.0, 1 / 7**2, 1 / 127**2)
"""Expected squared error of a super-group with 2, 4 or 8 bits, relative to the error with 2 bits: 1 / levels^2."""


class MixedWidths:
    """Reducer of gradients whose super-groups have different widths.

    Parameters
    ----------
    channel
        Channel of gradients, which sets the 4-bit codec and the budget.
    exact
        Channel without compression, for levels.
    """

    def __init__(self, channel: Channel, exact: Channel) -> None:
        self._channel, self._exact = channel, exact

    def start(
        self, piece: Piece, gradients: Tensor, divisor: float, group: Group, *, scattered: bool
    ) -> Reduction | None:
        """Start to sum a gradient, divided by `divisor` (a collective call that waits for the levels of all replicas).

        Without `scattered`, the sum overwrites the values of `gradients`, or of their copy in the wire dtype. Return
        None if the piece of a rank has no complete super-group.
        """
        channel, parts = self._channel, group.size if scattered else 1
        codec = channel.codec.name
        budget = make_budget(gradients.numel() // parts, codec, channel.mixed_bits, scattered=scattered)
        if budget is None:
            return None
        values = to_tensor(to_buffer(gradients))
        values /= divisor
        rows = values.view(parts, -1)
        levels = compute_levels(rows, budget.groups)
        self.exchange(levels, group)
        counts, chosen = choose_widths(levels, budget)
        places = [torch.from_numpy(each).to(rows.device) for each in chosen]
        messages = zip(name_codecs(codec), _split(rows, places, counts), strict=True)
        sums = [
            start_sum(
                piece,
                to_buffer(message),
                group,
                replace(channel, codec=get_codec(name)),
                scattered=scattered,
                residuals=None,
            )
            for name, message in messages
            if message.numel()
        ]
        if scattered:
            values = to_tensor(room((rows.shape[1],), like=piece.bucket.values))
            places = [each[group.rank : group.rank + 1] for each in places]
        return Reduction(values, sums[0].work, sums, partial(_complete, values, places, counts, sums))

    def exchange(self, levels: Levels, group: Group) -> None:
        """Replace the levels of this replica by their maximum over the replicas (a collective call)."""
        group.all_reduce(levels.reshape(-1), channel=self._exact, op=MPI.MAX).wait()


def compute_levels(rows: Tensor, groups: int) -> Levels:
    """Return the level of each complete super-group, [parts, groups]."""
    norms = torch.linalg.vector_norm(_cut(rows, groups), dim=2).nan_to_num(torch.inf, torch.inf)
    levels: Levels = (2 * norms.log2()).round().add(LEVEL_OF_ONE).clamp(0, 255).to("cpu", torch.uint8).numpy()
    return levels


def choose_widths(levels: Levels, budget: WidthBudget) -> tuple[WidthCounts, list[Any]]:
    """Return the counts, and the indices of the super-groups with 2, 4 and 8 bits in ascending order, [parts, count].

    All parts have the same counts. Among super-groups with equal levels, the first ones get more bits. The result
    depends only on sequential fp64 sums, so it is the same on all processors.
    """
    order = np.argsort(255 - levels, axis=1, kind="stable")
    energies = np.exp2(np.take_along_axis(levels, order, axis=1).astype(np.float64) - LEVEL_OF_ONE)
    heads = np.concatenate([[0.0], np.cumsum(energies.sum(axis=0))])  # energy of the first super-groups
    wide = np.arange(min(budget.groups, budget.spare // budget.wide_extra) + 1)
    middle = np.minimum(budget.groups - wide, (budget.spare - wide * budget.wide_extra) // budget.middle_extra)
    above, below = heads[wide], heads[wide + middle]
    errors = ERRORS[2] * above + ERRORS[1] * (below - above) + ERRORS[0] * (heads[-1] - below)
    counts = budget.fill(int(np.argmin(errors)))
    bounds = counts.wide, counts.wide + counts.middle
    chosen = order[:, bounds[1] :], order[:, bounds[0] : bounds[1]], order[:, : bounds[0]]
    return counts, [np.sort(each, axis=1) for each in chosen]


def _cut(rows: Tensor, groups: int) -> Tensor:
    """Return a view of the complete super-groups, [parts, groups, SUPER_GROUP]."""
    return rows[:, : groups * SUPER_GROUP].view(-1, groups, SUPER_GROUP)


def _split(rows: Tensor, places: Sequence[Tensor], counts: WidthCounts) -> list[Tensor]:
    """Copy the values of each width into one flat message, which contains the parts of all ranks in rank order."""
    groups = _cut(rows, counts.groups)
    lines = torch.arange(len(rows), device=rows.device)[:, None]
    narrow, middle, wide = (groups[lines, each].flatten(1) for each in places)
    middle = torch.cat([middle, rows[:, counts.groups * SUPER_GROUP :]], dim=1)
    return [message.reshape(-1) for message in (narrow, middle, wide)]


def _complete(values: Tensor, places: Sequence[Tensor], counts: WidthCounts, sums: Sequence[Reduction]) -> None:
    """Wait for the sums of all widths, and write them to their positions in `values`."""
    rows = values.view(len(places[0]), -1)
    groups = _cut(rows, counts.groups)
    lines = torch.arange(len(rows), device=rows.device)[:, None]
    arrived = iter(sums)
    for each, elements in zip(places, counts.elements, strict=True):
        if not elements:
            continue
        reduction = next(arrived)
        reduction.wait()
        message = reduction.result.view(len(rows), -1)
        length = each.shape[1] * SUPER_GROUP
        groups[lines, each] = message[:, :length].reshape(len(rows), -1, SUPER_GROUP)
        if length < elements:
            rows[:, counts.groups * SUPER_GROUP :] = message[:, length:]
