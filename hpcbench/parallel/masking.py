"""The interface between the engine and a feature that keeps some weights at zero."""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from hpcbench.parallel.pieces import Piece


class Masking(Protocol):
    """A mask that keeps some weights at zero. It sets `Piece.packing`, so that messages leave them out."""

    def is_due(self, updates: int) -> bool:
        """Return whether weights are chosen again after this number of updates."""

    def renew(self, updates: int) -> None:
        """Choose the weights after this number of updates (a collective call)."""

    def apply(self, piece: Piece) -> None:
        """Set masked master weights and moments of a piece to zero."""

    def save(self) -> dict[str, Tensor]:
        """Return the masks by parameter name, for a checkpoint."""

    def load(self, saved: dict[str, Tensor]) -> None:
        """Load the masks of `save` (a collective call)."""


MakeMasking = Callable[[Sequence[Piece], bool], Masking]
"""Function that makes the masks of a rank's pieces. The flag: whether replicas update different pieces of a bucket."""
