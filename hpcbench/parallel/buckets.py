"""Parameters and their gradients in flat buffers, so that one message carries many.

A bucket lies in memory as ``[parameters in order | padding]``; each parameter and its gradient are views into it. The
padding makes all data-parallel pieces equal.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from hpcbench.parallel.buffers import wire_dtype
from hpcbench.parallel.sharding import Shard, shard_of

ALIGNMENT = 16
"""Elements: pieces begin on a codec's block and on a cache line."""


@dataclass(frozen=True)
class Slot:
    """Where a parameter lies in its bucket."""

    parameter: nn.Parameter
    shard: Shard
    span: slice


class Bucket:
    """A run of parameters in one flat buffer.

    Parameters
    ----------
    parameters
        In the order in which they lie; their values move into the bucket.
    pieces
        The length is padded to a multiple of ``pieces * ALIGNMENT``.
    """

    def __init__(self, parameters: list[nn.Parameter], pieces: int) -> None:
        self.slots: list[Slot] = []
        start = 0
        for parameter in parameters:
            self.slots.append(Slot(parameter, shard_of(parameter), slice(start, start + parameter.numel())))
            start += parameter.numel()
        unit = pieces * ALIGNMENT
        like = parameters[0]
        self.values = torch.zeros(-(-start // unit) * unit, dtype=like.dtype, device=like.device)
        self.gradients = torch.zeros_like(self.values)
        for slot in self.slots:
            self.values[slot.span] = slot.parameter.detach().reshape(-1)
            slot.parameter.data = self.values[slot.span].view(slot.parameter.shape)
            slot.parameter.grad = self.gradients[slot.span].view(slot.parameter.shape)

    def parts(self, owned: slice) -> Iterator[tuple[Slot, slice]]:
        """Each parameter that reaches into the piece `owned`, with its elements counted from the piece's start."""
        for slot in self.slots:
            start, stop = max(slot.span.start, owned.start), min(slot.span.stop, owned.stop)
            if start < stop:
                yield slot, slice(start - owned.start, stop - owned.start)

    @property
    def wire_dtype(self) -> torch.dtype:
        return wire_dtype(self.values.dtype)


def make_buckets(parameters: Iterable[nn.Parameter], *, limit_bytes: float, pieces: int) -> list[Bucket]:
    """Fill buckets up to `limit_bytes` of wire dtype, from the last parameter back: gradients come in that order.

    A tied weight has a bucket of its own, so that its two copies are cut, and encoded, alike.
    """
    buckets: list[Bucket] = []
    waiting: list[nn.Parameter] = []
    size = 0

    def close() -> None:
        nonlocal waiting, size
        if waiting:
            buckets.append(Bucket(waiting, pieces))
        waiting, size = [], 0

    for parameter in reversed(list(parameters)):
        if getattr(parameter, "alone", False):
            buckets.append(Bucket([parameter], pieces))
            continue
        nbytes = parameter.numel() * wire_dtype(parameter.dtype).itemsize
        if size + nbytes > limit_bytes:
            close()
        waiting.append(parameter)
        size += nbytes
    close()
    return buckets


