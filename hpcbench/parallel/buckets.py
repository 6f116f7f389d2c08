"""Parameters and their gradients in flat buffers, so that one message carries many.

A bucket lies in memory as ``[parameters in order | padding]``. Each parameter and its gradient are views into it. The
padding makes all data-parallel pieces equal. It stays zero, so that all other values belong to a parameter.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hpcbench.contract.grid import Axes
from hpcbench.contract.message_samples import MessagePart
from hpcbench.parallel.buffers import Buffer, room, wire_dtype
from hpcbench.parallel.fusion import Item, fuse, padded
from hpcbench.parallel.sharding import Held, Initial, Shard, Tied


@dataclass(frozen=True)
class Slot:
    """The place of a parameter in its bucket."""

    parameter: nn.Parameter
    shard: Shard
    span: slice


class Bucket:
    """A run of parameters in one flat buffer.

    Parameters
    ----------
    parameters
        Parameters in the order in which they lie. Their values move into the bucket.
    pieces
        Number of equal pieces. The length is padded to make them.
    initial
        Function that gives the parameters' values; by default the parameters have them.
    """

    def __init__(self, parameters: list[Held], pieces: int, initial: Initial | None = None) -> None:
        self.slots: list[Slot] = []
        start = 0
        for parameter, shard in parameters:
            self.slots.append(Slot(parameter, shard, slice(start, start + parameter.numel())))
            start += parameter.numel()
        like = parameters[0].parameter
        self.values = torch.zeros(padded(start, pieces), dtype=like.dtype, device=like.device)
        self.gradients = torch.zeros_like(self.values)
        """Gradients summed over backward passes; empty while there are no gradients."""
        self._homes = self._views(self.gradients)
        for slot, home in zip(self.slots, self._views(self.values), strict=True):
            home.copy_(initial(slot.shard, home.dtype) if initial else slot.parameter.detach())
            slot.parameter.data = home

    def _views(self, flat: Tensor) -> list[Tensor]:
        """Make views of a buffer with the parameters' shapes, in the order of the slots."""
        return [flat[slot.span].view(slot.parameter.shape) for slot in self.slots]

    @property
    def has_gradients(self) -> bool:
        """Whether the bucket has memory for gradients."""
        return self.gradients.numel() > 0

    def await_gradients(self) -> None:
        """Let the backward pass make its own gradients, for `take_gradient`.

        The bucket's old gradients are not used any more.
        """
        self.gradients[self.padding] = 0
        for slot in self.slots:
            slot.parameter.grad = None

    def free_gradients(self) -> None:
        """Free the gradients' memory."""
        self.gradients = self.values.new_empty(0)
        self._homes = []
        self.await_gradients()

    def take_gradient(self, k: int) -> None:
        """Move the new gradient of slot `k` into the bucket, where later gradients will be added to it.

        So the bucket need not be set to zero first, and the first gradient is copied while it is still in the cache.
        """
        parameter = self.slots[k].parameter
        if not self.has_gradients:
            self.gradients = torch.empty_like(self.values)
            self.gradients[self.padding] = 0
            self._homes = self._views(self.gradients)
        gradient, home = parameter.grad, self._homes[k]
        assert gradient is not None
        if gradient is not home:
            parameter.grad = home.copy_(gradient)

    def clear_missing(self) -> None:
        """Set the gradients of parameters that no backward pass used to zero."""
        for slot, home in zip(self.slots, self._homes, strict=True):
            if slot.parameter.grad is None:
                home.zero_()

    def room(self) -> Buffer:
        """Allocate a buffer for all values, in the dtype in which they are sent."""
        return room(self.values.shape, like=self.values)

    @property
    def has_values(self) -> bool:
        """Whether memory is allocated for the parameters."""
        return self.values.untyped_storage().nbytes() > 0

    def free_values(self) -> None:
        """Free the memory of the parameters.

        The parameters, and the tensors that autograd has saved of them, remain views into it.
        """
        self.values.untyped_storage().resize_(0)

    def fill_values(self, values: Tensor) -> None:
        """Give the parameters memory again, with these values."""
        self.values.untyped_storage().resize_(self.values.numel() * self.values.itemsize)
        self.values.copy_(values)

    def parts(self, owned: slice) -> Iterator[tuple[Slot, slice]]:
        """Yield each parameter with elements in the piece `owned`, counted from the piece's start."""
        for slot in self.slots:
            start, stop = max(slot.span.start, owned.start), min(slot.span.stop, owned.stop)
            if start < stop:
                yield slot, slice(start - owned.start, stop - owned.start)

    def list_message_parts(self, owned: slice | None = None) -> list[MessagePart]:
        """List the parameters in a message of the whole bucket, or the whole rows in a message of the piece `owned`."""
        parts = []
        everything = slice(0, self.values.numel())
        for slot, inside in self.parts(owned or everything):
            shape = tuple(slot.parameter.shape)
            row = math.prod(shape[1:])
            skipped = (owned.start if owned else 0) + inside.start - slot.span.start
            begin = inside.start + -skipped % row
            rows = (inside.stop - begin) // row
            if rows > 0:
                parts.append(MessagePart(slot.shard.name, (rows, *shape[1:]), begin))
        return parts

    @property
    def padding(self) -> slice:
        """The elements that belong to no parameter."""
        return slice(self.slots[-1].span.stop, self.values.numel())

    @property
    def tied(self) -> bool:
        """Whether the bucket is one of the two copies of a tied weight."""
        return self.slots[0].shard.tied is not Tied.NO

    @property
    def by_rows(self) -> bool:
        """Whether the bucket is a table whose gradient may be sent by the rows that were touched."""
        return self.slots[0].shard.by_rows

    @property
    def summands(self) -> Axes:
        """The axes of the tensor grid along which the gradients are summands; none if they are whole."""
        shard = self.slots[0].shard
        return shard.replicated if shard.partial else ()

    @property
    def ep(self) -> int:
        """Number of data-parallel ranks that hold different experts in the bucket's place; 1 if it has none."""
        return self.slots[0].shard.ep

    @property
    def wire_dtype(self) -> torch.dtype:
        """Number format in which the values are sent."""
        return wire_dtype(self.values.dtype)


def make_buckets(
    held: Sequence[Held], *, limit_bytes: float, replicas: int, initial: Initial | None = None
) -> Iterator[Bucket]:
    """Make the buckets that `fuse` fills, from the last parameter to the first: gradients come in that order.

    Each bucket is made when the iterator reaches it, so a caller that needs only a piece can free the rest first.

    Parameters
    ----------
    held
        The rank's parameters, in the model's order.
    limit_bytes
        Size of a bucket.
    replicas
        Data-parallel ranks; a bucket has equal pieces for those that hold it.
    initial
        Function that gives the parameters' values.
    """

    def item(parameter: nn.Parameter, shard: Shard) -> Item:
        nbytes = math.prod(shard.shape) * wire_dtype(parameter.dtype).itemsize
        return Item(nbytes / shard.parts, shard.replicated, shard.alone, shard.ep)

    backwards = held[::-1]
    fused = fuse((item(*entry) for entry in backwards), limit_bytes=limit_bytes)
    for places in fused:
        inside = [backwards[place] for place in places]
        yield Bucket(inside, replicas // inside[0].shard.ep, initial)
