"""Sequence parallelism (arXiv 2205.05198, section 4.2.2).

Between tensor-parallel regions, each rank holds a part of the positions. An all-gather before a region and a
reduce-scatter after the region replace the all-reduce and together send the same number of bytes. Operations between
regions compute and store 1/t of the values. For norms, biases of row layers and learned positions, the gradients on a
rank are sums over the rank's own positions. `DataParallel` completes these sums once per step. A column layer keeps the
gathered input for its backward pass, whereas the paper gathers the input again.

Shapes: b samples, s positions, t ranks. t divides s.
"""

from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.contract.shards import cut_evenly
from hpcbench.parallel.buffers import from_buffer, room, to_buffer


def all_gather(x: Tensor, group: Group, channel: Channel) -> Tensor:
    """Gather all positions, in rank order: [b, s/t, ...] -> [b, s, ...]. The result is identical on all ranks."""
    if group.size == 1:
        return x.view_as(x)
    b, held, *inner = x.shape
    gathered = room((group.size, b, held, *inner), like=x)  # [t, b, s/t, ...]
    group.all_gather(to_buffer(x).reshape(-1), gathered.reshape(-1), channel=channel.describe(x.shape)).wait()
    return from_buffer(gathered, x).transpose(0, 1).reshape(b, group.size * held, *inner)


def reduce_scatter(x: Tensor, group: Group, channel: Channel) -> Tensor:
    """Sum over the group, and return the sums at this rank's positions: [b, s, ...] -> [b, s/t, ...]."""
    if group.size == 1:
        return x.view_as(x)
    b, s, *inner = x.shape
    by_owner = to_buffer(x.view(b, group.size, s // group.size, *inner).transpose(0, 1))  # [t, b, s/t, ...]
    summed = room(by_owner.shape[1:], like=x)
    group.reduce_scatter(by_owner.reshape(-1), summed.reshape(-1), channel=channel.describe(by_owner.shape)).wait()
    return from_buffer(summed, x)


def select_positions(positions: Tensor, group: Group) -> Tensor:
    """Select the positions that this rank holds: [s] -> [s/t]."""
    return positions[cut_evenly(len(positions), group.size)[group.rank]]
