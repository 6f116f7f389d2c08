"""The two methods of tensor parallelism: in one dimension, or on a tensor grid.

A model is split in the same way by both.
"""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from hpcbench.comm.group import Group
from hpcbench.comm.policy import Policy
from hpcbench.parallel.grid.linear import GridLinear, in_turn
from hpcbench.parallel.grid.lines import Lines
from hpcbench.parallel.grid.loss import grid_loss
from hpcbench.parallel.grid.norm import GridNorm
from hpcbench.parallel.grid.vocabulary import GridPositions, GridVocabulary
from hpcbench.parallel.linear import ColumnLinear, RowLinear
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.regions import SEQUENCE, WHOLE, Border
from hpcbench.parallel.vocabulary import PositionEmbedding, VocabularyEmbedding, split_loss

Loss = Callable[[Tensor, Tensor], Tensor]


class Tensors(Protocol):
    """A method of tensor parallelism.

    Attributes
    ----------
    spread
        Whether ranks hold different parts of the residual stream, so that gradients of replicated parameters are
        summands.
    """

    spread: bool

    def split(self, plain: nn.Module, word: str) -> nn.Module:
        """Make the layer that replaces a plain one, which has this name in the model's table."""

    def link(self, layers: list[nn.Module]) -> None:
        """Link the layers of a block in the order of their use."""

    def stream_shape(self, samples: int, positions: int, hidden: int) -> tuple[int, int, int]:
        """Return the shape of the rank's part of the residual stream."""

    def loss(self, plain: Loss, vocab: int) -> Loss:
        """Return the loss function, which takes the logits of the head and all targets."""


class InOneDimension:
    """Tensor parallelism along one side of each weight (arXiv 1909.08053), with sequence parallelism or without."""

    def __init__(self, group: Group, policy: Policy, *, by_positions: bool) -> None:
        self._group, self._policy = group, policy
        self._border = Border.of(group, SEQUENCE if by_positions else WHOLE, policy)
        self.spread = by_positions
        self._layers: dict[str, Callable[..., nn.Module]] = {
            "column": ColumnLinear,
            "head": ColumnLinear,
            "row": RowLinear,
            "vocabulary": VocabularyEmbedding,
            "positions": PositionEmbedding,
        }

    def split(self, plain: nn.Module, word: str) -> nn.Module:
        """Make the column, row or vocabulary layer that replaces a plain one."""
        make = self._layers.get(word)
        return make(plain, self._border) if make and self._group.size > 1 else plain

    def link(self, layers: list[nn.Module]) -> None:
        """Do nothing: these layers gather no weights."""

    def stream_shape(self, samples: int, positions: int, hidden: int) -> tuple[int, int, int]:
        """Return the shape of the rank's part of the residual stream."""
        return samples, positions // self._group.size if self.spread else positions, hidden

    def loss(self, plain: Loss, vocab: int) -> Loss:
        """Return the loss function for logits that are split along the vocabulary."""
        return split_loss(plain, vocab=vocab, group=self._group, policy=self._policy)


class OnGrid:
    """Tensor parallelism in two dimensions or more: weights, activations and kept values are all spread."""

    spread = True

    def __init__(self, mesh: Mesh, policy: Policy, *, overlap: bool) -> None:
        self._lines = Lines(mesh, policy, overlap=overlap)
        self._overlap = overlap
        self._layers: dict[str, Callable[..., nn.Module]] = {
            "column": GridLinear,
            "head": GridLinear,
            "row": GridLinear,
            "vocabulary": GridVocabulary,
            "positions": GridPositions,
            "norm": GridNorm,
        }

    def split(self, plain: nn.Module, word: str) -> nn.Module:
        """Make the grid layer that replaces a plain one."""
        return self._layers[word](plain, word, self._lines)

    def link(self, layers: list[nn.Module]) -> None:
        """Let each linear layer gather the weight of the next one, if overlap is wanted."""
        if self._overlap:
            in_turn([layer for layer in layers if isinstance(layer, GridLinear)])

    def stream_shape(self, samples: int, positions: int, hidden: int) -> tuple[int, int, int]:
        """Return the shape of the rank's part of the residual stream."""
        grid = self._lines.grid
        return samples // grid.count(grid.stream.rows), positions, hidden // grid.count(grid.stream.columns)

    def loss(self, plain: Loss, vocab: int) -> Loss:
        """Make the loss of logits that the grid has cut by samples and vocabulary."""
        return grid_loss(self._lines)


def tensors_of(mesh: Mesh, policy: Policy, *, by_positions: bool, overlap: bool) -> Tensors:
    """Make the tensor parallelism of the mesh's layout. A grid of one rank needs none."""
    if mesh.grid.mode == "1d" or mesh.tp.size == 1:
        return InOneDimension(mesh.tp, policy, by_positions=by_positions)
    return OnGrid(mesh, policy, overlap=overlap)
