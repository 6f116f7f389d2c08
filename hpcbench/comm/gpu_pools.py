"""The kernels, buffers and streams of one device. Each slice's memory (gpu_memory.py) borrows from them."""

from typing import Any

from hpcbench.codecs.base import Codec
from hpcbench.codecs.cuda import CudaCodec
from hpcbench.codecs.identity import Identity
from hpcbench.comm.accelerator import Accelerator, DeviceArray
from hpcbench.comm.clock import Spans
from hpcbench.comm.scratch import Scratch


class DeviceIdentity:
    """The codec ``none`` on a device, implemented with copies and additions.

    Parameters
    ----------
    accelerator
        The device.
    """

    fixed_size = True

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    def encode(self, x: DeviceArray, out: DeviceArray, *, residual: Any = None, seed: int = 0, stream: int) -> int:
        """Copy the values to the wire, plus the residual if there is one."""
        wire = out[: x.nbytes]
        if residual is None:
            self._accelerator.copy(wire, x, stream)
        else:
            lack = self._accelerator.array(residual, stream)
            self._accelerator.add_residual(wire.view(x.dtype), x, lack, stream)
        return x.nbytes

    def decode(self, wire: DeviceArray, out: DeviceArray, *, accumulate: bool = False, stream: int) -> int:
        """Copy the wire to the values, or add it to them."""
        if wire.nbytes != out.nbytes:
            raise ValueError(f"none: {wire.nbytes} bytes on the wire for {out.size} values of {out.dtype}")
        if accumulate:
            self._accelerator.add(out, wire.view(out.dtype), stream)
        else:
            self._accelerator.copy(out, wire, stream)
        return wire.nbytes


class Pools:
    """The kernels, buffers and streams that all operations on one device share.

    Parameters
    ----------
    accelerator
        The device.
    aware
        Whether messages leave as device pointers, because the MPI library takes them on all ranks or NCCL carries them.
    streams
        Number of streams.
    """

    def __init__(self, accelerator: Accelerator, aware: bool, streams: int = 4) -> None:
        self.accelerator, self.aware = accelerator, aware
        self.device = Scratch(accelerator.memory)
        self.host = Scratch(accelerator.pinned)
        self.spans: Spans = []
        self._codecs: dict[str, CudaCodec | DeviceIdentity] = {}
        # operations use the streams in turn, so that an operation that waits for its values does not block the next
        self._streams = [accelerator.new_stream() for _ in range(streams)]
        self._turn = 0
        self._lanes: list[Pools] = []

    def stream(self) -> int:
        """Return the stream of the next operation."""
        self._turn += 1
        return self._streams[self._turn % len(self._streams)]

    def codec(self, codec: Codec) -> CudaCodec | DeviceIdentity:
        """Return the device's codec of the same name. Raise TypeError if the codec has no kernels."""
        if codec.name not in self._codecs:
            self._codecs[codec.name] = (
                DeviceIdentity(self.accelerator)
                if isinstance(codec, Identity)
                else CudaCodec(codec, self.accelerator.codecs)
            )
        return self._codecs[codec.name]

    def lanes(self, count: int) -> list["Pools"]:
        """Return pools with one stream each. The order of that stream protects their buffers; kernels are shared."""
        lanes = [Pools(self.accelerator, True, 1) for _ in range(count)]
        for lane in lanes:
            lane._codecs = self._codecs
        self._lanes += lanes
        return lanes

    @property
    def device_bytes(self) -> int:
        """Bytes of all buffers on the device, with those of the lanes."""
        return self.device.nbytes + sum(lane.device.nbytes for lane in self._lanes)
