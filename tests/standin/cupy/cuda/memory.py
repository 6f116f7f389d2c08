"""Device memory and pinned host memory. New and freed memory contains poison.

As in CuPy's pool, memory belongs to the stream on which it was allocated. That stream may reuse freed memory
immediately, even if other streams still use the memory. Freed memory is therefore poisoned when its stream reaches the
point where it was freed.
"""

import ctypes
import operator
import sys
from bisect import bisect_right, insort
from collections.abc import Callable
from typing import Any

import numpy as np

from cupy.cuda.errors import invalid
from cupy.cuda.stream import LOCK, get_current_stream, queue_of

POISON = 0x5A


class Allocation:
    """Device memory, which is freed with the last object that refers to it."""

    def __init__(self, nbytes: int) -> None:
        for hook in _hooks:
            for name in ("malloc_preprocess", "alloc_preprocess"):
                getattr(hook, name, lambda **_: None)(device_id=0, size=nbytes, mem_size=nbytes)
        self.bytes = np.full(max(nbytes, 1), POISON, np.uint8)
        self.start, self.nbytes = self.bytes.ctypes.data, nbytes
        self._stream = get_current_stream()
        with LOCK:
            insort(_starts, self.start)
            _live[self.start] = self.bytes

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        with LOCK:
            _starts.remove(self.start)
            values = _live.pop(self.start)
            queue = queue_of(self._stream.ptr)
            idle = queue.done == len(queue.todo)
            queue.todo.append(lambda: values.fill(POISON))
            if idle:
                queue.drain(len(queue.todo))


_starts: list[int] = []
_live: dict[int, np.ndarray] = {}


def holder(pointer: object, nbytes: int) -> np.ndarray | None:
    """Return the allocation that contains the bytes, or None if the bytes are on the host.

    Raises
    ------
    CUDARuntimeError
        The bytes are only partly inside an allocation.
    """
    at = operator.index(pointer)  # type: ignore[arg-type]
    with LOCK:
        place = bisect_right(_starts, at)
        before = _live[_starts[place - 1]] if place else None
        if before is not None and at < before.ctypes.data + before.size:
            if at + nbytes > before.ctypes.data + before.size:
                raise invalid(f"{nbytes} bytes reach beyond the end of an allocation of {before.size}")
            return before
        if place < len(_starts) and at + nbytes > _starts[place]:
            raise invalid(f"{nbytes} bytes reach into an allocation")
    return None


class MemoryPointer:
    """A pointer into an allocation."""

    def __init__(self, memory: Allocation, offset: int = 0) -> None:
        self.mem, self.ptr = memory, memory.start + offset


def alloc(nbytes: int) -> MemoryPointer:
    return MemoryPointer(Allocation(operator.index(nbytes)))


class MemoryHook:
    """An object whose methods are called when memory is allocated."""

    def __enter__(self) -> "MemoryHook":
        _hooks.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _hooks.remove(self)


_hooks: list[MemoryHook] = []


class PinnedMemory:
    """Pinned host memory."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = bytearray([POISON]) * max(operator.index(nbytes), 1)


def PinnedMemoryPointer(memory: PinnedMemory, offset: int) -> Any:  # noqa: N802
    """Return a buffer in pinned memory. The buffer keeps the memory alive."""
    return (ctypes.c_char * (len(memory.bytes) - offset)).from_buffer(memory.bytes, offset)


class _Pool:
    def malloc(self, nbytes: int) -> Any:
        return PinnedMemoryPointer(PinnedMemory(nbytes), 0)

    def free_all_blocks(self) -> None: ...


_pool = _Pool()
_allocators: list[Callable[[int], Any]] = [_pool.malloc]


def alloc_pinned_memory(nbytes: int) -> Any:
    return _allocators[-1](nbytes)


def set_pinned_memory_allocator(allocator: Callable[[int], Any]) -> None:
    _allocators[:] = [allocator]


def get_default_pinned_memory_pool() -> _Pool:
    return _pool


def get_default_memory_pool() -> _Pool:
    return _pool
