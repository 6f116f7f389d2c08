"""Byte buffers that are reused by consecutive messages."""

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from hpcbench.comm.arrays import Array

_GRAIN = 4096


def _on_host(nbytes: int) -> Array:
    return np.empty(nbytes, dtype=np.uint8)


class Scratch:
    """A thread-safe pool of byte buffers.

    New memory causes a page fault every 4 KiB. These faults take longer than encoding a message into the buffer.
    Allocating pinned or device memory takes even longer.

    Parameters
    ----------
    allocate
        Function that allocates a number of bytes.

    Attributes
    ----------
    nbytes : int
        Bytes allocated so far. The pool never frees memory.
    """

    def __init__(self, allocate: Callable[[int], Any] = _on_host) -> None:
        self._allocate = allocate
        self.nbytes = 0
        self._free: dict[int, list[Any]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Any:
        """Borrow an uninitialized buffer of at least `nbytes` bytes."""
        size = _GRAIN
        while size < nbytes:
            size *= 2
        with self._lock:
            if self._free[size]:
                return self._free[size].pop()
            self.nbytes += size
        return self._allocate(size)

    def give_back(self, buffer: Any) -> None:
        """Return a buffer to the pool."""
        with self._lock:
            self._free[buffer.size].append(buffer)
