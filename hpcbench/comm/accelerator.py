"""GPU operations for collectives: memory, streams, events, copies, and sums of unencoded values.

The codecs' kernels have a separate interface (codecs/device.py). CuPy is imported when the first GPU array is used.
"""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcbench.codecs.convert import add, add_residual, convert
from hpcbench.codecs.device import Device, cuda
from hpcbench.comm.arrays import Array


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """A vector in device memory. CudaCodec and mpi4py accept such vectors and slices of them."""

    owner: Any
    """Object that owns the memory. Holding a reference to the owner keeps the memory alive."""
    pointer: int
    size: int
    dtype: np.dtype[Any]

    @property
    def itemsize(self) -> int:
        """Bytes per value."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Total bytes of all values."""
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        typestr = "<V2" if self.dtype.kind == "V" else self.dtype.str  # bfloat16, as in torch
        return {"shape": (self.size,), "typestr": typestr, "data": (self.pointer, False), "strides": None, "version": 3}

    def __getitem__(self, part: slice) -> "DeviceArray":
        start, stop, _ = part.indices(self.size)
        count = max(0, stop - start)
        return DeviceArray(self.owner, self.pointer + start * self.dtype.itemsize, count, self.dtype)

    def view(self, dtype: Any) -> "DeviceArray":
        """View the same memory as values of a different dtype."""
        kind = np.dtype(dtype)
        return DeviceArray(self.owner, self.pointer, self.nbytes // kind.itemsize, kind)

    def reshape(self, n: int) -> "DeviceArray":
        """Return the array itself, which is already flat."""
        return self


class StreamEvent(ABC):
    """An event recorded on a stream."""

    @abstractmethod
    def done(self) -> bool:
        """Return whether the stream has reached the event."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until the stream has reached the event."""

    @abstractmethod
    def since(self, earlier: "StreamEvent") -> float:
        """Return the time in seconds between two completed events."""


class Accelerator(ABC):
    """One device. Calls that enqueue work on a stream return immediately."""

    codecs: Device

    @abstractmethod
    def use(self) -> None:
        """Make the device current in this thread."""

    @abstractmethod
    def new_stream(self) -> int:
        """Create a stream that does not synchronize with other streams, and return its handle."""

    @abstractmethod
    def memory(self, nbytes: int) -> DeviceArray:
        """Allocate bytes on the device."""

    @abstractmethod
    def pinned(self, nbytes: int) -> Array:
        """Allocate pinned host memory."""

    @abstractmethod
    def copy(self, target: DeviceArray | Array, source: DeviceArray | Array, stream: int) -> None:
        """Copy bytes between device and host, or within either memory."""

    @abstractmethod
    def mark(self, stream: int) -> StreamEvent:
        """Record an event after all work enqueued on the stream so far."""

    @abstractmethod
    def follow(self, stream: int, event: StreamEvent) -> None:
        """Make later work of a stream wait for an event. The host does not wait."""

    def convert(
        self,
        target: DeviceArray,
        source: DeviceArray,
        stream: int,
        *,
        accumulate: bool = False,
        residual: DeviceArray | None = None,
    ) -> None:
        """Round values to the dtype in which they are sent, or widen received values. See hpcbench.codecs.convert."""
        self.use()
        convert(self.codecs, target, source, stream, accumulate=accumulate, residual=residual)

    def add(self, total: DeviceArray, values: DeviceArray, stream: int) -> None:
        """Add values to the total. The values and the total have the same floating-point dtype."""
        self.use()
        add(self.codecs, total, values, stream)

    def add_residual(self, target: DeviceArray, source: DeviceArray, residual: DeviceArray, stream: int) -> None:
        """Write the sum of values and a residual, rounded to the dtype of the values.

        The rounding error is written to the residual.
        """
        self.use()
        add_residual(self.codecs, target, source, residual, stream)

    def array(self, x: Any, stream: int) -> DeviceArray:
        """Wrap a contiguous array as a DeviceArray.

        Raises
        ------
        TypeError, ValueError
            The array is on another device or not contiguous.
        """
        if isinstance(x, DeviceArray):
            return x
        if hasattr(x, "detach"):
            x = x.detach()
        interface = getattr(x, "__cuda_array_interface__", {})
        if interface.get("strides") is None and len(interface.get("shape", (0,))) != 1:
            x = x.reshape(-1)
        view = self.codecs.view("collective", x, stream)
        return DeviceArray(x, view.pointer, view.size, view.dtype)


class CupyEvent(StreamEvent):
    """A CuPy event."""

    def __init__(self, cupy: Any, stream: int) -> None:
        self._cupy = cupy
        self.event = cupy.cuda.Event()
        cupy.cuda.runtime.eventRecord(self.event.ptr, stream)

    def done(self) -> bool:
        """Return whether the stream has reached the event."""
        return bool(self.event.done)

    def wait(self) -> None:
        """Wait until the stream has reached the event."""
        self.event.synchronize()

    def since(self, earlier: StreamEvent) -> float:
        """Return the time since an earlier event in seconds, measured by the device."""
        assert isinstance(earlier, CupyEvent)
        return float(self._cupy.cuda.get_elapsed_time(earlier.event, self.event)) * 1e-3


class CupyAccelerator(Accelerator):
    """A CuPy device.

    Parameters
    ----------
    number
        Device index.
    """

    def __init__(self, number: int) -> None:
        import cupy

        self._cupy, self._number = cupy, number
        self.use()
        self.codecs = cuda()
        # CuPy reuses memory freed on a stream immediately for that stream, so the arena has a separate stream
        self._arena = cupy.cuda.Stream(non_blocking=True)
        self._streams: list[Any] = []

    def use(self) -> None:
        """Make the device current in this thread."""
        self._cupy.cuda.runtime.setDevice(self._number)

    def new_stream(self) -> int:
        """Create a non-blocking stream and return its handle."""
        self.use()
        self._streams.append(self._cupy.cuda.Stream(non_blocking=True))
        return int(self._streams[-1].ptr)

    def memory(self, nbytes: int) -> DeviceArray:
        """Allocate bytes on the device from the accelerator's arena."""
        self.use()
        with self._arena:
            memory = self._cupy.cuda.alloc(nbytes)
        return DeviceArray(memory, int(memory.ptr), nbytes, np.dtype(np.uint8))

    def pinned(self, nbytes: int) -> Array:
        """Allocate pinned host memory."""
        self.use()  # otherwise, a thread without a current device would initialize device 0
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)

    def copy(self, target: DeviceArray | Array, source: DeviceArray | Array, stream: int) -> None:
        """Start a copy on the stream. The direction of the copy follows from the addresses."""
        self.use()
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(_pointer(target), _pointer(source), source.nbytes, runtime.memcpyDefault, stream)

    def mark(self, stream: int) -> CupyEvent:
        """Record an event after all work enqueued on the stream so far."""
        self.use()
        return CupyEvent(self._cupy, stream)

    def follow(self, stream: int, event: StreamEvent) -> None:
        """Make later work of a stream wait for an event."""
        assert isinstance(event, CupyEvent)
        self.use()
        self._cupy.cuda.runtime.streamWaitEvent(stream, event.event.ptr)


def _pointer(x: DeviceArray | Array) -> int:
    return x.pointer if isinstance(x, DeviceArray) else int(x.ctypes.data)


def accelerator_of(x: Any) -> Accelerator:
    """Return the accelerator that holds an array.

    Raises
    ------
    TypeError
        The array is neither a contiguous array on a GPU nor a NumPy array.
    ImportError, RuntimeError
        CuPy is missing or cannot compile for this GPU.
    """
    device = getattr(x, "device", None)
    kind = getattr(device, "type", "cuda")  # only torch devices have a type
    if device is None or kind != "cuda" or not (hasattr(x, "__cuda_array_interface__") or hasattr(x, "__dlpack__")):
        what = f"{type(x).__name__} on {device}" if device is not None else type(x).__name__
        raise TypeError(f"collectives take NumPy arrays, or arrays of torch or CuPy on a GPU, but not {what}")
    return _accelerator(int((device.index or 0) if hasattr(device, "type") else device.id))


@functools.cache
def _accelerator(number: int) -> Accelerator:
    cuda()  # raises an error that names the missing dependency
    return CupyAccelerator(number)
