"""Rows that are sent between the ranks of a group and back: a differentiable all-to-all.

Rows that go to the experts in the forward pass return as gradients in the backward pass, with the same counts and
senders and receivers exchanged. Autograd does not see a channel's codec (straight-through).

A move has two halves, `start` and `arrive`. Computation between them overlaps with the transfer. Autograd runs the
halves backwards: gradients are sent at the second half and received at the first one, after the backward pass of the
computation between them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.work import Work
from hpcbench.parallel.buffers import Buffer, from_buffer, room, to_buffer


class Counts(NamedTuple):
    """Rows to each rank of the group, and rows from each rank."""

    sends: Sequence[int]
    receives: Sequence[int]

    @property
    def back(self) -> "Counts":
        """The counts of the way back."""
        return Counts(self.receives, self.sends)


class Way(NamedTuple):
    """The group that rows are sent over, with the channels of values and of gradients."""

    group: Group
    forward: Channel
    backward: Channel
    background: bool
    """Whether rows move while the rank computes."""


class Move:
    """One move of rows [n, h], forward and then backward."""

    def __init__(self, way: Way, counts: Counts) -> None:
        self.way, self.counts = way, counts
        self._sent: Buffer = None
        self._coming: tuple[Buffer, Work] | None = None

    def begin(self, x: Tensor, counts: Counts, channel: Channel) -> None:
        """Send rows."""
        width = x.shape[1]
        self._sent = to_buffer(x)  # must live until the message has left
        coming = room((sum(counts.receives), width), like=x)
        elements = tuple([rows * width for rows in side] for side in counts)
        work = self.way.group.all_to_all(
            self._sent.reshape(-1),
            coming.reshape(-1),
            (elements[0], elements[1]),
            channel=channel.describe((-1, width)),
        )
        self._coming = coming, work.in_background() if self.way.background else work

    def end(self, like: Tensor) -> Tensor:
        """Wait for the rows that come."""
        assert self._coming is not None
        coming, work = self._coming
        work.wait()
        self._sent = self._coming = None
        return from_buffer(coming, like)


class _Start(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, move: Move) -> Tensor:
        ctx.move = move
        ctx.like = x.new_empty(0)
        move.begin(x, move.counts, move.way.forward)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.move.end(ctx.like), None


class _Arrive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, stand_in: Tensor, move: Move) -> Tensor:
        ctx.move = move
        return move.end(stand_in)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        move, gradient = ctx.move, gradients[0]
        move.begin(gradient, move.counts.back, move.way.backward)
        return gradient.new_zeros(()), None


def start(x: Tensor, way: Way, counts: Counts) -> tuple[Tensor, Move]:
    """Send rows [n, h]. Return the arguments of `arrive`: a scalar that stands for the rows, and the move."""
    move = Move(way, counts)
    stand_in: Tensor = _Start.apply(x, move)  # type: ignore[no-untyped-call]
    return stand_in, move


def arrive(stand_in: Tensor, move: Move) -> Tensor:
    """Wait for the received rows, sorted by sender."""
    rows: Tensor = _Arrive.apply(stand_in, move)  # type: ignore[no-untyped-call]
    return rows
