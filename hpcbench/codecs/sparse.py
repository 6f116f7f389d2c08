"""Sparse gradients: small values, or zeros, are not sent.

kernels/hb_sparse.h and kernels/hb_2of4.h describe the formats.
"""

import struct
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcbench.codecs.base import check_values
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.types import Array, Type

_CHUNK = 65536  # values
_GROUP = 256


def _padded(size: int) -> int:
    return -(-size // 4) * 4


def _chunks_room(records: int, chunk: int, record_bytes: int) -> int:
    """Return the maximum encoded size of records in bytes, including chunk headers and chunk offsets."""
    if records == 0:
        return 0
    full_chunks, last = divmod(records - 1, chunk)
    return full_chunks * (8 + 4 + _padded(chunk * record_bytes)) + 4 + _padded((last + 1) * record_bytes)


def _finite_magnitudes(codec: Compiled, x: Array) -> npt.NDArray[np.float32] | None:
    check_values(codec.name, x)
    codec.check_type(x.dtype)
    magnitudes = np.abs(x.astype(np.float32))
    return magnitudes if np.isfinite(magnitudes).all() else None


class Pick(Compiled):
    """The codec ``2:4``, which sends two of every four values: those with the largest magnitudes.

    Parameters
    ----------
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = False
    fixed_size = True

    def __init__(self, build: Kernels | None = None) -> None:
        super().__init__("2:4", "2:4", build)

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the size in bytes of two of every four values, together with their indices."""
        self.check_type(dtype)
        groups = -(-n // 4)
        return -(-2 * groups * dtype.itemsize // 4) * 4 + -(-groups // 2)

    def error_bound(self, x: Array) -> float | None:
        """Return the largest omitted magnitude. Return None if values are not finite."""
        magnitudes = _finite_magnitudes(self, x)
        if magnitudes is None:
            return None
        groups = np.zeros(-(-x.size // 4) * 4, dtype=np.float32)
        groups[: x.size] = magnitudes
        return float(np.max(np.sort(groups.reshape(-1, 4), axis=1)[:, 1], initial=0.0))  # [n/4, 4]


class TopK(Compiled):
    """The codec ``topk:F``, which sends the fraction F of a message's values that have the largest magnitudes.

    Ties are resolved in favor of earlier values. NaN counts as larger than infinity.

    Parameters
    ----------
    fraction
        Fraction F in (0, 1]. ceil(F n) of n values are sent.
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = False
    fixed_size = True

    def __init__(self, fraction: float, build: Kernels | None = None) -> None:
        if not 0 < fraction <= 1:
            raise ValueError(f"topk: {fraction:g} is not a fraction in (0, 1]")
        super().__init__("topk", f"topk:{fraction:g}", build)
        self.fraction = fraction
        self._exact = Fraction(str(fraction))  # decimal, so that 0.07 of 100 values are exactly 7

    def param(self, n: int) -> int:
        """Return the number of values to send."""
        return -(-n * self._exact.numerator // self._exact.denominator)

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the size of the values, their indices, and the chunk headers in bytes."""
        self.check_type(dtype)
        if n == 0:
            return 0
        k, chunks = self.param(n), -(-n // _CHUNK)
        index = min(2 * k, k + -(-(k + -(-n // _GROUP)) // 8), -(-n // 32) * 4)
        return 8 * (chunks - 1) + 16 * chunks + _padded(k * dtype.itemsize) + _padded(index)

    def error_bound(self, x: Array) -> float | None:
        """Return the largest omitted magnitude. Return None if values are not finite."""
        magnitudes = _finite_magnitudes(self, x)
        if magnitudes is None:
            return None
        left = x.size - self.param(x.size)
        return float(np.partition(magnitudes, left - 1)[left - 1]) if left else 0.0


class Threshold(Compiled):
    """The codec ``threshold:T``, which sends NaN, infinity, and values with magnitudes above T.

    A chunk of 65536 values is sent as a whole if this takes no more bytes.

    Parameters
    ----------
    threshold
        Positive number T, rounded to float32.
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = False
    fixed_size = False

    def __init__(self, threshold: float, build: Kernels | None = None) -> None:
        if not 0 < threshold <= 3e38:
            raise ValueError(f"threshold: {threshold:g} is not a positive float32")
        super().__init__("threshold", f"threshold:{threshold:g}", build)
        self.threshold = float(np.float32(threshold))

    def param(self, n: int) -> int:
        """Return the threshold's bit pattern."""
        return int(struct.unpack("<I", struct.pack("<f", self.threshold))[0])

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the maximum size of values and indices in bytes."""
        self.check_type(dtype)
        return _chunks_room(n, _CHUNK, dtype.itemsize)

    def error_bound(self, x: Array) -> float | None:
        """Return the largest magnitude that does not exceed the threshold. Return None if values are not finite."""
        magnitudes = _finite_magnitudes(self, x)
        return None if magnitudes is None else float(np.max(magnitudes[magnitudes <= self.threshold], initial=0.0))


class RowSparse(Compiled):
    """The codec ``rowsparse:W``, which sends rows of W values that are not all zero.

    Only a few rows of an embedding's gradient are nonzero. The codec is lossless, so negative zeros count as nonzero.
    Values after the last complete row are always sent.

    Parameters
    ----------
    width
        Number of values per row. For dtypes that are not floating-point, the width is in bytes.
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = True
    fixed_size = False

    def __init__(self, width: int, build: Kernels | None = None) -> None:
        if width < 1:
            raise ValueError(f"rowsparse: rows of {width} values are too short")
        super().__init__("rowsparse", f"rowsparse:{width}", build)
        self.width = width

    def param(self, n: int) -> int:
        """Return the row width."""
        return self.width

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the maximum size of rows and indices in bytes."""
        kind = self.check_type(dtype)
        values, size = (n * dtype.itemsize, 1) if kind is Type.BYTES else (n, dtype.itemsize)
        rows, remainder = divmod(values, self.width)
        return _chunks_room(rows, max(1, _CHUNK // self.width), self.width * size) + remainder * size

    def error_bound(self, x: Array) -> float:
        """Return zero, because the codec is lossless."""
        return 0.0
