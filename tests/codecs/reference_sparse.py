"""A slow and simple NumPy implementation of the sparse formats: the oracle for the kernels."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Marks = npt.NDArray[np.bool_]
CHUNK = 65536


def magnitudes(x: Array) -> npt.NDArray[np.int64]:
    """Map values to integers ordered by magnitude. NaN follows infinity, and all NaNs are equal in float16."""
    with np.errstate(invalid="ignore"):
        bits = x.astype(np.float32).view(np.uint32) & np.uint32(0x7FFFFFFF)
    if x.dtype == np.float32:
        bits = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    elif x.dtype == ml_dtypes.bfloat16:
        bits = (x.view(np.uint16).astype(np.uint32) << 16) & np.uint32(0x7FFFFFFF)
    else:
        bits = np.where(np.isnan(x), np.uint32(0x7FC00000), bits)
    return bits.astype(np.int64)


def padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % 4)


def bitmap(set_bits: npt.NDArray[np.int64], size: int) -> bytes:
    bits = np.zeros(-(-size // 32) * 32, dtype=bool)
    bits[set_bits] = True
    return np.packbits(bits, bitorder="little").tobytes()


def index_of(marks: Marks) -> bytes:
    """Return the shortest encoding of the indices of sent records. If lengths are equal, the first form is used."""
    m, places = marks.size, np.flatnonzero(marks)
    k = places.size
    if k == m:
        return b""
    forms = [
        bitmap(places, m),
        padded(places.astype("<u2").tobytes()),
        bitmap(np.arange(k) + places // 256, k + -(-m // 256)) + padded((places % 256).astype(np.uint8).tobytes()),
    ]
    return min(forms, key=len)


def message(records: Array, chunk: int, choose: Callable[[int, Array], Marks], *, all_where_shorter: bool) -> bytes:
    """Encode records of shape (n, width) in chunks, preceded by the start of each chunk except the first.

    Parameters
    ----------
    choose
        Function that selects the records to send, given the index of the first record and the records.
    """
    parts, starts, at = [], [], 0
    for first in range(0, len(records), chunk):
        part = records[first : first + chunk]
        marks = choose(first, part)
        coded = [
            np.uint32(mask.sum()).tobytes() + padded(part[mask].tobytes()) + index_of(mask)
            for mask in ((marks, np.ones_like(marks)) if all_where_shorter else (marks,))
        ]
        parts.append(coded[-1] if len(coded[-1]) <= len(coded[0]) else coded[0])
        starts.append(at)
        at += len(parts[-1])
    return np.array(starts[1:], dtype="<u8").tobytes() + b"".join(parts)


def largest(x: Array, k: int) -> Marks:
    """Select the k values of largest magnitude. Ties are resolved in favor of the first value."""
    marks = np.zeros(x.size, dtype=bool)
    marks[np.argsort(-magnitudes(x), kind="stable")[:k]] = True
    return marks


def topk_size(n: int, k: int, item: int) -> int:
    chunks = -(-n // CHUNK)
    index = min(2 * k, k + -(-(k + -(-n // 256)) // 8), -(-n // 32) * 4)
    return 8 * (chunks - 1) + 16 * chunks + -(-k * item // 4) * 4 + -(-index // 4) * 4 if n else 0


def topk(x: Array, k: int, *, by: Array | None = None) -> bytes:
    """Return the message of `x`. If `by` is given, the magnitudes of `by` determine which values of `x` are sent."""
    marks = largest(x if by is None else by, k)
    encoded = message(x[:, None], CHUNK, lambda at, part: marks[at : at + len(part)], all_where_shorter=False)
    return encoded + bytes(topk_size(x.size, k, x.itemsize) - len(encoded))


def threshold(x: Array, limit: float, *, by: Array | None = None) -> bytes:
    marks = magnitudes(x if by is None else by) > int(np.float32(limit).view(np.uint32))
    return message(x[:, None], CHUNK, lambda at, part: marks[at : at + len(part)], all_where_shorter=True)


def rowsparse(x: Array, width: int) -> bytes:
    rows = x[: x.size // width * width].reshape(-1, width)
    marks = rows.view(np.uint8).any(axis=1)
    chunk = max(1, CHUNK // width)
    encoded = message(rows, chunk, lambda at, part: marks[at : at + len(part)], all_where_shorter=True)
    return encoded + x[x.size // width * width :].tobytes()


def quieted(x: Array) -> Array:
    """Replace each half-precision NaN with the NaN that a conversion from float32 yields."""
    if x.itemsize == 4:
        return x
    word = x.view(np.uint16)
    quiet = np.uint16(0x7E00 if x.dtype == np.float16 else 0x7FC0) | word & np.uint16(0x8000)
    return np.where(np.isnan(x.astype(np.float32)), quiet, word).astype(np.uint16).view(x.dtype)


def pick(x: Array) -> bytes:
    """Select 2 of each 4 values by sorting."""
    groups = np.zeros(-(-x.size // 8) * 8, dtype=x.dtype)  # two groups share a byte of indices
    groups[: x.size] = quieted(x)
    order = np.argsort(-magnitudes(groups).reshape(-1, 4), axis=1, kind="stable")
    places = np.sort(order[:, :2], axis=1)  # [n/4, 2]
    chosen = np.take_along_axis(groups.reshape(-1, 4), places, axis=1)[: -(-x.size // 4)]
    codes = (places[:, 0] | places[:, 1] << 2).astype(np.uint8).reshape(-1, 2)
    return padded(chosen.tobytes()) + (codes[:, 0] | codes[:, 1] << 4).tobytes()
