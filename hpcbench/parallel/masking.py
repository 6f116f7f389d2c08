"""Interface between the engine and a feature that keeps some weights at zero."""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from hpcbench.parallel.pieces import Piece


class Masking(Protocol):
    """A mask that keeps some weights at zero. The mask sets `Piece.packing`, so that messages omit the zeros."""

    def is_due(self, updates: int) -> bool:
        """Return whether the zeros are selected again after `updates` updates."""

    def renew(self, updates: int) -> None:
        """Select the zeros after `updates` updates (a collective call)."""

    def apply(self, piece: Piece) -> None:
        """Set masked master weights and moments of a piece to zero."""

    def save(self) -> dict[str, Tensor]:
        """Return the masks for a checkpoint, keyed by parameter name."""

    def load(self, saved: dict[str, Tensor]) -> None:
        """Load masks that were saved with `save` (a collective call)."""


MakeMasking = Callable[[Sequence[Piece], bool], Masking]
"""Function that creates the masks of a rank's pieces. The flag states whether replicas update different pieces."""
