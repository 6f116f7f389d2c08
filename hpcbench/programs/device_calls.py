"""Encoded sums and gathers of GPU tensors. The module is experimental: it was tested only on an emulated device.

The device encodes, sums and decodes values on a separate stream. Encoded bytes pass through pinned host memory and gloo
messages. The caller's thread only enqueues work on its stream. No thread blocks on an event: the group's worker thread
polls events. A handle is done when the device has finished.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hpcbench.comm.accelerator import accelerator_of
from hpcbench.comm.places import Place, Places
from hpcbench.comm.vector import InPlace, Reduced, Vector
from hpcbench.contract.shards import ElementRange, cut_evenly


@dataclass(frozen=True)
class Prepared:
    """The values of one call on a device."""

    place: Place
    vector: Vector
    out: torch.Tensor
    result: torch.Tensor
    """Memory for the result: the memory of `out`, or a separate vector."""

    def finish(self) -> None:
        """Move the completed result to its destination."""
        if self.result is self.out:
            return
        self.out.copy_(self.result.view(self.out.shape))
        if self.out.is_cuda:
            torch.cuda.current_stream(self.out.device).synchronize()


class DeviceCalls:
    """Preparation of a group's calls in the caller's thread, where the current stream is known.

    Parameters
    ----------
    rank, size
        Rank of this process in the group, and number of ranks.
    places
        Memory spaces of this process. Tests supply other memory spaces.
    seen
        Function that returns the device's view of a tensor.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        places: Places | None = None,
        seen: Callable[[torch.Tensor], Any] = lambda tensor: tensor,
    ) -> None:
        self._rank, self._size, self._seen = rank, size, seen
        self._places = places or Places()

    def use(self, tensor: torch.Tensor) -> None:
        """Make the tensor's device current in this thread."""
        accelerator_of(self._seen(tensor)).use()

    def total(self, out: torch.Tensor, src: torch.Tensor, *, average: bool) -> Prepared:
        """Prepare a sum in fp32, as an in-place all-reduce or as a reduce-scatter."""
        share = 1 / self._size
        if src is out:
            values = src if _is_vector(src) else src.float().contiguous()
            if average:
                values.mul_(share)  # before the sum, which might overflow
            place, (array,) = self._places.of(self._seen(values.view(-1)))
            return Prepared(place, InPlace(array), out, values)
        values = src.float().contiguous()
        values = values * share if average else values
        result = out if _is_vector(out) else torch.empty(out.numel(), dtype=torch.float32, device=out.device)
        piece = cut_evenly(values.numel(), self._size)[self._rank]
        place, (source, target) = self._places.of(self._seen(values.view(-1)), self._seen(result.view(-1)))
        return Prepared(place, Reduced(source, target, ElementRange(piece.start, piece.stop)), out, result)

    def gathered(self, out: torch.Tensor, src: torch.Tensor) -> Prepared:
        """Prepare a gather."""
        result = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
        flat = result.view(-1)
        flat[cut_evenly(flat.numel(), self._size)[self._rank]] = src.reshape(-1)
        place, (array,) = self._places.of(self._seen(flat))
        return Prepared(place, InPlace(array), out, result)


def _is_vector(tensor: torch.Tensor) -> bool:
    """Return whether sums can use the tensor's own memory."""
    return tensor.dtype is torch.float32 and tensor.is_contiguous()
