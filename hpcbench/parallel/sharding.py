"""The part of a global parameter that a rank holds.

Initial weights, the gradient norm, parity tests and parameter counts all read this record.
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
    """The way in which a weight is tied to one on a different stage."""

    NO = "no"
    OWNER = "owner"
    COPY = "copy"


@dataclass(frozen=True)
class Cut:
    """A piece of a dim."""

    index: int
    count: int


@dataclass(frozen=True)
class Shard:
    """The part of a parameter that this rank holds.

    Attributes
    ----------
    name
        The parameter's name in the whole model.
    shape
        Shape in the whole model.
    cuts
        The piece of each dim that this rank holds; empty when it holds the whole.
    replicated
        The axes of the tensor grid along which ranks hold the same part.
    copy, copies
        Number of this rank's copy, and number of copies.
    tied
        How the weight is tied: the first stage owns a tied weight, and the last one has a copy.
    partial
        Whether each rank with the same part computes only a summand of its gradient, such as that of its own positions.
    ep
        Number of data-parallel ranks that hold different experts in place of this one; dp/ep replicas hold the
        parameter. It is 1 for a parameter outside of experts.
    by_rows
        Whether its gradient may be sent by the rows that were touched.
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
        """Whether the parameter has a bucket of its own."""
        return self.tied is not Tied.NO or self.by_rows

    @property
    def held(self) -> tuple[slice, ...]:
        """Slices of the whole parameter."""
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
        """Return whether ranks hold the same part along these axes, and along no others."""
        return self.replicated == axes

    @property
    def counts_in_norm(self) -> bool:
        """Whether this rank's copy is the one that the global gradient norm counts."""
        return self.tied is not Tied.COPY and self.copy == 0


Initial = Callable[[Shard, torch.dtype], Tensor]
"""Function that gives the values of a rank's part of a parameter."""


class Held(NamedTuple):
    """A parameter of this rank's part of the model, and its place in the whole parameter."""

    parameter: nn.Parameter
    shard: Shard
