"""Sum of table rows of several ranks, bitwise identical to the sum of the whole tables."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Rows(NamedTuple):
    """Rows of one rank: unique row indices in a table, and values [rows, width]."""

    places: Tensor
    values: Tensor


def add_rows(table: Tensor, everyones: Sequence[Rows]) -> None:
    """Set the rows of a table to the sums of the rows of all ranks.

    Rows are added in rank order, as in an all-reduce with direct exchange. A row that a rank does not have is treated
    as a row of zeros. Adding these zeros changes only the sign of zeros (-0.0 + 0.0 is +0.0).

    Parameters
    ----------
    table
        Table, [rows, width]. Rows that are missing on all ranks must already be +0.0.
    everyones
        Rows of each rank, in rank order.
    """
    held = torch.zeros(len(table), dtype=torch.int32, device=table.device)
    for places, _ in everyones:
        held.index_add_(0, places, torch.ones_like(places, dtype=torch.int32))
    table.index_fill_(0, held.nonzero()[:, 0], -0.0)  # -0.0 + x is bitwise identical to x
    for places, values in everyones:
        table.index_copy_(0, places, table.index_select(0, places) + values)
    some = ((held > 0) & (held < len(everyones))).nonzero()[:, 0]
    table.index_copy_(0, some, table.index_select(0, some) + 0.0)
