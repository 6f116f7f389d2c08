"""Ring exchange of keys, values and their gradients. Communication overlaps with the computation of blocks."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.policy import Policy
from hpcbench.comm.relay import Relay
from hpcbench.comm.work import Work
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel.buffers import Buffer, from_buffer, room, to_buffer, wire_dtype


@dataclass(frozen=True)
class Sharers:
    """The ranks among which the positions of samples are divided, with their communication channels.

    Attributes
    ----------
    group
        Group of these ranks.
    forward, backward
        Channels of activations (queries, keys, values and results) and of the gradients of these activations.
    overlap
        Whether communication overlaps with the computation of blocks.
    """

    group: Group
    forward: Channel
    backward: Channel
    overlap: bool

    @classmethod
    def of(cls, group: Group, policy: Policy, *, overlap: bool) -> "Sharers":
        """Create an instance with the channels of the policy."""
        forward = policy.channel(Dimension.CP, Phase.FORWARD, MessageKind.ACT)
        return cls(group, forward, policy.channel(Dimension.CP, Phase.BACKWARD, MessageKind.GRAD), overlap)

    def begun(self, work: Work) -> Work:
        """Return the started exchange, which overlaps with computation if `overlap` is set."""
        return work.in_background() if self.overlap else work


def go_round(block_here: Tensor, ranks: Sharers) -> Iterator[tuple[int, Tensor]]:
    """Yield the rank and the values of every block, starting with this rank's own block and the previous rank's block.

    While the caller processes a block, the block is forwarded and the next block is received. There are two buffers, so
    a block is overwritten when the caller requests the second block after it.
    """
    group = ranks.group
    relay = Relay()
    leaving, block = to_buffer(block_here).reshape(-1), block_here
    rooms = [room(block_here.shape, like=block_here) for _ in range(min(2, group.size - 1))]
    for hop in range(group.size - 1):
        into = rooms[hop % 2]
        work = group.pass_on(
            leaving, into.reshape(-1), relay, tag=hop % 2, channel=ranks.forward.describe(block_here.shape)
        )
        if ranks.overlap:
            yield (group.rank - hop) % group.size, block
            work.wait()
        else:
            work.wait()
            yield (group.rank - hop) % group.size, block
        leaving, block = into.reshape(-1), from_buffer(into, block_here)
    relay.end()
    yield (group.rank + 1) % group.size, block


class Homeward:
    """Sums of the blocks' gradients, which travel around the ring to the owners of the blocks.

    Every rank adds its contribution.

    The ranks process the blocks in the order of `go_round`. The contribution to a rank's own block is not sent. A sum
    makes the same number of hops as its block and arrives at the owner of the block.

    Parameters
    ----------
    ranks
        The ranks of the ring.
    like
        A block with the shape and dtype of all blocks.
    """

    def __init__(self, ranks: Sharers, like: Tensor) -> None:
        self._ranks, self._like = ranks, like
        self._wide = wire_dtype(like.dtype)
        self._own: Tensor | None = None
        self._coming: tuple[Buffer, Work] | None = None
        self._hops = 0

    def add(self, summand: Tensor) -> None:
        """Add this rank's contribution to the next block and forward the sum. The first block is the rank's own."""
        summand = summand.to(self._wide)
        if self._own is None:
            self._own = summand
            return
        total = self._with_what_came(summand)
        into = room(total.shape, like=total)
        work = self._ranks.group.shift(
            to_buffer(total).reshape(-1),
            into.reshape(-1),
            by=1,
            tag=2 + self._hops % 2,
            channel=self._ranks.backward.describe(total.shape),
        )
        self._hops += 1
        self._coming = into, self._ranks.begun(work)

    def _with_what_came(self, summand: Tensor) -> Tensor:
        if self._coming is None:
            return summand
        buffer, work = self._coming
        self._coming = None
        work.wait()
        return summand + from_buffer(buffer, summand)

    def at_home(self) -> Tensor:
        """Return the gradient of this rank's own block, in fp32 or better."""
        assert self._own is not None
        return self._with_what_came(self._own)
