"""A device for `CudaCodec` that runs the kernels on the CPU, with NumPy arrays as device memory.

With this device, tests cover the Python code of the GPU back end together with the kernels. `cuda_emulator.h` documents
the limits of the emulation. Calls complete immediately, so the emulation cannot detect errors in stream order.
"""

import ctypes
import mmap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from emulator import KERNELS, Launch, library, run

from hpcbench.codecs.device import Build, CallMemory, Device, View
from hpcbench.codecs.sequence import STATE_HEAD
from hpcbench.codecs.types import Array

POISON = 0x5A
_PAGE = mmap.PAGESIZE


class EmulatedCallMemory(CallMemory):
    """Memory of 64-bit words that is poisoned until a call begins."""

    def __init__(self, word_count: int) -> None:
        self.word_count = word_count
        self._memory = np.full(8 * (word_count + 8), POISON, dtype=np.uint8).view(np.uint64)
        self.pointer = self._memory.ctypes.data
        self._busy = False

    def begin(self, stream: int, zeros: int) -> None:
        assert not self._busy, "two concurrent calls share a memory"
        self._busy = True
        self._memory[:zeros] = 0

    def end(self, stream: int) -> None:
        self._busy = False
        self._head = self._memory[:STATE_HEAD].copy()
        assert (self._memory[self.word_count :].view(np.uint8) == POISON).all(), "written past the state"

    def wait(self) -> tuple[int, int]:
        return int(self._head[1]), int(self._head[2])


@dataclass
class EmulatedDevice(Device):
    """A device with few multiprocessors, so that each block runs in several passes."""

    multiprocessors: int = 1
    kernels: Path = KERNELS
    backwards: bool = False
    """Whether the threads of a block run in reverse order."""
    workers: int = 1
    """Number of concurrent blocks."""
    memories: int = 0
    launched: list[tuple[str, int]] = field(default_factory=list)
    """Launched kernels and their numbers of blocks."""
    waits: int = 0
    """Number of times that a thread had to wait for another block."""

    def stream(self, stream: Any, array: Any) -> int:
        return int(stream or 0)

    def view(self, name: str, array: Any, stream: int) -> View:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name}: takes arrays of this device, not {type(array).__name__}")
        if array.ndim != 1 or not array.flags.c_contiguous:
            raise ValueError(f"{name}: values must be a contiguous vector, not shape {array.shape}")
        return View(array.ctypes.data, array.size, array.dtype, array.flags.writeable)

    def launch(self, build: Build, kernel: str, blocks: int, arguments: tuple[int, ...], stream: int) -> None:
        self.launched.append((kernel, blocks))
        front = library(build, self.kernels)
        run(front, kernel, Launch(blocks, 0, self.backwards, self.workers), arguments)
        front.waits.restype = ctypes.c_ulonglong
        self.waits = max(self.waits, front.waits())

    def memory(self, word_count: int) -> CallMemory:
        self.memories += 1
        return EmulatedCallMemory(word_count)


class Fenced:
    """Memory for `EmulatedDevice` between inaccessible pages. The bytes around the requested part are poisoned."""

    def new(self, n: int, dtype: npt.DTypeLike, offset: int = 0) -> Array:
        """Allocate `n` poisoned values at `offset` bytes after a multiple of 16.

        The inaccessible page begins less than 16 bytes after the values.
        """
        size = n * np.dtype(dtype).itemsize
        pages = -(-(size + 16) // _PAGE) + 2
        memory = mmap.mmap(-1, pages * _PAGE)
        raw = np.frombuffer(memory, dtype=np.uint8)
        raw[:] = POISON
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (0, pages - 1):
            assert libc.mprotect(ctypes.c_void_p(raw.ctypes.data + page * _PAGE), ctypes.c_size_t(_PAGE), 0) == 0
        start = (pages - 1) * _PAGE - size
        start -= (start - offset) % 16
        return raw[start : start + size].view(dtype)

    def put(self, x: Array, offset: int = 0) -> Array:
        """Return a copy of `x` in this memory."""
        out = self.new(x.size, x.dtype, offset)
        out[...] = x
        return out

    def get(self, x: Array) -> Array:
        """Return the array, which is already in host memory."""
        return x

    def intact(self, x: Array) -> bool:
        """Return whether the bytes around `x` are unmodified."""
        if x.size == 0:
            return True  # an empty NumPy array may have any address
        raw = x
        while isinstance(raw.base, np.ndarray):
            raw = raw.base
        start = x.ctypes.data - raw.ctypes.data
        around = raw[_PAGE:start].tobytes() + raw[start + x.nbytes : -_PAGE].tobytes()
        return set(around) <= {POISON}
