"""The ways that the embedding's gradient took in timed steps, summed over all ranks."""

from typing import Any

from hpcbench.comm.channel import Channel
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.exact import gather
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.sparse.reduction import Taken


class RowCounts:
    """Counts for the log.

    Parameters
    ----------
    engine
        Reduces the gradients.
    mesh
        Mesh of the ranks.
    """

    def __init__(self, engine: DataParallel, mesh: Mesh) -> None:
        self._engine, self._mesh = engine, mesh

    def forget(self) -> None:
        """Start counting anew."""
        if self._engine.by_rows:
            self._engine.by_rows.taken = Taken()

    def report(self, exact: Channel) -> dict[str, Any] | None:
        """The fields of the log's event, the same on all ranks; None where nothing may travel by rows.

        This is a collective call.
        """
        own = [0.0] * 6
        if by_rows := self._engine.by_rows:
            taken = by_rows.taken
            piece = next(piece for piece in self._engine.pieces if piece.bucket.by_rows)
            ways = by_rows.ways(piece)
            once = float(self._mesh.dp.rank == 0)  # replicas took the same ways
            own = [
                *(once * taken.reductions, once * taken.by_rows, once * taken.saved_bytes, once * ways.switch_density),
                *(float(taken.touched), float(taken.reductions * ways.rows)),
            ]
        rows = gather(self._mesh.world, own, exact)
        reductions, by_rows_taken, saved, _, touched, held = map(sum, zip(*rows, strict=True))
        if not reductions:
            return None
        return {
            "switch_density": rows[0][3],
            "density": touched / held,
            "reductions": round(reductions),
            "by_rows": round(by_rows_taken),
            "saved_bytes": round(saved),
        }
