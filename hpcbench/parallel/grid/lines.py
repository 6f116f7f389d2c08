"""Lines of ranks along the axes of a tensor grid, and the channels of the lines."""

from typing import NamedTuple

import torch
from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.policy import Policy
from hpcbench.contract.grid import ActivationCuts, Axes, ExtraCut, carries_weights
from hpcbench.contract.shards import cut_evenly
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.mesh import Mesh


class GridLine(NamedTuple):
    """The ranks along an axis, with the channel for one kind of traffic."""

    group: Group
    channel: Channel
    overlap: bool
    """Whether communication overlaps with computation."""


class Lines:
    """The lines of ranks that contain a given rank.

    Parameters
    ----------
    mesh
        Mesh whose tensor-parallel ranks form the grid.
    policy
        Policy that provides the channels of each axis.
    overlap
        Whether communication overlaps with computation.

    Attributes
    ----------
    grid : Grid
        The tensor grid, which defines how matrices are cut.
    """

    def __init__(self, mesh: Mesh, policy: Policy, *, overlap: bool) -> None:
        self.grid = mesh.grid
        self._mesh, self._policy, self._overlap = mesh, policy, overlap
        self._rank = mesh.tp.rank
        for axis in self.grid.axes:  # all pipeline stages have the same channels
            self.forward(axis)
            self.backward(axis)
        for rows in {self.grid.inner.rows, self.grid.stream.rows}:
            self.exact(rows, Phase.FORWARD)
        for columns in {self.grid.inner.columns, self.grid.stream.columns}:
            self.exact(columns, Phase.FORWARD)
            self.exact(columns, Phase.BACKWARD)

    def forward(self, axis: str) -> GridLine:
        """Return the line for the activations or weights that are sent along the axis.

        If the backward pass needs these tensors again, it uses the same line.
        """
        kind = MessageKind.PARAM if carries_weights(axis) else MessageKind.ACT
        return self._line((axis,), Dimension.TP, Phase.FORWARD, kind)

    def backward(self, axis: str) -> GridLine:
        """Return the line for gradients of activations or weights."""
        return self._line((axis,), Dimension.TP, Phase.BACKWARD, MessageKind.GRAD)

    def exact(self, axes: Axes, phase: Phase) -> GridLine:
        """Return the line for statistics, along one or more axes."""
        return self._line(axes, Dimension.EXACT, phase, MessageKind.ACT if phase is Phase.FORWARD else MessageKind.GRAD)

    def there(self, move: ExtraCut | None) -> GridLine | None:
        """Return the line for an operand or a result of the forward pass."""
        return self.forward(move.axis) if move else None

    def back(self, move: ExtraCut | None) -> GridLine | None:
        """Return the line for a gradient."""
        return self.backward(move.axis) if move else None

    def select_rows(self, x: Tensor, axes: Axes) -> Tensor:
        """Select this rank's rows of a tensor that all ranks hold completely. The rows are divided along the axes."""
        return x[cut_evenly(len(x), self.grid.count(axes))[self.index(axes)]]

    def index(self, axes: Axes) -> int:
        """Return the index of the rank's piece of a dim that these axes cut."""
        return self.grid.index(self._rank, axes)

    def part(self, parameter: Tensor, cuts: tuple[Axes, ...]) -> torch.nn.Parameter:
        """Create an uninitialized parameter with the shape of the rank's part."""
        shape = [size // self.grid.count(axes) for size, axes in zip(parameter.shape, cuts, strict=True)]
        return torch.nn.Parameter(torch.empty(shape, device="meta"))

    def _line(self, axes: Axes, dimension: Dimension, phase: Phase, kind: MessageKind) -> GridLine:
        return GridLine(
            self._mesh.over(axes), self._policy.channel(dimension, phase, kind, "".join(axes)), self._overlap
        )


def laid(x: Tensor, spread: ActivationCuts) -> Tensor:
    """Annotate `x` with the cuts of its rows and columns, and return `x`."""
    x.spread = spread  # type: ignore[attr-defined]
    return x


def check(x: Tensor, expected: ActivationCuts, reader: str) -> None:
    """Check that annotated activations have the cuts that the next layer expects.

    Raises
    ------
    ValueError
        The cuts differ, because a layer has the wrong role in the model's table.
    """
    spread = getattr(x, "spread", expected)
    if spread != expected:
        raise ValueError(f"{reader} expects rows split over {expected.rows}, but gets rows split over {spread.rows}")
