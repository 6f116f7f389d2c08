"""Two methods of tensor parallelism: in one dimension, or on a tensor grid.

Both methods split a model according to the same table of layers.
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
        partial.
    """

    spread: bool

    def split(self, plain: nn.Module, word: str) -> nn.Module:
        """Return the parallel replacement of a layer, given the role of the layer in the model's table."""

    def link(self, layers: list[nn.Module]) -> None:
        """Link the layers of a block in the order of use."""

    def stream_shape(self, samples: int, positions: int, hidden: int) -> tuple[int, int, int]:
        """Return the shape of the rank's part of the residual stream."""

    def loss(self, plain: Loss, vocab: int) -> Loss:
        """Return the loss function, which takes the logits of the head and all targets."""


class InOneDimension:
    """Tensor parallelism along one dim of each weight (arXiv 1909.08053), with or without sequence parallelism."""

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
        """Return the column, row or vocabulary layer that replaces a layer."""
        make = self._layers.get(word)
        return make(plain, self._border) if make and self._group.size > 1 else plain

    def link(self, layers: list[nn.Module]) -> None:
        """Do nothing, because the layers do not gather weights."""

    def stream_shape(self, samples: int, positions: int, hidden: int) -> tuple[int, int, int]:
        """Return the shape of the rank's part of the residual stream."""
        return samples, positions // self._group.size if self.spread else positions, hidden

    def loss(self, plain: Loss, vocab: int) -> Loss:
        """Return the loss function for logits that are split along the vocabulary."""
        return split_loss(plain, vocab=vocab, group=self._group, policy=self._policy)


class OnGrid:
    """Tensor parallelism in two or more dimensions, which distributes weights, activations and saved tensors."""

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
        """Return the grid layer that replaces a layer."""
        return self._layers[word](plain, word, self._lines)

    def link(self, layers: list[nn.Module]) -> None:
        """Make each linear layer gather the weight of the next layer if overlap is enabled."""
        if self._overlap:
            in_turn([layer for layer in layers if isinstance(layer, GridLinear)])

    def stream_shape(self, samples: int, positions: int, hidden: int) -> tuple[int, int, int]:
        """Return the shape of the rank's part of the residual stream."""
        grid = self._lines.grid
        return samples // grid.count(grid.stream.rows), positions, hidden // grid.count(grid.stream.columns)

    def loss(self, plain: Loss, vocab: int) -> Loss:
        """Return the loss function for logits that the grid cuts along samples and vocabulary."""
        return grid_loss(self._lines)


def tensors_of(mesh: Mesh, policy: Policy, *, by_positions: bool, overlap: bool) -> Tensors:
    """Create the tensor-parallel method that the layout of the mesh selects."""
    if mesh.grid.mode == "1d" or mesh.tp.size == 1:
        return InOneDimension(mesh.tp, policy, by_positions=by_positions)
    return OnGrid(mesh, policy, overlap=overlap)
