"""A GPU as collectives see it: memory, streams, events, copies, and sums of values that are not encoded.

The codecs' kernels have an interface of their own (codecs/device.py). CuPy is imported when the first array of a GPU
comes, never before.
"""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcbench.codecs.convert import add_residual, convert
from hpcbench.codecs.device import Device, cuda
from hpcbench.comm.arrays import Array


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """A vector in a device's memory, whoever owns it: what slices, and what CudaCodec and mpi4py take."""

    owner: Any
    """Keeps the memory."""
    pointer: int
    size: int
    dtype: np.dtype[Any]

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        typestr = "<V2" if self.dtype.kind == "V" else self.dtype.str  # bfloat16, as torch writes it
        return {"shape": (self.size,), "typestr": typestr, "data": (self.pointer, False), "strides": None, "version": 3}

    def __getitem__(self, part: slice) -> "DeviceArray":
        start, stop, _ = part.indices(self.size)
        count = max(0, stop - start)
        return DeviceArray(self.owner, self.pointer + start * self.dtype.itemsize, count, self.dtype)

    def view(self, dtype: Any) -> "DeviceArray":
        """The same memory as values of another type."""
        kind = np.dtype(dtype)
        return DeviceArray(self.owner, self.pointer, self.nbytes // kind.itemsize, kind)

    def reshape(self, n: int) -> "DeviceArray":
        """Itself: it is flat."""
        return self


class Event(ABC):
    """A place in the order of a stream."""

    @abstractmethod
    def done(self) -> bool:
        """Whether the stream has come there."""

    @abstractmethod
    def wait(self) -> None:
        """Return when it has."""

    @abstractmethod
    def since(self, earlier: "Event") -> float:
        """Seconds between two places that the stream has come to."""


class Accelerator(ABC):
    """One device. What works on a stream returns at once."""

    codecs: Device

    @abstractmethod
    def use(self) -> None:
        """Make it the device of this thread."""

    @abstractmethod
    def new_stream(self) -> int:
        """Handle of a stream that no other orders."""

    @abstractmethod
    def memory(self, nbytes: int) -> DeviceArray:
        """Bytes on the device."""

    @abstractmethod
    def pinned(self, nbytes: int) -> Array:
        """Bytes on the host that copies reach without the processor."""

    @abstractmethod
    def copy(self, target: DeviceArray | Array, source: DeviceArray | Array, stream: int) -> None:
        """Copy bytes, whichever side they are on."""

    @abstractmethod
    def add(self, total: DeviceArray, values: DeviceArray, stream: int) -> None:
        """Add to the total. float32 or float64."""

    @abstractmethod
    def zero(self, values: DeviceArray, stream: int) -> None:
        """Make all bytes zero."""

    @abstractmethod
    def mark(self, stream: int) -> Event:
        """The place where the stream's work ends now."""

    @abstractmethod
    def follow(self, stream: int, event: Event) -> None:
        """What comes next on a stream waits for the event; the host does not."""

    def convert(
        self,
        target: DeviceArray,
        source: DeviceArray,
        stream: int,
        *,
        accumulate: bool = False,
        residual: DeviceArray | None = None,
    ) -> None:
        """Round values to the type in which they travel, or bring them back; see hpcbench.codecs.convert."""
        self.use()
        convert(self.codecs, target, source, stream, accumulate=accumulate, residual=residual)

    def add_residual(self, target: DeviceArray, source: DeviceArray, residual: DeviceArray, stream: int) -> None:
        """Values and a residual, rounded to the values' type; the residual is what that lacks."""
        self.use()
        add_residual(self.codecs, target, source, residual, stream)

    def array(self, x: Any, stream: int) -> DeviceArray:
        """A contiguous array as a vector.

        Raises
        ------
        TypeError, ValueError
            It is on another device, or not contiguous.
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


class CupyEvent(Event):
    """Of CuPy."""

    def __init__(self, cupy: Any, stream: int) -> None:
        self._cupy = cupy
        self.event = cupy.cuda.Event()
        cupy.cuda.runtime.eventRecord(self.event.ptr, stream)

    def done(self) -> bool:
        return bool(self.event.done)

    def wait(self) -> None:
        self.event.synchronize()

    def since(self, earlier: Event) -> float:
        assert isinstance(earlier, CupyEvent)
        return float(self._cupy.cuda.get_elapsed_time(earlier.event, self.event)) * 1e-3


class CupyAccelerator(Accelerator):
    """A device of CuPy.

    Parameters
    ----------
    number
        Of the device.
    """

    def __init__(self, number: int) -> None:
        import cupy

        self._cupy, self._number = cupy, number
        self.use()
        self.codecs = cuda()
        # CuPy hands memory that was freed on a stream to the same stream at once: to that one nobody else gives any
        self._arena = cupy.cuda.Stream(non_blocking=True)
        self._streams: list[Any] = []

    def use(self) -> None:
        self._cupy.cuda.runtime.setDevice(self._number)

    def new_stream(self) -> int:
        self.use()
        self._streams.append(self._cupy.cuda.Stream(non_blocking=True))
        return int(self._streams[-1].ptr)

    def memory(self, nbytes: int) -> DeviceArray:
        self.use()
        with self._arena:
            memory = self._cupy.cuda.alloc(nbytes)
        return DeviceArray(memory, int(memory.ptr), nbytes, np.dtype(np.uint8))

    def pinned(self, nbytes: int) -> Array:
        self.use()  # a thread that has no device yet would wake up the first one
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)

    def copy(self, target: DeviceArray | Array, source: DeviceArray | Array, stream: int) -> None:
        self.use()
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(_pointer(target), _pointer(source), source.nbytes, runtime.memcpyDefault, stream)

    def add(self, total: DeviceArray, values: DeviceArray, stream: int) -> None:
        self.use()
        with self._cupy.cuda.ExternalStream(stream):
            sums = self._cupy.asarray(total)
            self._cupy.add(sums, self._cupy.asarray(values), out=sums)

    def zero(self, values: DeviceArray, stream: int) -> None:
        self.use()
        self._cupy.cuda.runtime.memsetAsync(values.pointer, 0, values.nbytes, stream)

    def mark(self, stream: int) -> CupyEvent:
        self.use()
        return CupyEvent(self._cupy, stream)

    def follow(self, stream: int, event: Event) -> None:
        assert isinstance(event, CupyEvent)
        self.use()
        self._cupy.cuda.runtime.streamWaitEvent(stream, event.event.ptr)


def _pointer(x: DeviceArray | Array) -> int:
    return x.pointer if isinstance(x, DeviceArray) else int(x.ctypes.data)


def accelerator_of(x: Any) -> Accelerator:
    """The device that an array lies on.

    Raises
    ------
    TypeError
        It is no contiguous array of a GPU, nor NumPy's.
    ImportError, RuntimeError
        There is no CuPy, or it can make nothing for this GPU.
    """
    device = getattr(x, "device", None)
    kind = getattr(device, "type", "cuda")  # torch's knows
    if device is None or kind != "cuda" or not (hasattr(x, "__cuda_array_interface__") or hasattr(x, "__dlpack__")):
        what = f"{type(x).__name__} on {device}" if device is not None else type(x).__name__
        raise TypeError(f"collectives take arrays of NumPy, and of torch or CuPy on a GPU, not {what}")
    return _accelerator(int((device.index or 0) if hasattr(device, "type") else device.id))


@functools.cache
def _accelerator(number: int) -> Accelerator:
    cuda()  # says what is missing
    return CupyAccelerator(number)
