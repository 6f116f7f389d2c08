"""Consistency check of replicas: their weights could differ after a faulty lossy collective."""

from collections.abc import Callable
from functools import partial

from hpcbench.comm.group import Group
from hpcbench.parallel import exact
from hpcbench.parallel.sharding import Shard, Tied
from hpcbench.train.trainer import Trainer


def replicas_agree(trainer: Trainer) -> bool:
    """Return whether the weights of all replicas are bitwise identical (a collective call).

    All weights are compared between data-parallel replicas. Replicated weights are also compared along the axes of the
    tensor grid, and tied weights between the first and the last stage. All ranks return the same result.
    """
    mesh, channel = trainer.mesh, trainer.policy.exact

    def agree_over(group: Group, compared: Callable[[Shard], bool]) -> bool:
        weights = (values for slot, values in trainer.data_parallel.weights() if compared(slot.shard))
        return exact.replicas_agree(group, weights, channel)

    agree = True
    for ep in sorted({1, trainer.run.layout.ep}):
        agree &= agree_over(mesh.replicas(ep), partial(_is_held_so, ep=ep))
    for axes in sorted(mesh.grid.sums):
        agree &= agree_over(mesh.over(axes), partial(Shard.is_replicated_along, axes=axes))
    agree &= agree_over(mesh.ends, lambda shard: shard.tied is not Tied.NO)
    (votes,) = exact.exact_sum(mesh.world, [float(agree)], channel)
    return round(votes) == mesh.world.size


def _is_held_so(shard: Shard, ep: int) -> bool:
    """Return whether the parameter belongs to experts that are distributed over `ep` ranks."""
    return shard.ep == ep
