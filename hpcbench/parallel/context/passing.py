"""What goes round the ring: keys and values on, and their gradients home. Messages move while a block is computed."""

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
    """The ranks that share the positions of samples, and how they exchange them.

    Attributes
    ----------
    group
        Their group.
    forward, backward
        Channels of queries, keys, values and results, and of their gradients.
    overlap
        Whether messages move while blocks are computed.
    """

    group: Group
    forward: Channel
    backward: Channel
    overlap: bool

    @classmethod
    def of(cls, group: Group, policy: Policy, *, overlap: bool) -> "Sharers":
        """The group with the policy's channels."""
        forward = policy.channel(Dimension.CP, Phase.FORWARD, MessageKind.ACT)
        return cls(group, forward, policy.channel(Dimension.CP, Phase.BACKWARD, MessageKind.GRAD), overlap)

    def begun(self, work: Work) -> Work:
        """An exchange that goes on beside the computation, if that is wanted."""
        return work.in_background() if self.overlap else work


def go_round(own: Tensor, ranks: Sharers) -> Iterator[tuple[int, Tensor]]:
    """Every rank's block, this rank's own first and then that of the rank before: its rank, and its values.

    While the caller works on a block, it is passed on, and the next one comes. Two buffers take turns, so that a block
    is gone when the next but one is asked for.
    """
    group = ranks.group
    relay = Relay()
    leaving, block = to_buffer(own).reshape(-1), own
    rooms = [room(own.shape, like=own) for _ in range(min(2, group.size - 1))]
    for hop in range(group.size - 1):
        into = rooms[hop % 2]
        work = group.pass_on(leaving, into.reshape(-1), relay, tag=hop % 2, channel=ranks.forward, made_of=own.shape)
        if ranks.overlap:
            yield (group.rank - hop) % group.size, block
            work.wait()
        else:
            work.wait()
            yield (group.rank - hop) % group.size, block
        leaving, block = into.reshape(-1), from_buffer(into, own)
    relay.end()
    yield (group.rank + 1) % group.size, block


class Homeward:
    """Gradients of blocks, which every rank adds its summand to, on their way round the ring to their owners.

    The ranks work on the blocks in the order of `go_round`. What a rank adds to its own block stays at home. So a sum
    makes as many hops as its block, and ends at home.

    Parameters
    ----------
    ranks
        The ring.
    like
        A block, for its shape and format.
    """

    def __init__(self, ranks: Sharers, like: Tensor) -> None:
        self._ranks, self._like = ranks, like
        self._wide = wire_dtype(like.dtype)
        self._own: Tensor | None = None
        self._coming: tuple[Buffer, Work] | None = None
        self._hops = 0

    def add(self, summand: Tensor) -> None:
        """Add this rank's summand for the next block, and send the sum on. The first block is the rank's own."""
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
            channel=self._ranks.backward,
            made_of=total.shape,
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
        """The gradient of this rank's own block, in fp32 or better."""
        assert self._own is not None
        return self._with_what_came(self._own)
