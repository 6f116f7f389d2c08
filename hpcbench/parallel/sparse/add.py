"""The sum of rows of several ranks, with the bits that the sum of their whole tables has."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Rows(NamedTuple):
    """Rows of one rank: their places in a table, each at most once, and their values [rows, width]."""

    places: Tensor
    values: Tensor


def add_rows(table: Tensor, everyones: Sequence[Rows]) -> None:
    """Set the rows of a table to the sums of all ranks' rows.

    Each sum is made in rank order, as in the direct exchange of an all-reduce. A row that a rank does not have counts
    as zeros.
    These change only the sign of zeros: -0.0 + 0.0 is +0.0.

    Parameters
    ----------
    table
        [rows, width]. Rows that no rank has must be +0.0 already.
    everyones
        Rows of each rank, in rank order.
    """
    held = torch.zeros(len(table), dtype=torch.int32, device=table.device)
    for places, _ in everyones:
        held.index_add_(0, places, torch.ones_like(places, dtype=torch.int32))
    table.index_fill_(0, held.nonzero()[:, 0], -0.0)  # -0.0 + x has the bits of x
    for places, values in everyones:
        table.index_copy_(0, places, table.index_select(0, places) + values)
    some = ((held > 0) & (held < len(everyones))).nonzero()[:, 0]
    table.index_copy_(0, some, table.index_select(0, some) + 0.0)
