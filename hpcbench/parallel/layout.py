"""The sizes of the parallel dimensions."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Sizes of the mesh's axes."""

    dp: int = 1
    tp: int = 1
    pp: int = 1

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """(pp, dp, tp) of a rank: the tensor axis is the fastest, so that it stays inside a node."""
        return rank // (self.tp * self.dp), rank // self.tp % self.dp, rank % self.tp
