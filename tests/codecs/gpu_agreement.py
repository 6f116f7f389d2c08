"""Requirements for device codecs: bytes, values, residuals, sums and rejections must equal those of the CPU."""

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from codec_data import bell, integers, random_words, same_bits

from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.cuda import CudaCodec
from hpcbench.codecs.types import SHORT, Array, Bytes


class Memory(Protocol):
    """Device memory."""

    def new(self, n: int, dtype: npt.DTypeLike, offset: int = 0) -> Any: ...
    def put(self, x: Array, offset: int = 0) -> Any: ...
    def get(self, x: Any) -> Array: ...
    def intact(self, x: Any) -> bool: ...


def mixed(n: int, dtype: npt.DTypeLike, seed: int) -> Array:
    """Return `n` values in segments with small or large variation, or sparse, constant, zero or arbitrary values."""
    return _mixed(n, np.dtype(dtype), seed).copy()


@lru_cache(maxsize=64)  # every test checks the same lengths
def _mixed(n: int, dtype: np.dtype[Any], seed: int) -> Array:
    calm, wide = bell(n, seed) * 1e-3, np.ldexp(bell(n, seed + 1), integers(n, -140, 120, seed + 2))
    patterns = random_words(n, seed + 3).astype(np.uint32).view(np.float32)
    odd = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-40, 3e38, -1e-45], np.float32)
    spiced = np.where(integers(n, 0, 40, seed + 4) == 0, odd[integers(n, 0, 8, seed + 5)], calm.astype(np.float32))
    thin = np.where(integers(n, 0, 60, seed + 6) == 0, calm, 0.0)
    kind = np.arange(n) // 2311 % 8
    with np.errstate(all="ignore"):
        flat = np.choose(kind, [calm, np.cumsum(calm), wide, spiced, thin, calm * 0 + 0.25, calm * 0, calm])
        x = np.where(kind == 7, patterns, flat.astype(np.float32)).astype(np.float32)
        return (x * 100).astype(np.int64).astype(dtype) if dtype.kind in "iu" else x.astype(dtype)


def check(gpu: CudaCodec, codec: Compiled, memory: Memory, x: Array, other: Array, offset: int = 0) -> Bytes:
    """Check all kernel operations on `x`, and on `other` where two vectors are needed.

    Return the encoded stream of `x`.
    """
    n, room, seed = x.size, codec.wire_bytes(x.size, x.dtype), x.size + (offset << 40)
    values, local = memory.put(x, offset), memory.put(other, offset)
    expected = np.zeros(room, np.uint8)
    short = codec.check_type(x.dtype) in SHORT

    used = codec.encode(x, expected, seed=seed)
    stream = expected[:used].copy()
    wire = memory.new(room, np.uint8, offset)
    assert int(gpu.encode(values, wire, seed=seed)) == used, f"length of {n} values"
    assert same_bits(memory.get(wire)[:used].copy(), stream), f"bytes of {n} values"
    assert memory.intact(wire)
    assert same_bits(memory.get(values).copy(), x)

    coded = memory.put(stream, offset)
    for accumulate in (False, True):
        if accumulate and not short and x.dtype != np.float64:
            continue
        decoded, out = (other.copy(), memory.put(other, offset)) if accumulate else (x.copy(), memory.new(n, x.dtype))
        codec.decode(stream, decoded, accumulate=accumulate)
        assert int(gpu.decode(coded, out, accumulate=accumulate)) == used
        assert same_bits(memory.get(out).copy(), decoded), f"{n} values, accumulate={accumulate}"
        assert memory.intact(out)
    if not short:
        return stream

    for target in (np.float32, np.float16):
        if x.dtype == np.float32:
            break  # one additional kernel per dtype is enough
        with np.errstate(over="ignore"):
            sums = other.astype(np.float32).astype(target)
        out = memory.put(sums, offset)
        codec.decode(stream, sums, dtype=x.dtype, accumulate=True)
        gpu_length = gpu.decode(coded, out, dtype=x.dtype, accumulate=True)
        assert int(gpu_length) == used
        assert same_bits(memory.get(out).copy(), sums), f"{n} values onto {target}"

    error = mixed(n, np.float32, 900)
    residual = memory.put(error, offset)
    used = codec.encode(x, expected, residual=error, seed=seed)
    wire = memory.new(room, np.uint8, offset)
    assert int(gpu.encode(values, wire, residual=residual, seed=seed)) == used
    assert same_bits(memory.get(wire)[:used].copy(), expected[:used].copy()), f"bytes of {n} values with a residual"
    assert same_bits(memory.get(residual).copy(), error), f"residual of {n} values"
    assert memory.intact(wire)
    assert memory.intact(residual)

    used = codec.decode_add_encode(stream, other, expected, seed=seed)
    wire = memory.new(room, np.uint8, offset)
    assert int(gpu.decode_add_encode(coded, local, wire, seed=seed)) == used
    assert same_bits(memory.get(wire)[:used].copy(), expected[:used].copy()), f"bytes of a sum of {n} values"
    assert memory.intact(wire)
    return stream


def refused(codec: Compiled | CudaCodec, wire: Any, out: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether decoding reports a malformed stream."""
    try:
        length = codec.decode(wire, out, dtype=dtype)
        if length is not None:
            int(length)
    except ValueError as error:
        assert "bytes do not encode" in str(error), error
        return True
    return False


def check_damaged(gpu: CudaCodec, codec: Compiled, memory: Memory, stream: Bytes, x: Array) -> int:
    """Check that device and CPU reject the same streams and decode all other streams identically.

    Return the number of rejections.
    """
    ours = x.copy()
    theirs = memory.put(x)
    bad = refused(codec, stream, ours, x.dtype)
    assert refused(gpu, memory.put(stream), theirs, x.dtype) == bad
    assert memory.intact(theirs)
    if not bad:
        assert same_bits(memory.get(theirs).copy(), ours)
    return bad


def damaged(stream: Bytes, seed: int, count: int) -> list[Bytes]:
    """Return damaged streams.

    Some streams have modified bytes, mostly near the start. Other streams are truncated or extended.
    """
    differing = []
    for k, (where, what) in enumerate(zip(random_words(count, seed), random_words(count, seed + 1), strict=True)):
        wire = stream.copy()
        span = wire.size if k % 2 else min(wire.size, 64)
        at = int(where % np.uint64(max(span, 1)))
        if k % 7 == 0:
            wire = wire[:at].copy()
        elif k % 7 == 1:
            wire = np.append(wire, np.full(1 if k % 2 else 4, what & np.uint64(255), np.uint8))
        elif wire.size:
            wire[at] = (0xFF, 0, int(what & np.uint64(255)), int(wire[at]) ^ 1, int(wire[at]) + 1 & 255)[k % 5]
        differing.append(wire)
    return differing
