"""Device arrays, which NumPy cannot read. Operations on device arrays run in the order of the current stream."""

from typing import Any

import numpy as np
import numpy.typing as npt

from cupy.cuda.device import Device
from cupy.cuda.memory import Allocation, MemoryPointer
from cupy.cuda.stream import Event, Stream, get_current_stream, put, synchronize, wait_event


class ndarray:  # noqa: N801
    """A contiguous view of an allocation."""

    def __init__(self, memory: Allocation, values: npt.NDArray[Any]) -> None:
        self._memory, self._values = memory, values
        self.shape, self.size, self.dtype = values.shape, values.size, values.dtype
        self.nbytes, self.itemsize, self.ndim = values.nbytes, values.itemsize, values.ndim
        self.device = Device()

    @property
    def data(self) -> MemoryPointer:
        return MemoryPointer(self._memory, self._values.ctypes.data - self._memory.start if self.size else 0)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self._values.flags.c_contiguous else self._values.strides
        typestr, data = self.dtype.str, (self.data.ptr, False)
        return {"shape": self.shape, "typestr": typestr, "data": data, "strides": strides, "version": 3}

    def __array__(self, *_: object, **__: object) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: int) -> "ndarray":
        """Make a stream wait for the current stream.

        Stream 1 denotes the legacy default stream. The array serves as its own capsule.
        """
        event = Event()
        event.record()
        wait_event(0 if stream == 1 else stream, event.ptr)
        return self

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: Any) -> "ndarray":
        return ndarray(self._memory, self._values[part])

    def __setitem__(self, part: Any, value: Any) -> None:
        if not isinstance(value, (int, float, np.generic)):
            raise TypeError(f"the stand-in fills arrays with a number, not with {type(value).__name__}")
        target = self._values[part]
        put(get_current_stream().ptr, lambda: target.fill(value))

    def reshape(self, *shape: Any) -> "ndarray":
        return ndarray(self._memory, self._values.reshape(*shape))

    def view(self, dtype: npt.DTypeLike) -> "ndarray":
        return ndarray(self._memory, self._values.view(dtype))

    def get(self) -> npt.NDArray[Any]:
        """Return a copy on the host, after the work of the current stream."""
        synchronize(get_current_stream().ptr)
        return self._values.copy()

    def set(self, values: npt.NDArray[Any]) -> None:
        """Copy values from the host, after the work of the current stream."""
        if not isinstance(values, np.ndarray):
            raise TypeError(f"values of the host are an array of NumPy, not {type(values).__name__}")
        if (values.shape, values.dtype) != (self.shape, self.dtype):
            raise ValueError(f"{values.shape} of {values.dtype} for {self.shape} of {self.dtype}")
        synchronize(get_current_stream().ptr)
        self._values[...] = values


def _on_device(x: object) -> ndarray:
    if not isinstance(x, ndarray):
        raise TypeError(f"Unsupported type {type(x)}")
    return x


def empty(shape: Any, dtype: npt.DTypeLike = float) -> ndarray:
    kind = np.dtype(dtype)
    if kind.kind not in "biufc":
        raise TypeError(f"no arrays of {kind}")  # including bfloat16, which CuPy 13 does not support
    memory = Allocation(int(np.prod(shape)) * kind.itemsize)
    return ndarray(memory, memory.bytes[: memory.nbytes].view(kind).reshape(shape))


def full(shape: Any, value: float, dtype: npt.DTypeLike) -> ndarray:
    array = empty(shape, dtype)
    array[...] = value
    return array


def zeros(shape: Any, dtype: npt.DTypeLike = float) -> ndarray:
    return full(shape, 0, dtype)


def empty_like(x: ndarray) -> ndarray:
    return empty(_on_device(x).shape, x.dtype)


def zeros_like(x: ndarray) -> ndarray:
    return zeros(_on_device(x).shape, x.dtype)


def asarray(x: Any) -> ndarray:
    """Return a device array unchanged, or copy a host array to the device."""
    if isinstance(x, ndarray):
        return x
    if not isinstance(x, np.ndarray):
        raise TypeError(f"the stand-in makes arrays of NumPy's, not of {type(x).__name__}")
    array = empty(x.shape, x.dtype)
    array.set(x)
    return array


def asnumpy(x: ndarray) -> npt.NDArray[Any]:
    return _on_device(x).get()


def copyto(target: ndarray, source: ndarray) -> None:
    """Copy between arrays with the same dtype. CuPy also accepts scalars and other dtypes."""
    to, of = _on_device(target)._values, _on_device(source)._values
    if (to.shape, to.dtype) != (of.shape, of.dtype):
        raise TypeError(f"the stand-in converts nothing: {of.shape} of {of.dtype} to {to.shape} of {to.dtype}")
    put(get_current_stream().ptr, lambda: np.copyto(to, of))


def from_dlpack(x: Any) -> ndarray:
    """Wrap a device array of another library. Later work runs after the work that computes the array."""
    kind, number = x.__dlpack_device__()
    if (kind, number) not in ((2, 0), (13, 0)):
        raise RuntimeError(f"DLPack device {kind}, {number} is not this one")
    return _on_device(x.__dlpack__(stream=get_current_stream().ptr or 1))


__all__ = ["Stream", "ndarray"]
