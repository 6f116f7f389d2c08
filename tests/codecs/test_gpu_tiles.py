"""Tests that the emulated GPU kernels of fixed-size codecs are bitwise identical to the CPU."""

import ctypes
import functools
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from codec_data import POISON, bell, integers, random_words, same_bits
from emulator import KERNELS, Launch, build_of, compile_all, compiled, library, run
from planted import check_detected, plant_fault

from hpcbench.codecs.spec import BLOCKS, ZFP_RATES
from hpcbench.codecs.types import BFLOAT16, Array, Bytes

F32, F16 = np.dtype(np.float32), np.dtype(np.float16)
CASTS = ["fp16", "bf16", "fp8e4m3", "fp8e5m2"]
BLOCKED = [f"{family}:{block}" for family in ("int8", "int4", "sign") for block in BLOCKS]
STOCHASTIC = ["int8:64:stochastic", "int4:1024:stochastic", "int8:512:correlated", "rotate64+int4:32:correlated"]
GROUPED = [
    *("int4:16/256", "int4:32/256:nonuniform", "int4:16/256:stochastic", "int3:16/256", "int3:32/256:nonuniform"),
    *("hadamard16+int4:32/256", "rotate32+int3:16/256", "hadamard128+int2:16/256", "rotate256+int8:1024:stochastic"),
    *("rotate64+int8:256", "rotate128+sign:128", "hadamard64+fp8e4m3", "rotate16+fp8e5m2"),
    *("int3:32/256:nonuniform:stochastic", "int2:16/256", "int2:32/256", "int2:32/256:stochastic"),
    *("int4:32/256:correlated", "int3:16/256:correlated", "int2:16/256:correlated"),
]
BLOCK_FLOATS = [
    *("mxfp8:e4m3", "mxfp8:e5m2:even", "mxfp6:e2m3", "mxfp6:e3m2:rceil", "mxfp4", "mxfp4:ceil", "mxfp4:rceil", "nvfp4"),
    *("rotate64+mxfp4:rceil", "hadamard16+mxfp6:e2m3", "rotate256+nvfp4", "rotate512+mxfp4", "rotate1024+nvfp4"),
    *("rotate512+int4:32/256", "hadamard1024+int3:32/256", "rotate1024+int8:256", "rotate1024+sign:64"),
    *("hadamard512+int4:1024", "rotate1024+fp8e4m3"),
]
FEW_BITS = [
    "int4:32/256",
    "rotate256+int4:16/256",
    "int4:16/256:nonuniform:stochastic",
    "int3:32/256",
    "int2:16/256:stochastic",
    "int4:32/256:nonuniform:correlated",
    "int4:64:correlated",
]
ALL = [f"zfp:{rate}" for rate in ZFP_RATES] + BLOCKED + STOCHASTIC + GROUPED + BLOCK_FLOATS + FEW_BITS + CASTS + ["2:4"]
SOME = ["zfp:4", "zfp:8", "zfp:13", "zfp:24", "int8:256", "int4:32", "int4:1024:stochastic", "sign:128", *CASTS, "2:4"]
SOME += [*FEW_BITS[3:], "mxfp6:e2m3", "nvfp4"]
CASES = [(name, F32, F32) for name in ALL] + [(name, kind, kind) for name in SOME for kind in (F16, BFLOAT16)]
CASES += [(name, kind, F32) for name in ("int8:256", "zfp:8", "2:4") for kind in (F16, BFLOAT16)]
OFTEN = [case for case in CASES if case[0] in SOME and case[1] in (F32, BFLOAT16)]
OFTEN += [(name, F32, F32) for name in (*FEW_BITS[:3], "mxfp8:e5m2:even", "mxfp4:rceil", "rotate512+int4:32/256")]
"""Codecs that `make test` covers: one of every kind, and some also with 16-bit values.

`make test-long` adds the other codecs.
"""
LENGTHS = [*range(70), *range(120, 137), *range(250, 262), 300, 511, 512, 513, 1023, 1025, 2049]
LONG = 26_003  # all tiles, and more of them than threads in the emulated launch


