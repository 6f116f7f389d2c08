"""Memory that is kept from message to message."""

import threading
from collections import defaultdict

import numpy as np

from hpcbench.comm.arrays import Array

_GRAIN = 4096


class Scratch:
    """Byte buffers that are lent and come back. Any thread may ask.

    New memory costs a page fault every 4 KiB: more than encoding what goes into it.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Array:
        """A buffer of at least so many bytes, with any contents."""
        size = _GRAIN
        while size < nbytes:
            size *= 2
        with self._lock:
            if self._free[size]:
                return self._free[size].pop()
        return np.empty(size, dtype=np.uint8)

    def give_back(self, buffer: Array) -> None:
        """Nobody uses the buffer any more."""
        with self._lock:
            self._free[buffer.size].append(buffer)
