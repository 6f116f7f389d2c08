"""glibc setting that removes the cost of newly allocated memory from a benchmark."""

import ctypes

from hpcbench.errors import UserError


def keep_memory() -> None:
    """Make glibc serve large requests from its heap and never return memory to the system.

    Raises
    ------
    UserError
        The C library is not glibc.
    """
    trim_threshold, mmap_max = -1, -4
    libc = ctypes.CDLL(None)
    if not (libc.mallopt(mmap_max, 0) and libc.mallopt(trim_threshold, -1)):
        raise UserError("this C library cannot keep freed memory: run on a system with glibc")
