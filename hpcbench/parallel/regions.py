"""Where the residual stream enters and leaves a tensor-parallel region, as autograd functions.

How the stream lies between regions is data: two moves, one that gives a rank what the region reads, and one that makes
the stream of the partial sums that the region leaves. Entering makes the first move forward and the second backward,
leaving is the mirror image (arXiv 1909.08053, section 3: the operators f and g; arXiv 2205.05198, section 4.2.2: g and
g-bar). A codec in a channel is invisible to autograd: the gradient passes as if the decoded values were the exact ones
(straight-through).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from mpi4py import MPI
from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.policy import Policy
from hpcbench.contract.traffic import Dimension, Kind, Phase
from hpcbench.parallel import sequence
from hpcbench.parallel.buffers import from_buffer, to_buffer

Move = Callable[[Tensor, Group, Channel], Tensor]


def all_reduce(x: Tensor, group: Group, channel: Channel, op: MPI.Op = MPI.SUM) -> Tensor:
    """The sum of `x` over the group, or what else `op` says, in a new tensor."""
    if group.size == 1:
        return x
    buffer = to_buffer(x.clone())
    group.all_reduce(buffer.reshape(-1), channel=channel, op=op).wait()
    return from_buffer(buffer, x)


def same(x: Tensor, group: Group, channel: Channel) -> Tensor:
    """`x` itself: nothing is sent."""
    return x.view_as(x)


class Stream(NamedTuple):
    """How the residual stream lies between regions."""

    dimension: Dimension
    """Of its traffic."""
    expand: Move
    """From the stream to what a region reads, on every rank the same."""
    contract: Move
    """From the ranks' partial sums to the stream."""
    spread: bool
    """Whether each rank holds its own positions [b, s/t, h], or all of them [b, s, h]."""


WHOLE = Stream(Dimension.TP, same, all_reduce, spread=False)
"""Every rank of the group holds all of it."""

SEQUENCE = Stream(Dimension.SP, sequence.all_gather, sequence.reduce_scatter, spread=True)
"""Sequence parallelism: rank i holds the i-th part of the positions."""


@dataclass(frozen=True)
class Border:
    """Between the residual stream and the layers that a tensor-parallel group has split.

    Attributes
    ----------
    group
        The ranks that hold the parts.
    stream
        How the stream lies outside.
    forward, backward
        Channels of activations and of their gradients.
    """

    group: Group
    stream: Stream
    forward: Channel
    backward: Channel

    @classmethod
    def of(cls, group: Group, stream: Stream, policy: Policy) -> "Border":
        """With the channels that the policy has for such a stream."""
        forward = policy.channel(stream.dimension, Phase.FORWARD, Kind.ACT)
        return cls(group, stream, forward, policy.channel(stream.dimension, Phase.BACKWARD, Kind.GRAD))

    def own(self, positions: Tensor) -> Tensor:
        """Of something with one value a position, shape [s], those that this rank holds of the stream."""
        return sequence.own(positions, self.group) if self.stream.spread else positions


class _Cross(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, border: Border, there: Move, back: Move) -> Tensor:
        ctx.border, ctx.back = border, back
        return there(x, border.group, border.forward)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.back(gradients[0], ctx.border.group, ctx.border.backward), None, None, None


def enter(x: Tensor, border: Border) -> Tensor:
    """The stream, [b, s, h] or [b, s/t, h], to what a region reads, [b, s, h]; backward the gradients are summed."""
    return _cross(x, border, border.stream.expand, border.stream.contract)


def leave(x: Tensor, border: Border) -> Tensor:
    """The sum over the group of what its ranks computed, [b, s, h], as the stream; the mirror image of `enter`."""
    return _cross(x, border, border.stream.contract, border.stream.expand)


def _cross(x: Tensor, border: Border, there: Move, back: Move) -> Tensor:
    y: Tensor = _Cross.apply(x, border, there, back)  # type: ignore[no-untyped-call]
    return y
