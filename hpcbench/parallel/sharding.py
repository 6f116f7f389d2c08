"""Record of the part of a global parameter that a rank holds.

The record is used for initial weights, the gradient norm, parity tests and parameter counts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hpcbench.contract.grid import Axes
from hpcbench.contract.shards import cut_evenly


class Tied(Enum):
    """How a weight is tied to a weight on a different stage."""

    NO = "no"
    OWNER = "owner"
    COPY = "copy"


@dataclass(frozen=True)
class Cut:
    """Piece of a dim."""

    index: int
    count: int


@dataclass(frozen=True)
class Shard:
    """Part of a parameter that this rank holds.

    Attributes
    ----------
    name
        Name of the parameter in the whole model.
    shape
        Shape of the parameter in the whole model.
    cuts
        Piece of each dim that this rank holds, or an empty tuple if the rank holds the whole parameter.
    replicated
        Axes of the tensor grid along which ranks hold the same part.
    copy, copies
        Index of this rank's copy, and number of copies.
    tied
        How the weight is tied. The first stage owns a tied weight, and the last stage holds a copy.
    partial
        Whether each rank with the same part computes only a partial gradient, such as the gradient from its own
        positions.
    ep
        Number of data-parallel ranks that hold different experts; 1 for a non-expert parameter. The parameter has
        dp/ep replicas.
    by_rows
        Whether the gradient may be sent as touched rows.
    """

    name: str
    shape: tuple[int, ...]
    cuts: tuple[Cut, ...] = ()
    replicated: Axes = ()
    copy: int = 0
    copies: int = 1
    tied: Tied = Tied.NO
    partial: bool = False
    ep: int = 1
    by_rows: bool = False

    @property
    def alone(self) -> bool:
        """Whether the parameter has its own bucket."""
        return self.tied is not Tied.NO or self.by_rows

    @property
    def held(self) -> tuple[slice, ...]:
        """Slices of the whole parameter that this rank holds."""
        cuts = self.cuts or (Cut(0, 1),) * len(self.shape)
        return tuple(cut_evenly(size, cut.count)[cut.index] for size, cut in zip(self.shape, cuts, strict=True))

    @property
    def parts(self) -> int:
        """Number of parts that the parameter is cut into."""
        return math.prod(cut.count for cut in self.cuts)

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of this rank's part."""
        return tuple(part.stop - part.start for part in self.held)

    def is_replicated_along(self, axes: Axes) -> bool:
        """Return whether ranks hold the same part along exactly these axes."""
        return self.replicated == axes

    @property
    def counts_in_norm(self) -> bool:
        """Whether the global gradient norm includes this rank's copy."""
        return self.tied is not Tied.COPY and self.copy == 0


Initial = Callable[[Shard, torch.dtype], Tensor]
"""Function that returns the initial values of a rank's part of a parameter."""


class Held(NamedTuple):
    """A parameter of this rank, and its position in the whole parameter."""

    parameter: nn.Parameter
    shard: Shard
