"""GPU access for codecs through CuPy: kernels compiled on demand, streams, and memory.

CuPy is imported only when a device is requested, because it is missing on nodes without a GPU.
"""

import functools
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcbench.codecs.cubin import compiled_file
from hpcbench.codecs.sequence import STATE_HEAD
from hpcbench.codecs.types import BFLOAT16
from hpcbench.resources import data_dir

THREADS = 256
"""Number of threads per thread block."""
_BLOCKS = 8
"""Number of thread blocks per multiprocessor. This many blocks can run concurrently."""
_LENGTH, _FAULT = 1, 2


@dataclass(frozen=True)
class View:
    """Address, size and dtype of a device array."""

    pointer: int
    size: int
    dtype: np.dtype[Any]
    """Dtype of the values. Torch's bfloat16 is represented as BFLOAT16."""
    writeable: bool

    @property
    def nbytes(self) -> int:
        """Total size of the values in bytes."""
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Build:
    """Compile-time settings of kernels."""

    source: str
    """File name in kernels/gpu."""
    family: int
    """Family number, ``hb_family``."""
    param: int
    """Codec parameter, or 0 if kernels receive the parameter at run time."""
    type: int
    """Type number of the encoded values, ``hb_type``."""
    out: int
    """Type number of the decoded values, ``hb_type``."""

    def options(self) -> tuple[str, ...]:
        """Return compiler options. The text to compile must include the file `source`."""
        return (
            "-std=c++17",
            "--fmad=false",  # the formats require separate rounding of products and sums
            f"-I{data_dir('kernels') / 'gpu'}",
            f"-DHB_CODEC={self.family}",
            f"-DHB_PARAM={self.param}ull",
            f"-DHB_TYPE={self.type}",
            f"-DHB_OUT={self.out}",
        )


class CallMemory(ABC):
    """Device memory for one codec call, including the words that the host reads afterwards.

    The memory may be reused by several calls on any streams. On the device, each call waits for the previous one.
    """

    word_count: int
    """Number of 64-bit words."""
    pointer: int
    """Device address of the words."""

    @abstractmethod
    def begin(self, stream: int, zeros: int) -> None:
        """Wait for the previous call, then set `zeros` words to zero."""

    @abstractmethod
    def end(self, stream: int) -> None:
        """Copy the leading words (length and fault code) to the host after the call's kernels have run."""

    @abstractmethod
    def wait(self) -> tuple[int, int]:
        """Wait for the end of the last call. Return the length and the fault code of that call."""


