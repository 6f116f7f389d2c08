"""Tests that no index, offset or counter overflows with more than 2^31 or 2^32 values.

The values are a small file that is mapped repeatedly, so they need address space but little memory. Only the end of the
array has its own memory and different values.
"""

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pytest
import reference
from codec_data import bell, encode, same_bits

from hpcbench.codecs.registry import get_codec

PERIOD = 1 << 22  # values that repeat: 16 MiB
END = (1 << 20) + 3
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
MAP_NORESERVE, MAP_FIXED = 0x4000, 0x10


def _mapped(address: int | None, size: int, flags: int, file: int) -> int:
    got = _LIBC.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, 0)
    assert got not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
    return int(got)


@contextmanager
def long_vector(turns: int) -> Iterator[npt.NDArray[np.float32]]:
    """Return ``turns * PERIOD + END`` values, which consist of repeated periods and a separate end."""
    size = turns * PERIOD * 4 + (END * 4 + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
    start = _mapped(None, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE, -1)
    file = os.memfd_create("values")
    try:
        os.ftruncate(file, PERIOD * 4)
        for turn in range(turns):
            _mapped(start + turn * PERIOD * 4, PERIOD * 4, mmap.MAP_SHARED | MAP_FIXED, file)
        memory = (ctypes.c_float * (turns * PERIOD + END)).from_address(start)
        yield np.frombuffer(memory, dtype=np.float32)
    finally:
        os.close(file)
        _LIBC.munmap(start, size)


pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", ["zfp:4", "sign:1024", "threshold:5"])
def test_beyond_two_to_the_31(name: str) -> None:
    codec = get_codec(name)
    period, end = bell(PERIOD, 80).astype(np.float32), bell(END, 81).astype(np.float32)
    with long_vector(turns=(1 << 31) // PERIOD) as x:
        assert x.size > 1 << 31
        x[:PERIOD] = period
        x[-END:] = end
        wire = np.frombuffer(mmap.mmap(-1, codec.wire_bytes(x.size, x.dtype)), dtype=np.uint8)  # untouched
        used = codec.encode(x, wire)
        x[:PERIOD] = 7
        x[-END:] = 7
        codec.decode(wire[:used], x)
        for part, values in ((x[:PERIOD], period), (x[-END:], end)):
            expected = np.zeros_like(values)
            codec.decode(encode(codec, values), expected)
            assert same_bits(part.copy(), expected)


def test_counters_beyond_two_to_the_32() -> None:
    """The noise of stochastic rounding must differ after the lower half of the counter wraps to zero."""
    codec = get_codec("int4:1024:stochastic")
    with long_vector(turns=(1 << 32) // PERIOD) as x:
        x[:PERIOD] = bell(PERIOD, 82)
        x[-END:] = bell(END, 83)
        wire = np.zeros(codec.wire_bytes(x.size, x.dtype), dtype=np.uint8)
        codec.encode(x, wire, seed=5)
        codes = wire[(1 << 32) // 2 : (1 << 32) // 2 + END // 2]
        assert same_bits(
            codes.copy(), reference.quant_encode(4, 1024, x[-END:], 5, "stochastic", first=1 << 32)[: END // 2]
        )
        assert not same_bits(codes.copy(), reference.quant_encode(4, 1024, x[-END:], 5, "stochastic")[: END // 2])