@pytest.fixture(scope="module", autouse=True)
def built(request: pytest.FixtureRequest) -> None:
    """Compile the libraries of the selected tests, several at a time."""
    chosen = [
        item.callspec.params
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    cases = [(p["name"], p["dtype"], p["out"]) for p in chosen if "out" in p]
    compile_all(build_of(*case) for case in dict.fromkeys(cases))


@functools.cache
def pool(dtype: np.dtype[Any], n: int, seed: int) -> Array:
    """Return segments of 173 values: some vary little, some vary greatly, and some contain non-finite values."""
    calm, wide = bell(n, seed) * 1e-3, np.ldexp(bell(n, seed + 1), integers(n, -140, 120, seed + 2))
    patterns = random_words(n, seed + 3).astype(np.uint32).view(np.float32)  # NaN of every sign and payload, subnormals
    odd = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-40, 3e38, -1e-45], np.float32)
    spiced = np.where(integers(n, 0, 40, seed + 4) == 0, odd[integers(n, 0, 8, seed + 5)], calm.astype(np.float32))
    kind = np.arange(n) // 173 % 6
    with np.errstate(all="ignore"):
        x = np.choose(kind, [calm, wide, spiced, calm * 0, patterns, np.where(calm > 0, calm, -0.0)])
        x = np.where(kind == 4, patterns, x.astype(np.float32))
        return x if dtype == F32 else x.astype(dtype)


@dataclass
class Front:
    """Kernels for tiles, with the method signatures of `Codec`.

    Parameters
    ----------
    kernels
        Library returned by `library`.
    grid
        Number of blocks per launch. With few blocks, warps process several tiles.
    first
        First block to run.
    backwards
        Whether the threads of a block run in reverse order.
    """

    kernels: ctypes.CDLL
    grid: int = 3
    first: int = 0
    backwards: bool = False

    def _run(self, name: str, *arguments: Array | int | None) -> None:
        argument_words = [a if isinstance(a, int) else 0 if a is None else a.ctypes.data for a in arguments]
        run(self.kernels, name, Launch(self.grid, self.first, self.backwards), argument_words)

    def encode(self, x: Array, wire: Bytes, residual: Array | None = None, seed: int = 0) -> None:
        self._run("hb_encode", x, x.size, wire, residual, seed)

    def decode(self, wire: Bytes, out: Array, *, accumulate: bool = False) -> None:
        self._run("hb_decode_add" if accumulate else "hb_decode", wire, out.size, out)

    def decode_add_encode(self, wire: Bytes, local: Array, out: Bytes, seed: int = 0) -> None:
        self._run("hb_decode_add_encode", wire, local, local.size, out, seed)


def place(n: int, dtype: npt.DTypeLike, offset: int) -> Array:
    """Return `n` poisoned values at `offset` bytes after a multiple of 64, with 64 poisoned bytes on both sides."""
    size = n * np.dtype(dtype).itemsize
    raw = np.full(size + 256, POISON, dtype=np.uint8)
    start = -raw.ctypes.data % 64 + 64 + offset
    return raw[start : start + size].view(dtype)


def around(x: Array) -> bytes:
    """Return the memory around values allocated with `place`."""
    raw = x
    while isinstance(raw.base, np.ndarray):
        raw = raw.base
    start = x.ctypes.data - raw.ctypes.data
    return raw[:start].tobytes() + raw[start + x.nbytes :].tobytes()


def put(x: Array, offset: int) -> Array:
    out = place(x.size, x.dtype, offset)
    out[...] = x
    return out


