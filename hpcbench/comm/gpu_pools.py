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
        Whether the MPI library takes device pointers, on all ranks.
    """

    _STREAMS = 4

    def __init__(self, accelerator: Accelerator, aware: bool) -> None:
        self.accelerator, self.aware = accelerator, aware
        self.device = Scratch(accelerator.memory)
        self.host = Scratch(accelerator.pinned)
        self.spans: Spans = []
        self._codecs: dict[str, CudaCodec | DeviceIdentity] = {}
        # operations use the streams in turn, so that an operation that waits for its values does not block the next
        self._streams = [accelerator.new_stream() for _ in range(self._STREAMS)]
        self._turn = 0

    def stream(self) -> int:
        """Return the stream of the next operation."""
        self._turn += 1
        return self._streams[self._turn % self._STREAMS]

    def codec(self, codec: Codec) -> CudaCodec | DeviceIdentity:
        """Return the device's codec of the same name. Raise TypeError if the codec has no kernels."""
        if codec.name not in self._codecs:
            self._codecs[codec.name] = (
                DeviceIdentity(self.accelerator)
                if isinstance(codec, Identity)
                else CudaCodec(codec, self.accelerator.codecs)
            )
        return self._codecs[codec.name]
