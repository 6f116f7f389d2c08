"""Setting of the C library that takes the cost of newly allocated memory out of a benchmark."""

import ctypes

from hpcbench.errors import UserError


def keep_memory() -> None:
    """Make glibc serve large requests from its heap, and give nothing back.

    Raises
    ------
    UserError
        Another C library has no such settings.
    """
    trim_threshold, mmap_max = -1, -4
    libc = ctypes.CDLL(None)
    if not (libc.mallopt(mmap_max, 0) and libc.mallopt(trim_threshold, -1)):
        raise UserError("this C library cannot keep freed memory: run on a system with glibc")
