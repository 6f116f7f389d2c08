"""Copies between device and host for optimizer states in host memory (ZeRO-Offload, arXiv 2101.06840, section 4).

Reduced gradients are copied to the host when they are ready. Updated weights are copied to the device while the host
updates the next bucket. On a CPU, device and host are two buffers in the same memory. Bytes can therefore be counted,
and results compared, on any machine.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Crossing:
    """A copy in progress, which keeps both buffers alive until it has finished."""

    source: Tensor
    result: Tensor
    event: torch.cuda.Event | None

    def wait(self) -> Tensor:
        """Wait for the result. The host and the device's current stream may use the result afterwards."""
        if self.event is not None:
            self.event.synchronize()
        return self.result


class HostLink:
    """Link between a device and host memory.

    Parameters
    ----------
    device
        Device that holds the model.

    Attributes
    ----------
    down_bytes, up_bytes : int
        Total bytes copied to the host and to the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.down_bytes = 0
        self.up_bytes = 0

    def keep(self, x: Tensor) -> Tensor:
        """Copy `x` to host memory. The memory is pinned if a GPU will read the copy asynchronously."""
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
        # on a separate stream, where the copy waits for the values and only the user of the result waits for the copy
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            result.copy_(source, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
        return Crossing(source, result, event)
