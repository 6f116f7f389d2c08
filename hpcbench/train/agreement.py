"""The check that replicas hold the same weights: a lossy collective may have given them different bytes."""

from collections.abc import Callable
from functools import partial

from hpcbench.comm.group import Group
from hpcbench.parallel import exact
from hpcbench.parallel.sharding import Shard, Tied
from hpcbench.train.trainer import Trainer


def replicas_agree(trainer: Trainer) -> bool:
    """Return whether all replicas hold the same bytes, the same on all ranks (a collective call).

    All weights are compared over their replicas, replicated weights along the axes of the tensor grid, and the two
    copies of a tied weight between the first and the last stage.
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
    """Return whether `ep` ranks hold different experts in the place of a parameter."""
    return shard.ep == ep
