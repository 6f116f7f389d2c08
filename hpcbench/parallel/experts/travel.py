"""Differentiable all-to-all of rows between the ranks of a group.

The backward pass sends the gradients of the rows in the opposite direction, with the same counts. Autograd ignores the
codec of a channel (straight-through).

A move has two halves, `start` and `arrive`. Computation between the halves overlaps with the transfer. Autograd runs
the halves in reverse order: gradients are sent in the backward pass of `arrive` and received in the backward pass of
`start`. The backward pass of the computation between the halves overlaps with this transfer.
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
    """Numbers of rows sent to and received from each rank of the group."""

    sends: Sequence[int]
    receives: Sequence[int]

    @property
    def back(self) -> "Counts":
        """Counts for the opposite direction."""
        return Counts(self.receives, self.sends)


class Way(NamedTuple):
    """The group in which rows are exchanged, with the channels of values and of gradients."""

    group: Group
    forward: Channel
    backward: Channel
    background: bool
    """Whether transfers overlap with computation."""


class Move:
    """An exchange of rows [n, h] in the forward pass, and of their gradients in the backward pass."""

    def __init__(self, way: Way, counts: Counts) -> None:
        self.way, self.counts = way, counts
        self._sent: Buffer = None
        self._coming: tuple[Buffer, Work] | None = None

    def begin(self, x: Tensor, counts: Counts, channel: Channel) -> None:
        """Start to send rows."""
        width = x.shape[1]
        self._sent = to_buffer(x)  # must stay alive until the message has been sent
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
        """Wait for the received rows."""
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
    """Start to send rows [n, h]. Return the arguments of `arrive`: a scalar placeholder for the rows, and the move."""
    move = Move(way, counts)
    stand_in: Tensor = _Start.apply(x, move)  # type: ignore[no-untyped-call]
    return stand_in, move


def arrive(stand_in: Tensor, move: Move) -> Tensor:
    """Wait for the received rows, sorted by sender."""
    rows: Tensor = _Arrive.apply(stand_in, move)  # type: ignore[no-untyped-call]
    return rows
