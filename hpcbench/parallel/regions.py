"""Boundaries of tensor-parallel regions: autograd functions that convert between residual stream and region.

Two operations define the stream between regions. The first operation computes the input of a region from the stream,
and the second operation computes the stream from the partial sums of a region. `enter` uses the first operation in the
forward pass and the second in the backward pass. `leave` uses the operations in the opposite order. `enter` and `leave`
are the operators f and g of arXiv 1909.08053, section 3, and g and g-bar of arXiv 2205.05198, section 4.2.2. Autograd
ignores the codec of a channel and treats decoded values as exact (straight-through).
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
from hpcbench.contract.traffic import Dimension, MessageKind, Phase
from hpcbench.parallel import sequence
from hpcbench.parallel.buffers import from_buffer, to_buffer

Move = Callable[[Tensor, Group, Channel], Tensor]


def all_reduce(x: Tensor, group: Group, channel: Channel, op: MPI.Op = MPI.SUM) -> Tensor:
    """Reduce `x` over the group with `op` (by default a sum), and return a new tensor."""
    if group.size == 1 or not x.numel():
        return x
    buffer = to_buffer(x.clone())
    group.all_reduce(buffer.reshape(-1), channel=channel.describe(x.shape), op=op).wait()
    return from_buffer(buffer, x)


def same(x: Tensor, group: Group, channel: Channel) -> Tensor:
    """Return `x` without communication."""
    return x.view_as(x)


class ResidualLayout(NamedTuple):
    """Distribution of the residual stream between regions."""

    dimension: Dimension
    """Parallel dimension of the traffic."""
    expand: Move
    """Function that computes the input of a region from the stream. The input is identical on all ranks."""
    contract: Move
    """Function that computes the stream from the partial sums of all ranks."""
    spread: bool
    """Whether each rank holds only its own positions, [b, s/t, h], instead of all positions, [b, s, h]."""


WHOLE = ResidualLayout(Dimension.TP, same, all_reduce, spread=False)
"""Residual stream that is replicated on all ranks of the group."""

SEQUENCE = ResidualLayout(Dimension.SP, sequence.all_gather, sequence.reduce_scatter, spread=True)
"""Residual stream of sequence parallelism. Rank i holds the i-th part of the positions."""


@dataclass(frozen=True)
class Border:
    """Boundary between the residual stream and the layers that a tensor-parallel group splits.

    Attributes
    ----------
    group
        Group of the ranks that hold the parts.
    stream
        Layout of the stream outside the region.
    forward, backward
        Channels of activations and of activation gradients.
    """

    group: Group
    stream: ResidualLayout
    forward: Channel
    backward: Channel

    @classmethod
    def of(cls, group: Group, stream: ResidualLayout, policy: Policy) -> "Border":
        """Create the boundary of a stream, with the channels of the policy."""
        forward = policy.channel(stream.dimension, Phase.FORWARD, MessageKind.ACT)
        return cls(group, stream, forward, policy.channel(stream.dimension, Phase.BACKWARD, MessageKind.GRAD))

    def select_positions(self, positions: Tensor) -> Tensor:
        """Select the entries of this rank's positions: [s] -> [s] or [s/t]."""
        return sequence.select_positions(positions, self.group) if self.stream.spread else positions


class _Cross(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, border: Border, there: Move, back: Move) -> Tensor:
        ctx.border, ctx.back = border, back
        return there(x, border.group, border.forward)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.back(gradients[0], ctx.border.group, ctx.border.backward), None, None, None


def enter(x: Tensor, border: Border) -> Tensor:
    """Convert the residual stream, [b, s, h] or [b, s/t, h], to the input of a region, [b, s, h].

    The backward pass sums the gradients over the ranks.
    """
    return _cross(x, border, border.stream.expand, border.stream.contract)


def leave(x: Tensor, border: Border) -> Tensor:
    """Sum the results of all ranks, [b, s, h], and convert the sum to the residual stream (the inverse of `enter`)."""
    return _cross(x, border, border.stream.contract, border.stream.expand)


def _cross(x: Tensor, border: Border, there: Move, back: Move) -> Tensor:
    y: Tensor = _Cross.apply(x, border, there, back)  # type: ignore[no-untyped-call]
    return y
