"""Input data of the codec tests. A counter-based generator and exact operations give the same data on every machine."""

from typing import Any

import numpy as np
import numpy.typing as npt

from hpcbench.bench.data import TENSORS
from hpcbench.codecs.base import Codec
from hpcbench.codecs.library import INSTRUCTION_SETS, Kernels, kernels

Array = npt.NDArray[Any]
POISON = 0xA5


def random_words(n: int, seed: int) -> npt.NDArray[np.uint64]:
    """Return `n` random 64-bit words, computed with SplitMix64 from a counter."""
    z = (np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(n: int, seed: int) -> npt.NDArray[np.float64]:
    """Return values in [0, 1) that are multiples of 2^-53."""
    return (random_words(n, seed) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def bell(n: int, seed: int) -> npt.NDArray[np.float64]:
    """Return approximately normal values with variance 1: the sum of twelve uniform values, minus 6."""
    total = np.full(n, -6.0)
    for k in range(12):
        total += uniform(n, 100 * seed + k)
    return total


def integers(n: int, low: int, high: int, seed: int) -> npt.NDArray[np.int64]:
    """Return integers in [low, high)."""
    return low + (random_words(n, seed) % np.uint64(high - low)).astype(np.int64)


def float_sets(n: int) -> dict[str, npt.NDArray[np.float32]]:
    """Return data sets of `n` values each: typical training data and difficult values.

    Magnitudes are 0 or at least 2^-90.
    """
    bits = random_words(n, 9)
    sets = {
        "bell": bell(n, 1) * 1e-3,
        "heavy-tail": bell(n, 2) / np.maximum(uniform(n, 3), 2.0**-20) * 1e-4,
        "smooth": np.cumsum(bell(n, 4)) * 1e-3,
        "sparse": bell(n, 5) * (uniform(n, 6) < 0.1),
        "one-sided": np.maximum(bell(n, 7), 0.0),
        "constant": np.full(n, 0.3),
        "zeros": np.zeros(n),
        "negative-zeros": np.where(uniform(n, 8) < 0.5, -0.0, 0.0),
        "mixed-exponents": np.ldexp(bell(n, 10), integers(n, -80, 80, 11)),
        "mixed-within-blocks": np.ldexp(bell(n, 12), integers(n, -24, 3, 13)),
        "integers": integers(n, -5, 6, 14).astype(np.float64),
        "powers": np.ldexp(1.0, integers(n, -20, 20, 15)),
        "near-one": 1.0 + bell(n, 16) * 1e-7,
        "interleaved": np.cumsum(bell(n, 17)) * 1e-3 + 10.0 * (np.arange(n) % 3),
        "bit-patterns": (np.uint64(1) - np.uint64(2) * (bits & np.uint64(1))).astype(np.int64).astype(np.float64)
        * np.ldexp(1.0 + uniform(n, 18), integers(n, -90, 124, 19)),
    }
    with np.load(TENSORS) as real:  # see make_tensors.py
        sets.update({name: np.resize(real[name], n) for name in ("gradient", "activation", "weight", "moment")})
    return {name: np.ascontiguousarray(x, dtype=np.float32) for name, x in sets.items()}


def builds() -> dict[str, Kernels]:
    """Return all kernel builds that this machine can run."""
    by_build = {}
    for name in INSTRUCTION_SETS:
        try:
            by_build[name] = kernels(name)
        except ValueError:
            continue
    return by_build


def encode(codec: Codec, x: Array, *, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Encode `x` into a poisoned buffer of exactly the promised size, and return the encoded bytes."""
    room = codec.wire_bytes(x.size, x.dtype)
    out = np.full(room + 64, POISON, dtype=np.uint8)
    used = codec.encode(x, out[:room], seed=seed)
    assert used <= room
    assert (out[room:] == POISON).all(), "written past the end"
    return out[:used].copy()


def decode(codec: Codec, wire: npt.NDArray[np.uint8], n: int, dtype: npt.DTypeLike) -> Array:
    """Decode `n` values into a poisoned buffer of exactly their size."""
    size = n * np.dtype(dtype).itemsize
    out = np.full(size + 64, POISON, dtype=np.uint8)
    codec.decode(wire, out[:size].view(dtype))
    assert (out[size:] == POISON).all(), "written past the end"
    return out[:size].view(dtype).copy()


def same_bits(a: Array, b: Array) -> bool:
    """Return whether two arrays are bitwise identical, including NaN payloads and signs of zero."""
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()
