"""What part of a global parameter a rank holds.

Initial weights, the gradient norm, parity tests and parameter counts all read this one record.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hpcbench.contract.shards import shards


class Tied(Enum):
    """Whether a weight is tied to one on another stage."""

    NO = "no"
    OWNER = "owner"
    COPY = "copy"


@dataclass(frozen=True)
class Shard:
    """The part of a parameter that this rank holds.

    Attributes
    ----------
    name
        The parameter's name in the whole model.
    shape
        Its shape there.
    dim
        The dim that tensor parallelism cuts; None when every rank of the group holds the whole.
    index, count
        This rank's piece of how many.
    tied
        The first stage owns a tied weight, the last one has a copy.
    partial
        All ranks of the tensor group hold the same, and each computes a summand of its gradient (sequence parallelism).
    """

    name: str
    shape: tuple[int, ...]
    dim: int | None = None
    index: int = 0
    count: int = 1
    tied: Tied = Tied.NO
    partial: bool = False

    @property
    def held(self) -> tuple[slice, ...]:
        """Slices of the whole parameter."""
        whole = [slice(0, size) for size in self.shape]
        if self.dim is not None:
            whole[self.dim] = shards(self.shape[self.dim], self.count)[self.index]
        return tuple(whole)

    @property
    def local_shape(self) -> tuple[int, ...]:
        return tuple(part.stop - part.start for part in self.held)

    @property
    def counts_in_norm(self) -> bool:
        """Whether this rank's copy is the one that the global gradient norm counts."""
        return self.tied is not Tied.COPY and (self.dim is not None or self.index == 0)


Initial = Callable[[Shard, torch.dtype], Tensor]
"""Gives the values of the part of a parameter that a rank holds."""


class Held(NamedTuple):
    """A parameter of this rank's part of the model, and what it is a part of."""

    parameter: nn.Parameter
    shard: Shard
