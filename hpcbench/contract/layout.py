"""The sizes of the parallel dimensions."""

from dataclasses import dataclass, field

from hpcbench.comm.shards import shards


@dataclass(frozen=True)
class Layout:
    """Sizes of the mesh's axes, and how the pipeline cuts the model."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    chunks: int = 1
    """Parts of the model that each pipeline stage holds."""
    stages: list[int] = field(default_factory=list, hash=False)
    """Layers of each of the ``pp * chunks`` parts in the model's order; empty for as even as possible."""

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp

    @property
    def parts(self) -> int:
        """Parts that the pipeline cuts the model into; stage r holds parts r, r + pp, r + 2 pp ..."""
        return self.pp * self.chunks

    def fits(self, layers: int) -> bool:
        """Whether `stages` cuts so many layers into the layout's parts, with one at least in each."""
        return len(self.stages) == self.parts and sum(self.stages) == layers and min(self.stages) > 0

    def layers_of(self, layers: int) -> list[range]:
        """Which of the model's layers each part holds.

        Embedding and head weigh nothing here: the embedding costs a look-up, the head as much as ``V / (12 h)`` layers
        on the last part. Without `stages` the parts differ by one layer at most, the longer ones first; where the head
        weighs more than that, `stages` takes layers off the last part.

        Raises
        ------
        ValueError
            `stages` does not fit.
        """
        if not self.stages:
            return [range(piece.start, piece.stop) for piece in shards(layers, self.parts)]
        if not self.fits(layers):
            raise ValueError(f"layout.stages: {self.stages} are not the layers of {self.parts} parts, {layers} in all")
        ends = [sum(self.stages[: k + 1]) for k in range(self.parts)]
        return [range(end - count, end) for end, count in zip(ends, self.stages, strict=True)]

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """(pp, dp, tp) of a rank: the tensor axis is the fastest, so that it stays inside a node."""
        return rank // (self.tp * self.dp), rank // self.tp % self.dp, rank % self.tp
