"""Optimizer states in host memory (ZeRO-Offload, arXiv 2101.06840, section 4): copies over the host's link.

Reduced gradients go down to the host when they are ready, and updated weights come up while the host updates the next
bucket. On a CPU, device and host are two buffers of the same memory, so that bytes can be counted and bits compared on
any machine.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Crossing:
    """A copy under way. Both buffers live until it has ended."""

    source: Tensor
    result: Tensor
    event: torch.cuda.Event | None

    def wait(self) -> Tensor:
        """Wait for the result, which the host and the device's current stream may then use."""
        if self.event is not None:
            self.event.synchronize()
        return self.result


class HostLink:
    """Copies between a device and the host's memory.

    Parameters
    ----------
    device
        Device of the model.

    Attributes
    ----------
    down_bytes, up_bytes : int
        Bytes copied so far to the host, and to the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.down_bytes = 0
        self.up_bytes = 0

    def keep(self, x: Tensor) -> Tensor:
        """Copy `x` to host memory, pinned if a GPU will read it while it computes."""
        copy = torch.empty(x.shape, dtype=x.dtype, pin_memory=self._stream is not None)
        return copy.copy_(x)

    def down(self, x: Tensor) -> Crossing:
        """Start to copy `x` to the host."""
        self.down_bytes += x.nbytes
        return self._copy(x, torch.empty(x.shape, dtype=x.dtype, pin_memory=self._stream is not None))

    def up(self, x: Tensor) -> Crossing:
        """Start to copy `x` to the device."""
        self.up_bytes += x.nbytes
        return self._copy(x, torch.empty(x.shape, dtype=x.dtype, device=self._device))

    def _copy(self, source: Tensor, result: Tensor) -> Crossing:
        if self._stream is None:
            return Crossing(source, result.copy_(source), None)
        # a separate stream: the copy waits for the values, and only the copy's user waits for the copy
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            result.copy_(source, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
        return Crossing(source, result, event)
