"""NumPy implementation of MPC, xpk and their container, following kernels/hb_mpc.h, kernels/hb_xpk.h and chunks.h."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
CHUNK = 4096
RAW = 0xFFFF
EXPONENT = {"f4": 8, "bf16": 8, "f2": 5}


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return the chunk kind for a dtype: 16-bit floating point, or words of 4 bytes."""
    return {"float16": "f2", "bfloat16": "bf16"}.get(dtype.name, "f4")


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


# ---------------------------------------------------------------------------------------------------- container
def pack(x: Array, coder: Callable[[bytes, str], bytes]) -> bytes:
    """Pack all chunks. A chunk is encoded with ``coder(data, kind)`` if the result is shorter."""
    data, heads, bodies = x.tobytes(), [], []
    for at in range(0, len(data), CHUNK):
        raw = padded(data[at : at + CHUNK])
        coded = coder(data[at : at + CHUNK], kind_of(x.dtype))
        shrinks = len(coded) < len(raw)
        heads.append(len(coded) // 4 if shrinks else RAW)
        bodies.append(coded if shrinks else raw)
    return padded(np.array(heads, dtype="<u2").tobytes()) + b"".join(bodies)


def unpack(wire: bytes, n: int, dtype: np.dtype[Any], coder: Callable[[bytes, str, int], bytes]) -> Array:
    """Unpack chunks with ``coder(coded, kind, size)``, where `size` is the decoded size in bytes."""
    size, data = n * dtype.itemsize, b""
    chunks = -(-size // CHUNK)
    heads = np.frombuffer(wire[: 2 * chunks], dtype="<u2")
    at = len(padded(bytes(2 * chunks)))
    for k, head in enumerate(heads):
        used = min(CHUNK, size - k * CHUNK)
        length = -(-used // 4) * 4 if head == RAW else 4 * int(head)
        body = wire[at : at + length]
        data += (body if head == RAW else coder(body, kind_of(dtype), used))[:used]
        at += length
    assert at == len(wire)
    return np.frombuffer(data, dtype=dtype)


# ---------------------------------------------------------------------------------------------------- MPC
def transposed(values: Array) -> Array:
    """Transpose the 32 x 32 bits of each group of 32 words. The function is its own inverse."""
    bits = (values[:, None] >> np.arange(32, dtype=np.uint32)) & 1  # row: word, column: bit
    planes = bits.reshape(-1, 32, 32).transpose(0, 2, 1).reshape(-1, 32)
    turned: Array = (planes.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(axis=1).astype(np.uint32)
    return turned


def mpc_encode(dim: int) -> Callable[[bytes, str], bytes]:
    def chunk(data: bytes, kind: str) -> bytes:
        v = np.frombuffer(data + bytes(CHUNK - len(data)), dtype="<u4" if kind == "f4" else "<u2")
        d = v - np.concatenate([np.zeros(dim, dtype=v.dtype), v])[: v.size]
        if kind != "f4":
            low, high = d.astype(np.uint32).reshape(-1, 2, 32).transpose(1, 0, 2)
            d = (low | high << 16).ravel()
        t = transposed(d)
        q = t - np.concatenate([np.zeros(1, dtype=np.uint32), t[:-1]])
        return bytes(np.packbits(q != 0, bitorder="little")) + bytes(q[q != 0].astype("<u4"))

    return chunk


def mpc_decode(dim: int) -> Callable[[bytes, str, int], bytes]:
    def chunk(coded: bytes, kind: str, used: int) -> bytes:
        here = np.unpackbits(np.frombuffer(coded[:128], dtype=np.uint8), bitorder="little").astype(bool)
        q = np.zeros(1024, dtype=np.uint32)
        q[here] = np.frombuffer(coded[128:], dtype="<u4")
        d = transposed(np.cumsum(q, dtype=np.uint32))
        if kind != "f4":
            d = np.stack([d.reshape(-1, 32) & 0xFFFF, d.reshape(-1, 32) >> 16], axis=1).ravel().astype("<u2")
        v = d.copy()
        for first in range(dim):
            v[first::dim] = np.cumsum(d[first::dim], dtype=d.dtype)
        return bytes(v.data)

    return chunk


# ---------------------------------------------------------------------------------------------------- xpk
def plan(exponents: Array) -> tuple[int, int, int, int]:
    """Return the base, the start and the widths of both levels, found with the search described in kernels/hb_xpk.h."""
    n = exponents.size
    runs = [exponents[(n - 32) * r // 7 :][:32] for r in range(8)] if n > 256 else [exponents]
    sample = np.concatenate(runs).astype(int)
    counts = np.bincount(sample, minlength=256)
    mode = max(range(256), key=lambda e: (min(counts[e], 255), e))
    inside = sample[(sample >= mode - 31) & (sample <= mode + 32)] - (mode - 31)

    def among(first: int, end: int) -> int:
        """Count the window's exponents with indices first..end-1."""
        return int(((inside >= first) & (inside < end)).sum())

    candidates = []
    for k in range(1, 6):
        m = 2**k - 1
        end = max(range(m, 65), key=lambda i: (among(i - m, i), i))
        left = sample.size - among(end - m, end)
        near = among(end, end + 2) + among(end - m - 5, end - m)
        candidates.append((sample.size * k + 11 * left - 8 * near, k, end, left))
    _, hot, end, left = min(candidates)
    size, rares = 2**hot - 1, []
    for k in range(5):
        m = 2**k - 1
        for above in range(min(4, m) + 1):
            near = among(end, end + above) + among(end - size - (m - above), end - size)
            rares.append((left * (k + 8) - 8 * near, k, above))
    _, rare, above = min(rares)
    start = 2**rare - 1 - above
    return (mode - 31 + end - size - start) % 256, start, hot, rare


def planes(codes: Array, width: int) -> bytes:
    """Return bit planes in order of significance, lowest first. Each plane consists of whole words."""
    return b"".join(padded(np.packbits(codes >> b & 1, bitorder="little").tobytes()) for b in range(width))


def level(x: Array, width: int, start: int) -> tuple[bytes, Array]:
    """Return the planes of the codes in one level, and the values for the following levels."""
    m = 2**width - 1
    code = np.minimum((x - start) % 256, m)
    remaining = x[code == m]
    return planes(code, width), np.where(remaining < start, remaining, (remaining - m) % 256)


def turned(data: bytes, kind: str) -> tuple[Array, int]:
    """Return the values with the sign moved to the lowest bit, and the bits per value."""
    bits = 32 if kind == "f4" else 16
    x = np.frombuffer(padded(data) if bits == 32 else data, dtype=f"<u{bits // 8}").astype(np.uint64)
    return (x << np.uint64(1) | x >> np.uint64(bits - 1)) & np.uint64(2**bits - 1), bits


def xpk_encode(data: bytes, kind: str) -> bytes:
    y, bits = turned(data, kind)
    sparse = 16 * int((y == 0).sum()) > y.size
    bitmap = planes((y != 0).astype(int), 1) if sparse else b""
    if sparse:
        y = y[y != 0]
    noise_bits = bits - EXPONENT[kind]
    exponents = (y >> np.uint64(noise_bits)).astype(int)
    noise = (y & np.uint64(2**noise_bits - 1)).astype(int)
    parts = b""
    if noise_bits >= 16:
        parts, noise, noise_bits = padded((noise & 0xFFFF).astype("<u2").tobytes()), noise >> 16, noise_bits - 16
    parts += padded((noise & 0xFF).astype("u1").tobytes()) + planes(noise >> 8, noise_bits - 8)
    base, start, hot, rare = plan(exponents)
    hot_planes, left = level((exponents - base) % 256, hot, start)
    rare_planes, last = level(left, rare, 0)
    head = bytes([base, start, hot | rare << 4 | sparse << 7, 0])
    return head + bitmap + parts + hot_planes + rare_planes + padded(last.astype("u1").tobytes())


class Reader:
    """A reader for the parts of a chunk."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        assert len(part) == size
        self.at += -(-size // 4) * 4
        return part

    def planes(self, n: int, width: int) -> Array:
        codes = np.zeros(n, dtype=int)
        for b in range(width):
            data = np.frombuffer(self.take(-(-n // 32) * 4), dtype=np.uint8)
            codes |= np.unpackbits(data, bitorder="little")[:n].astype(int) << b
        return codes

    def bytes(self, n: int) -> Array:
        return np.frombuffer(self.take(n), dtype=np.uint8).astype(int)


def xpk_decode(coded: bytes, kind: str, used: int) -> bytes:
    bits = 32 if kind == "f4" else 16
    n, reader = -(-used * 8 // bits), Reader(coded)
    base, start, widths, _ = reader.take(4)
    hot, rare = widths & 15, widths >> 4 & 7
    here = reader.planes(n, 1).astype(bool) if widths >> 7 else np.ones(n, dtype=bool)
    n = int(here.sum())
    noise, noise_bits, shift = np.zeros(n, dtype=np.int64), bits - EXPONENT[kind], 0
    if noise_bits >= 16:
        noise, noise_bits, shift = np.frombuffer(reader.take(2 * n), dtype="<u2").astype(np.int64), noise_bits - 16, 16
    noise |= reader.bytes(n) << shift
    noise |= reader.planes(n, noise_bits - 8) << (shift + 8)
    codes = reader.planes(n, hot)
    rare_codes = reader.planes(int((codes == 2**hot - 1).sum()), rare)
    left = rare_codes.copy()
    last = rare_codes == 2**rare - 1
    left[last] = (reader.bytes(int(last.sum())) + 2**rare - 1) % 256
    assert reader.at == len(coded)
    x = (codes + start) % 256
    x[codes == 2**hot - 1] = np.where(left < start, left, (left + 2**hot - 1) % 256)
    exponents = (x + base) % 256
    y = np.zeros(here.size, dtype=np.int64)
    y[here] = exponents << (bits - EXPONENT[kind]) | noise
    values = y >> 1 | (y & 1) << (bits - 1)
    return values.astype(f"<u{bits // 8}").tobytes()