def check(name: str, front: Front, x: Array, other: Array, offset: int, out: np.dtype[Any]) -> None:
    """Check all kernel operations on `x`, and on `other` where two vectors are needed."""
    codec, n, seed = compiled(name), x.size, x.size * 77 + (offset << 40) + (0xB5C3 << 48)
    size = codec.wire_bytes(n, x.dtype)
    x, other = put(x, offset), put(other, offset)

    expected, wire = place(size, np.uint8, 0), place(size, np.uint8, offset)
    assert codec.encode(x, expected, seed=seed) == size
    front.encode(x, wire, seed=seed)
    assert same_bits(wire, expected), f"bytes of {n} values"

    error = pool(F32, LONG, 20)[:n]
    residual, left = put(error, offset), put(error, 0)
    corrected = place(size, np.uint8, offset)
    front.encode(x, corrected, residual, seed)
    codec.encode(x, expected, residual=left, seed=seed)
    assert same_bits(corrected, expected), f"bytes of {n} values with a residual"
    assert same_bits(residual, left), f"residual of {n} values"

    values, decoded = place(n, out, 0), place(n, out, offset)
    for accumulate in (False, True):
        if accumulate:
            values[...] = decoded[...] = other.astype(out)
        codec.decode(wire, values, dtype=x.dtype, accumulate=accumulate)
        front.decode(wire, decoded, accumulate=accumulate)
        assert same_bits(decoded, values), f"{n} values, accumulate={accumulate}"

    summed = place(size, np.uint8, offset)
    codec.decode_add_encode(wire, other, expected, seed=seed)
    front.decode_add_encode(wire, other, summed, seed)
    assert same_bits(summed, expected), f"bytes of a sum of {n} values"
    for written in (wire, corrected, residual, decoded, summed):
        assert set(around(written)) <= {POISON}, "written outside"


def sweep(name: str, kernels: Path, dtype: np.dtype[Any] = F32, out: np.dtype[Any] = F32) -> None:
    """Check every short length and one long length, with pointers of every alignment."""
    kernel = library(build_of(name, dtype, out), kernels)
    many, others = pool(dtype, 8192, 20), pool(dtype, 8192, 40)
    for k, n in enumerate(LENGTHS):
        start = 131 * k % 6000
        front = Front(kernel, backwards=k % 2 == 1)
        check(name, front, many[start : start + n], others[start : start + n], (0, 4, 2, 1, 8)[k % 5], out)
    check(name, Front(kernel), pool(dtype, LONG, 60), pool(dtype, LONG, 80), 0, out)


@pytest.mark.parametrize(
    ("name", "dtype", "out"),
    [pytest.param(*case, marks=() if case in OFTEN else pytest.mark.long) for case in CASES],
    ids=str,
)
def test_bytes_and_values_of_the_cpu(name: str, dtype: np.dtype[Any], out: np.dtype[Any]) -> None:
    sweep(name, KERNELS, dtype, out)


