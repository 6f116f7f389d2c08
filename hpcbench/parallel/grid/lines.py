"""The lines of ranks along each axis of a tensor grid, and the channels of what travels along them."""

from typing import NamedTuple

import torch
from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.policy import Policy
from hpcbench.contract.grid import Axes, Move, Spread, carries_weights
from hpcbench.contract.shards import shards
from hpcbench.contract.traffic import Dimension, Kind, Phase
from hpcbench.parallel.mesh import Mesh


class Line(NamedTuple):
    """The ranks along an axis, and one kind of what they send each other."""

    group: Group
    channel: Channel
    overlap: bool
    """Messages move while the rank computes."""


class Lines:
    """Of one rank.

    Parameters
    ----------
    mesh
        Of which the tensor-parallel ranks are the grid.
    policy
        Gives the channels, an axis each.
    overlap
        Whether messages move while the rank computes.

    Attributes
    ----------
    grid : Grid
        What lies how.
    """

    def __init__(self, mesh: Mesh, policy: Policy, *, overlap: bool) -> None:
        self.grid = mesh.grid
        self._mesh, self._policy, self._overlap = mesh, policy, overlap
        self._rank = mesh.tp.rank
        for axis in self.grid.axes:  # all stages of a pipeline have the same channels
            self.forward(axis)
            self.backward(axis)
        for rows in {self.grid.inner.rows, self.grid.stream.rows}:
            self.exact(rows, Phase.FORWARD)
        for columns in {self.grid.inner.columns, self.grid.stream.columns}:
            self.exact(columns, Phase.FORWARD)
            self.exact(columns, Phase.BACKWARD)

    def forward(self, axis: str) -> Line:
        """Of activations or weights, whichever travel over the axis: in both passes, where the backward pass needs
        them again."""
        kind = Kind.PARAM if carries_weights(axis) else Kind.ACT
        return self._line((axis,), Dimension.TP, Phase.FORWARD, kind)

    def backward(self, axis: str) -> Line:
        """Of the gradients of either."""
        return self._line((axis,), Dimension.TP, Phase.BACKWARD, Kind.GRAD)

    def exact(self, axes: Axes, phase: Phase) -> Line:
        """Of statistics, over one axis or more."""
        return self._line(axes, Dimension.EXACT, phase, Kind.ACT if phase is Phase.FORWARD else Kind.GRAD)

    def there(self, move: Move | None) -> Line | None:
        """Along which an operand or a result of the forward pass moves."""
        return self.forward(move.axis) if move else None

    def back(self, move: Move | None) -> Line | None:
        """Along which a gradient moves."""
        return self.backward(move.axis) if move else None

    def own(self, x: Tensor, axes: Axes) -> Tensor:
        """The rank's rows of something that all ranks know whole, cut by these axes."""
        return x[shards(len(x), self.grid.count(axes))[self.index(axes)]]

    def index(self, axes: Axes) -> int:
        """Which of the pieces that these axes cut a dim into is the rank's."""
        return self.grid.index(self._rank, axes)

    def part(self, whole: Tensor, cuts: tuple[Axes, ...]) -> torch.nn.Parameter:
        """A parameter with the shape of the rank's part of one, without values."""
        shape = [size // self.grid.count(axes) for size, axes in zip(whole.shape, cuts, strict=True)]
        return torch.nn.Parameter(torch.empty(shape, device="meta"))

    def _line(self, axes: Axes, dimension: Dimension, phase: Phase, kind: Kind) -> Line:
        return Line(self._mesh.over(axes), self._policy.channel(dimension, phase, kind, "".join(axes)), self._overlap)


def laid(x: Tensor, spread: Spread) -> Tensor:
    """`x`, marked with how it lies."""
    x.spread = spread  # type: ignore[attr-defined]
    return x


def check(x: Tensor, expected: Spread, reader: str) -> None:
    """Whether activations lie as their reader expects, where their writer has marked them.

    Raises
    ------
    ValueError
        They lie otherwise: a layer of the model's table is called by the wrong word.
    """
    found = getattr(x, "spread", expected)
    if found != expected:
        raise ValueError(f"{reader} reads rows cut by {expected.rows}, and is given rows cut by {found.rows}")
