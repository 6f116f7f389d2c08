"""Buffers that are reused from message to message."""

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
    """A pool of byte buffers that are lent and returned. Any thread may use it.

    New memory costs a page fault every 4 KiB, which takes longer than encoding a message into it. New memory that a GPU
    can reach costs even more.

    Parameters
    ----------
    allocate
        Function that allocates a number of bytes.

    Attributes
    ----------
    nbytes : int
        Bytes that were ever allocated. All are kept.
    """

    def __init__(self, allocate: Callable[[int], Any] = _on_host) -> None:
        self._allocate = allocate
        self.nbytes = 0
        self._free: dict[int, list[Any]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Any:
        """Lend a buffer of at least `nbytes` bytes with any contents."""
        size = _GRAIN
        while size < nbytes:
            size *= 2
        with self._lock:
            if self._free[size]:
                return self._free[size].pop()
            self.nbytes += size
        return self._allocate(size)

    def give_back(self, buffer: Any) -> None:
        """Take back a buffer that is no longer used."""
        with self._lock:
            self._free[buffer.size].append(buffer)
