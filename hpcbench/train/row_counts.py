"""Statistics of gradient reductions that send only touched embedding rows, summed over all ranks and timed steps."""

from typing import Any

from hpcbench.comm.channel import Channel
from hpcbench.comm.clock import Clock
from hpcbench.comm.policy import Policy
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.parallel.exact import gather
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.pieces import Piece
from hpcbench.parallel.sparse.measure import Switch, measure
from hpcbench.parallel.sparse.reduction import Taken


class RowCounts:
    """Statistics for the log about gradient reductions that send only touched rows.

    Parameters
    ----------
    engine
        Engine that reduces the gradients.
    mesh
        Mesh of the ranks.

    Attributes
    ----------
    switch : Switch or None
        Measured switch point, or None if it was not measured.
    """

    def __init__(self, engine: DataParallel, mesh: Mesh) -> None:
        self._engine, self._mesh = engine, mesh
        self.switch: Switch | None = None

    @property
    def _piece(self) -> Piece | None:
        """Piece of the embedding table, or None if no gradient of this rank may be sent as rows."""
        return next((piece for piece in self._engine.pieces if piece.bucket.by_rows and self._engine.by_rows), None)

    def measure(self, policy: Policy, clock: Clock) -> None:
        """Measure the switch point and apply it to the reduction. This is a collective call before the first step.

        The calls of this measurement are not counted, because the random bits of codecs depend on the number of calls.
        """
        calls = policy.calls()
        self.switch = measure(
            self._engine.by_rows, self._piece, world=self._mesh.world, exact=policy.exact, clock=clock
        )
        policy.load_calls(calls)

    def forget(self) -> None:
        """Reset all counts."""
        if self._engine.by_rows:
            self._engine.by_rows.taken = Taken()

    def report(self, exact: Channel) -> dict[str, Any] | None:
        """Return the fields of the log event, the same on all ranks. Return None if no gradient may be sent as rows.

        This is a collective call.
        """
        counts = [0.0] * 6
        if by_rows := self._engine.by_rows:
            taken = by_rows.taken
            assert self._piece is not None
            ways = by_rows.ways(self._piece)
            once = float(self._mesh.dp.rank == 0)  # all replicas selected the same methods
            counts = [
                *(once * taken.reductions, once * taken.by_rows, once * taken.saved_bytes, once * ways.switch_density),
                *(float(taken.touched), float(taken.reductions * ways.rows)),
            ]
        rows = gather(self._mesh.world, counts, exact)
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
