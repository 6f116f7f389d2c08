"""Flat buffers of parameters and gradients. One message can carry many parameters.

The memory layout of a bucket is ``[parameters in order | padding]``. Each parameter and each gradient is a view of the
buffer. The padding makes all data-parallel pieces equally long, and its values stay zero.
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
    """The position of a parameter in its bucket."""

    parameter: nn.Parameter
    shard: Shard
    span: slice


class Bucket:
    """Consecutive parameters in one flat buffer.

    Parameters
    ----------
    parameters
        Parameters in memory order. The values of the parameters are moved into the bucket.
    pieces
        Number of equal pieces. The length is padded to a multiple of this number.
    initial
        Function that returns the initial values of a parameter. By default, parameters keep their current values.
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
        """Gradients, summed over backward passes. The buffer is empty while no gradients are allocated."""
        self._homes = self._views(self.gradients)
        for slot, home in zip(self.slots, self._views(self.values), strict=True):
            home.copy_(initial(slot.shard, home.dtype) if initial else slot.parameter.detach())
            slot.parameter.data = home

    def _views(self, flat: Tensor) -> list[Tensor]:
        """Return views of a buffer with the shapes of the parameters, in slot order."""
        return [flat[slot.span].view(slot.parameter.shape) for slot in self.slots]

    @property
    def has_gradients(self) -> bool:
        """Whether memory for gradients is allocated."""
        return self.gradients.numel() > 0

    def await_gradients(self) -> None:
        """Make the backward pass allocate new gradients, which `take_gradient` moves into the bucket.

        The old gradients in the bucket are discarded.
        """
        self.gradients[self.padding] = 0
        for slot in self.slots:
            slot.parameter.grad = None

    def free_gradients(self) -> None:
        """Free the memory of the gradients."""
        self.gradients = self.values.new_empty(0)
        self._homes = []
        self.await_gradients()

    def take_gradient(self, k: int) -> None:
        """Move the new gradient of slot `k` into the bucket. Autograd adds later gradients to the bucket.

        The bucket need not be zeroed beforehand, and the first gradient is copied while it is still in the cache.
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
        """Zero the gradients of parameters that no backward pass has used."""
        for slot, home in zip(self.slots, self._homes, strict=True):
            if slot.parameter.grad is None:
                home.zero_()

    def room(self) -> Buffer:
        """Allocate a buffer for all values, in the wire dtype."""
        return room(self.values.shape, like=self.values)

    @property
    def has_values(self) -> bool:
        """Whether memory for the parameters is allocated."""
        return self.values.untyped_storage().nbytes() > 0

    def free_values(self) -> None:
        """Free the memory of the parameters.

        The parameters, and the tensors that autograd has saved, remain views of the freed storage.
        """
        self.values.untyped_storage().resize_(0)

    def fill_values(self, values: Tensor) -> None:
        """Allocate memory for the parameters again and copy the values into it."""
        self.values.untyped_storage().resize_(self.values.numel() * self.values.itemsize)
        self.values.copy_(values)

    def parts(self, owned: slice) -> Iterator[tuple[Slot, slice]]:
        """Yield each parameter with elements in the piece `owned`, and the slice of these elements in the piece."""
        for slot in self.slots:
            start, stop = max(slot.span.start, owned.start), min(slot.span.stop, owned.stop)
            if start < stop:
                yield slot, slice(start - owned.start, stop - owned.start)

    def list_message_parts(self, owned: slice | None = None) -> list[MessagePart]:
        """List the parts of a message: all parameters of the bucket, or only the complete rows in the piece `owned`."""
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
        """Slice of the elements that belong to no parameter."""
        return slice(self.slots[-1].span.stop, self.values.numel())

    @property
    def tied(self) -> bool:
        """Whether the bucket contains one of the two copies of a tied weight."""
        return self.slots[0].shard.tied is not Tied.NO

    @property
    def by_rows(self) -> bool:
        """Whether the bucket is an embedding table whose gradient may be sent as touched rows."""
        return self.slots[0].shard.by_rows

    @property
    def summands(self) -> Axes:
        """Axes of the tensor grid along which gradients must be summed.

        There are none if the gradients are complete.
        """
        shard = self.slots[0].shard
        return shard.replicated if shard.partial else ()

    @property
    def ep(self) -> int:
        """Number of data-parallel ranks that hold different experts in this bucket, or 1 if there are no experts."""
        return self.slots[0].shard.ep

    @property
    def wire_dtype(self) -> torch.dtype:
        """Dtype in which the values are sent."""
        return wire_dtype(self.values.dtype)


def make_buckets(
    held: Sequence[Held], *, limit_bytes: float, replicas: int, initial: Initial | None = None
) -> Iterator[Bucket]:
    """Make the buckets that `fuse` selects, from the last parameter to the first, as the backward pass fills them.

    The buckets are created lazily. A caller that keeps only a piece of a bucket can free the rest before the next
    bucket is created.

    Parameters
    ----------
    held
        Parameters of the rank, in model order.
    limit_bytes
        Maximum size of a bucket in bytes.
    replicas
        Number of data-parallel ranks. A bucket has one piece for each rank that holds the bucket.
    initial
        Function that returns the initial values of a parameter.
    """

    def item(parameter: nn.Parameter, shard: Shard) -> Item:
        nbytes = math.prod(shard.shape) * wire_dtype(parameter.dtype).itemsize
        return Item(nbytes / shard.parts, shard.replicated, shard.alone, shard.ep)

    backwards = held[::-1]
    fused = fuse((item(*entry) for entry in backwards), limit_bytes=limit_bytes)
    for places in fused:
        inside = [backwards[place] for place in places]
        yield Bucket(inside, replicas // inside[0].shard.ep, initial)
