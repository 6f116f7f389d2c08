"""Kernels, buffers and streams of one device. The memory of each slice (gpu_memory.py) borrows from these pools."""

from typing import Any

from hpcbench.codecs.base import Codec
from hpcbench.codecs.cuda import CudaCodec
from hpcbench.codecs.identity import Identity
from hpcbench.comm.accelerator import Accelerator, DeviceArray
from hpcbench.comm.clock import Spans
from hpcbench.comm.scratch import Scratch


class DeviceIdentity:
    """The codec ``none`` on a device, implemented as copies and additions.

    Parameters
    ----------
    accelerator
        The device.
    """

    fixed_size = True

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    def encode(self, x: DeviceArray, out: DeviceArray, *, residual: Any = None, seed: int = 0, stream: int) -> int:
        """Copy the values to the wire buffer. If there is a residual, add it."""
        wire = out[: x.nbytes]
        if residual is None:
            self._accelerator.copy(wire, x, stream)
        else:
            lack = self._accelerator.array(residual, stream)
            self._accelerator.add_residual(wire.view(x.dtype), x, lack, stream)
        return x.nbytes

    def decode(self, wire: DeviceArray, out: DeviceArray, *, accumulate: bool = False, stream: int) -> int:
        """Copy the wire buffer to `out`, or add it to `out`."""
        if wire.nbytes != out.nbytes:
            raise ValueError(f"none: {wire.nbytes} bytes on the wire do not match {out.size} values of {out.dtype}")
        if accumulate:
            self._accelerator.add(out, wire.view(out.dtype), stream)
        else:
            self._accelerator.copy(out, wire, stream)
        return wire.nbytes


class Pools:
    """Kernels, buffers and streams shared by all operations on one device.

    Parameters
    ----------
    accelerator
        The device.
    aware
        Whether messages are sent from device memory: always with NCCL, and with MPI if it is GPU-aware on all ranks.
    streams
        Number of streams.
    """

    def __init__(self, accelerator: Accelerator, aware: bool, streams: int = 4) -> None:
        self.accelerator, self.aware = accelerator, aware
        self.device = Scratch(accelerator.memory)
        self.host = Scratch(accelerator.pinned)
        self.spans: Spans = []
        self._codecs: dict[str, CudaCodec | DeviceIdentity] = {}
        # operations use the streams round-robin, so an operation that waits for its values does not block the next
        # operation
        self._streams = [accelerator.new_stream() for _ in range(streams)]
        self._turn = 0
        self._lanes: list[Pools] = []

    def stream(self) -> int:
        """Return the stream for the next operation."""
        self._turn += 1
        return self._streams[self._turn % len(self._streams)]

    def codec(self, codec: Codec) -> CudaCodec | DeviceIdentity:
        """Return the device codec with the same name. Raise TypeError if there are no device kernels."""
        if codec.name not in self._codecs:
            self._codecs[codec.name] = (
                DeviceIdentity(self.accelerator)
                if isinstance(codec, Identity)
                else CudaCodec(codec, self.accelerator.codecs)
            )
        return self._codecs[codec.name]

    def lanes(self, count: int) -> list["Pools"]:
        """Return pools with one stream each. Buffers are protected by stream order, and kernels are shared."""
        lanes = [Pools(self.accelerator, True, 1) for _ in range(count)]
        for lane in lanes:
            lane._codecs = self._codecs
        self._lanes += lanes
        return lanes

    @property
    def device_bytes(self) -> int:
        """Total size of all device buffers in bytes, including the buffers of the pools returned by `lanes`."""
        return self.device.nbytes + sum(lane.device.nbytes for lane in self._lanes)