class Device(ABC):
    """A device that runs kernels."""

    multiprocessors: int

    @abstractmethod
    def stream(self, stream: Any, array: Any) -> int:
        """Return a stream handle. If `stream` is None, return the current stream of the library that owns `array`."""

    @abstractmethod
    def view(self, name: str, array: Any, stream: int) -> View:
        """Return the address, size and dtype of an array.

        Raises
        ------
        TypeError
            The array is not in this device's memory.
        ValueError
            The array is not a contiguous vector.
        """

    @abstractmethod
    def launch(self, build: Build, kernel: str, blocks: int, arguments: tuple[int, ...], stream: int) -> None:
        """Launch a kernel. All parameters of the kernel have 64 bits."""

    @abstractmethod
    def memory(self, word_count: int) -> CallMemory:
        """Allocate `word_count` 64-bit words for one call."""

    def blocks(self, nbytes: int, block_bytes: int) -> int:
        """Return the number of thread blocks for `nbytes` bytes, if a block processes `block_bytes` bytes at a time."""
        return max(1, min(-(-nbytes // block_bytes), _BLOCKS * self.multiprocessors))


def _layout(name: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> None:
    if len(shape) != 1 or (strides is not None and shape[0] > 1 and strides[0] != itemsize):
        raise ValueError(f"{name}: values must be a contiguous vector, not shape {shape} with strides {strides}")


def view_of(name: str, interface: dict[str, Any]) -> View:
    """Convert a ``__cuda_array_interface__`` to a View.

    Raises
    ------
    ValueError
        The array is not a contiguous vector in native byte order.
    """
    shape, typestr = interface["shape"], interface["typestr"]
    # torch and ml_dtypes both describe bfloat16 as two-byte void
    dtype = BFLOAT16 if typestr in ("<V2", "|V2") else np.dtype(typestr)
    if not dtype.isnative or dtype.hasobject:
        raise ValueError(f"{name}: values of type {typestr} are not plain numbers in this machine's byte order")
    _layout(name, tuple(shape), interface.get("strides"), dtype.itemsize)
    pointer, read_only = interface["data"]
    return View(int(pointer or 0), int(shape[0]), dtype, not read_only)


class CupyCallMemory(CallMemory):
    """Memory of a call in CuPy: device words, pinned host memory for the leading words, and an event."""

    def __init__(self, cupy: Any, word_count: int) -> None:
        self._cupy = cupy
        self._memory = cupy.cuda.alloc(8 * word_count)
        self.word_count = word_count
        self._pinned = cupy.cuda.alloc_pinned_memory(8 * STATE_HEAD)
        self._head = np.frombuffer(self._pinned, np.uint64, STATE_HEAD)
        self._event = cupy.cuda.Event(disable_timing=True)
        self.pointer = int(self._memory.ptr)

    def begin(self, stream: int, zeros: int) -> None:
        """Wait for the previous call, then set `zeros` words to zero."""
        runtime = self._cupy.cuda.runtime
        runtime.streamWaitEvent(stream, self._event.ptr)  # returns immediately if the event has not been recorded yet
        runtime.memsetAsync(self.pointer, 0, 8 * zeros, stream)

    def end(self, stream: int) -> None:
        """Copy the leading words to the host and record the event."""
        runtime = self._cupy.cuda.runtime
        to_host = runtime.memcpyDeviceToHost
        runtime.memcpyAsync(self._head.ctypes.data, self.pointer, 8 * STATE_HEAD, to_host, stream)
        runtime.eventRecord(self._event.ptr, stream)

    def __del__(self) -> None:
        event = getattr(self, "_event", None)  # missing if the allocation failed
        if event is not None and not sys.is_finalizing():
            event.synchronize()  # the memory may still be in use

    def wait(self) -> tuple[int, int]:
        """Wait for the event. Return length and fault code."""
        self._event.synchronize()
        return int(self._head[_LENGTH]), int(self._head[_FAULT])


class CupyDevice(Device):
    """CuPy's current device."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._modules: dict[Build, Any] = {}
        self._functions: dict[tuple[Build, str], Any] = {}
        self._streams: dict[int, Any] = {}
        self.multiprocessors = int(cupy.cuda.Device().attributes["MultiProcessorCount"])

    def stream(self, stream: Any, array: Any) -> int:
        """Return the handle of a torch or CuPy stream, or of the current stream."""
        if stream is None and type(array).__module__.split(".")[0] == "torch":
            import torch

            stream = torch.cuda.current_stream(array.device)
        if stream is None:
            return int(self._cupy.cuda.get_current_stream().ptr)
        for attribute in ("ptr", "cuda_stream"):
            if hasattr(stream, attribute):
                return int(getattr(stream, attribute))
        if hasattr(stream, "__cuda_stream__"):
            return int(stream.__cuda_stream__()[1])
        return int(stream)

    def view(self, name: str, array: Any, stream: int) -> View:
        """Return the View of an array with a CUDA array interface or DLPack support."""
        if hasattr(array, "detach"):  # torch rejects the interface for tensors that require gradients
            array = array.detach()
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is None and hasattr(array, "__dlpack__"):
            kind, _ = array.__dlpack_device__()
            if kind in (2, 13):  # CUDA memory or managed CUDA memory
                with self._foreign_stream(stream):
                    interface = self._cupy.from_dlpack(array).__cuda_array_interface__
        if interface is None:
            raise TypeError(f"{name}: takes arrays in GPU memory, not {type(array).__name__}")
        return view_of(name, interface)

    def launch(self, build: Build, kernel: str, blocks: int, arguments: tuple[int, ...], stream: int) -> None:
        """Launch a kernel, which is compiled at its first use."""
        function = self._functions.get((build, kernel))
        if function is None:
            function = self._functions[build, kernel] = self._module(build).get_function(kernel)
        with self._foreign_stream(stream):
            function((blocks,), (THREADS,), tuple(np.uint64(a) for a in arguments))

    def memory(self, word_count: int) -> CallMemory:
        """Allocate `word_count` 64-bit words for one call."""
        return CupyCallMemory(self._cupy, word_count)

    def _module(self, build: Build) -> Any:
        if build not in self._modules:
            path = compiled_file(self._cupy, build.source, build.options())
            self._modules[build] = self._cupy.RawModule(path=str(path))
        return self._modules[build]

    def _foreign_stream(self, handle: int) -> Any:
        """Return a CuPy object for a stream that may belong to another library.

        CuPy 14 deprecates ExternalStream, and CuPy 13 lacks its replacement. The objects are kept as long as the device
        exists. Otherwise, the destructor of the replacement could destroy a stream that is still in use.
        """
        if handle not in self._streams:
            wrap = getattr(self._cupy.cuda.Stream, "from_external", None)
            self._streams[handle] = wrap(_Handle(handle)) if wrap else self._cupy.cuda.ExternalStream(handle)
        return self._streams[handle]


@dataclass(frozen=True)
class _Handle:
    """A stream handle that implements the CUDA stream protocol."""

    pointer: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


def cuda() -> Device:
    """Return CuPy's current device.

    Raises
    ------
    ImportError
        CuPy is missing.
    RuntimeError
        No GPU is available, or CUDA cannot generate code for the GPU.
    """
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            f"codecs on a GPU need CuPy ({error}): pip install cupy-cuda13x, or cupy-cuda12x on a V100"
        ) from error
    try:
        number = int(cupy.cuda.runtime.getDevice())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f"CUDA cannot use a GPU on this machine: {error}") from error
    return _device(number)


@functools.cache
def _device(number: int) -> Device:
    import cupy

    capability = cupy.cuda.Device(number).compute_capability
    if int(capability) < 75 and cupy.cuda.nvrtc.getVersion()[0] >= 13:
        raise RuntimeError(
            f"CUDA 13 does not support this GPU (sm_{capability}): install CuPy for CUDA 12 instead, "
            "pip install cupy-cuda12x"
        )
    return CupyDevice(cupy)
