"""The two ways of tensor parallelism: in one dimension, or on a tensor grid. A model is split by either alike."""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

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
    """How tensor parallelism splits a model.

    Attributes
    ----------
    spread
        Whether ranks hold different parts of the residual stream, so that gradients of what they hold alike are
        summands.
    """

    spread: bool

    def split(self, plain: nn.Module, word: str) -> nn.Module:
        """The layer that takes the place of a plain one, which the model's table calls by this word."""

    def link(self, layers: list[nn.Module]) -> None:
        """These layers of a block are used one after the other."""

    def stream_shape(self, samples: int, positions: int, hidden: int) -> tuple[int, int, int]:
        """Of the rank's part of the residual stream."""

    def loss(self, plain: Loss, vocab: int) -> Loss:
        """The loss of logits as the head leaves them, and of all targets."""


class InOneDimension:
    """Along one side of each weight (arXiv 1909.08053), with sequence parallelism or without."""

    def __init__(self, mesh: Mesh, policy: Policy, *, by_positions: bool) -> None:
        self._group, self._policy = mesh.tp, policy
        self._border = Border.of(mesh.tp, SEQUENCE if by_positions else WHOLE, policy)
        self.spread = by_positions
        self._layers: dict[str, Callable[..., nn.Module]] = {
            "column": ColumnLinear,
            "head": ColumnLinear,
            "row": RowLinear,
            "vocabulary": VocabularyEmbedding,
            "positions": PositionEmbedding,
        }

    def split(self, plain: nn.Module, word: str) -> nn.Module:
        make = self._layers.get(word)
        return make(plain, self._border) if make and self._group.size > 1 else plain

    def link(self, layers: list[nn.Module]) -> None:
        pass

    def stream_shape(self, samples: int, positions: int, hidden: int) -> tuple[int, int, int]:
        return samples, positions // self._group.size if self.spread else positions, hidden

    def loss(self, plain: Loss, vocab: int) -> Loss:
        return split_loss(plain, vocab=vocab, group=self._group, policy=self._policy)


class OnGrid:
    """In two dimensions or more: weights, activations and what is kept of them are all spread."""

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
        return self._layers[word](plain, word, self._lines)

    def link(self, layers: list[nn.Module]) -> None:
        if self._overlap:
            in_turn([layer for layer in layers if isinstance(layer, GridLinear)])

    def stream_shape(self, samples: int, positions: int, hidden: int) -> tuple[int, int, int]:
        grid = self._lines.grid
        return samples // grid.count(grid.stream.rows), positions, hidden // grid.count(grid.stream.columns)

    def loss(self, plain: Loss, vocab: int) -> Loss:
        return grid_loss(self._lines)


def tensors_of(mesh: Mesh, policy: Policy, *, by_positions: bool, overlap: bool) -> Tensors:
    """The way that the mesh's layout asks for; a grid of one rank is none."""
    if mesh.grid.mode == "1d" or mesh.tp.size == 1:
        return InOneDimension(mesh, policy, by_positions=by_positions)
    return OnGrid(mesh, policy, overlap=overlap)