@pytest.mark.parametrize(
    "rate", [pytest.param(rate, marks=() if f"zfp:{rate}" in SOME else pytest.mark.long) for rate in ZFP_RATES]
)
@pytest.mark.parametrize("ones", [1, 3])
def test_any_bytes_decode_as_on_the_cpu(rate: int, ones: int) -> None:
    """No encoder produces these streams: random bits, and sparse bits, in which coefficients stay insignificant."""
    codec, n = compiled(f"zfp:{rate}"), 8192
    bits = random_words(n * rate // 64, 11)
    for k in range(1, ones):
        bits = bits & random_words(bits.size, 11 + k)
    wire, expected, values = bits.view(np.uint8), np.zeros(n, np.float32), np.zeros(n, np.float32)
    codec.decode(wire, expected)
    Front(library(build_of(codec.name, F32, F32))).decode(wire, values)
    assert np.count_nonzero(expected) > n // 8
    assert same_bits(values, expected)


FAULTS = {
    "a barrier left out": ("gpu/warp.h", "(hb_byte)0;\n  __syncwarp();", "(hb_byte)0;", "int8:256"),
    "a sum that is one unit off": ("gpu/warp.h", "half /= 2) x = x +", "half /= 2) x = x + x * 0x1p-23f +", "sign:128"),
    "padding of three": ("gpu/zfp.h", "left == 3u) f[3] = f[0]", "left == 3u) f[3] = f[2]", "zfp:8"),
    "a NaN that goes through a product": ("hb_cast.h", "bits & HB_MAGNITUDE) *", "bits) *", "fp16"),
    "a sum's own NaN": ("hb_float.h", "return sum == sum ?", "return true ?", "2:4"),
    "alignment taken for granted": ("gpu/tiles.h", "((hb_u64)p & (PIECE - 1)) == 0u", "true", "int8:256"),
    "decoded padding in a sum": ("gpu/tiles.h", "t.count ? v[r][i] : 0.0f", "t.count ? v[r][i] : v[r][i]", "sign:32"),
    "a maximum of half a group": ("gpu/grouped.h", "hb_group_max<32>(top)", "hb_group_max<16>(top)", "int4:32/256"),
    "a maximum without its zeros": ("gpu/grouped.h", "? 4u : 2u", "? 2u : 2u", "int3:32/256"),
    "a block of 16 values": ("gpu/block_float.h", "WIDE = HB_MX_BLOCK / 4", "WIDE = HB_MX_BLOCK / 8", "mxfp4"),
    "high bits in another order": ("gpu/block_float.h", "4) << (2 * i)", "4) << (6 - 2 * i)", "mxfp6:e2m3"),
    "a maximum of half a piece": ("gpu/block_float.h", "hb_group_max<32>(most)", "hb_group_max<16>(most)", "nvfp4"),
    "a step of a rotation": ("gpu/rotate.h", "? far - own", "? own - far", "rotate16+int8:256"),
    "a part that is too long": ("gpu/tiles.h", "part::VALUES ? left", "part::VALUES ? 1u + left", "rotate512+sign:64"),
    "a part that is rotated": ("gpu/rotate.h", "<= t.count;", "<= t.count + 4u;", "rotate64+int4:32/256"),
    "a byte too many": ("gpu/warp.h", "i < bytes; i += 32u) to[i]", "i <= bytes; i += 32u) to[i]", "bf16"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_detected(fault: str, tmp_path: Path) -> None:
    *change, name = FAULTS[fault]
    check_detected(sweep, name, plant_fault(tmp_path, *change))


def reserve(size: int) -> Bytes:
    """Return zeros that consume memory only where values are written."""
    no_reserve = 0x4000  # Linux
    return np.frombuffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve), np.uint8)


@pytest.mark.parametrize(
    ("name", "bits", "tile"), [("zfp:13", 13, 128), ("int8:256", 8, 256), ("sign:1024", 1, 1024), ("2:4", 8, 256)]
)
def test_positions_beyond_32_bits(name: str, bits: int, tile: int) -> None:
    """Only the threads for the last 1237 of 2^32 + 1237 values run. `tile` is the number of values per warp."""
    codec, start, x = compiled(name), 2**32, bell(1237, 3).astype(np.float16)
    small = np.zeros(codec.wire_bytes(x.size, F16), np.uint8)
    codec.encode(x, small)
    block = 8 * tile
    front = Front(library(build_of(name, F16, F16)), grid=-(-(start + x.size) // block), first=start // block)

    values = reserve(2 * (start + x.size)).view(np.float16)
    values[start:] = x
    wire = reserve(codec.wire_bytes(values.size, F16))
    front.encode(values, wire)
    begin, length = start * bits // 8, -(-x.size * bits // 32) * 4  # codes only; scales are at the end
    assert same_bits(wire[begin : begin + length], small[:length])
    assert same_bits(wire[wire.size - small.size + length :], small[length:])

    expected = np.zeros_like(x)
    codec.decode(small, expected)
    values[start:] = 7
    front.decode(wire, values)
    assert same_bits(values[start:], expected)
