"""MPC against an independent reference in NumPy, and the container against damage."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from codec_data import Array, bell, builds, decode, encode, float_sets, same_bits, words

from hpcbench.codecs.mpc import Mpc

BUILDS = builds()
RAW = 0xFFFF


def reference(x: Array, dim: int) -> bytes:
    """The container, by the description in codecs/mpc.py, word by word."""
    data = x.tobytes()
    v = np.frombuffer(data + bytes(-len(data) % 4), dtype="<u4")
    heads, bodies = [], []
    for start in range(0, v.size, 1024):
        part = v[start : start + 1024]
        chunk = np.concatenate([part, np.zeros(1024 - part.size, dtype=np.uint32)])
        before = np.concatenate([np.zeros(dim, dtype=np.uint32), chunk])[:1024]
        bits = ((chunk - before)[:, None] >> np.arange(32, dtype=np.uint32)) & 1  # row: word, column: bit
        planes = bits.reshape(32, 32, 32).transpose(0, 2, 1).reshape(1024, 32)
        t = (planes.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(axis=1).astype(np.uint32)
        q = t - np.concatenate([np.zeros(1, dtype=np.uint32), t[:-1]])
        count = int((q != 0).sum())
        if 32 + count < part.size:
            heads.append(count)
            bodies.append(np.packbits(q != 0, bitorder="little").tobytes() + q[q != 0].astype("<u4").tobytes())
        else:
            heads.append(RAW)
            bodies.append(part.astype("<u4").tobytes())
    return np.array(heads, dtype="<u2").tobytes() + b"".join(bodies)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dim", range(1, 33))
def test_bytes_of_the_reference(dim: int, build: str) -> None:
    codec = Mpc(dim, BUILDS[build])
    for name, x in float_sets(2500).items():
        wire = encode(codec, x)
        assert wire.tobytes() == reference(x, dim), name
        assert same_bits(decode(codec, wire, x.size, x.dtype), x), name


def test_both_kinds_of_chunk_are_met() -> None:
    kinds = {name: np.frombuffer(reference(x, 1)[:6], dtype="<u2") for name, x in float_sets(2500).items()}
    assert (kinds["bit-patterns"] == RAW).any()
    assert all((kinds[name][:2] < 993).all() for name in ("bell", "smooth", "zeros"))


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8", "i4", "i8", "c8", "?"])
def test_every_length_and_type(dtype: str, build: str) -> None:
    codec = Mpc(1, BUILDS[build])
    item = np.dtype(dtype).itemsize
    edges = {edge // item + k for edge in (4096, 8192) for k in (-1, 0, 1)}
    for n in [*range(10), 31, 32, 33, 1023, 1024, 1025, *sorted(edges)]:
        raw = words(n * item // 8 + 1, 60).view(np.uint8)[: n * item].copy()
        raw[raw.size // 2 :] = 7  # half of it shrinks
        x = (raw & 1).view(bool) if dtype == "?" else raw.view(dtype)
        wire = encode(codec, x)
        assert wire.tobytes() == reference(x, 1), n
        assert same_bits(decode(codec, wire, n, x.dtype), x), n


@pytest.mark.parametrize("build", BUILDS)
def test_every_bit_comes_back(build: str) -> None:
    patterns = [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F800001, 0xFFFFFFFF, 1, 0x807FFFFF]
    x = np.resize(np.array(patterns, dtype=np.uint32), 5000).view(np.float32)
    codec = Mpc(1, BUILDS[build])
    assert same_bits(decode(codec, encode(codec, x), x.size, x.dtype), x)


@pytest.mark.parametrize("build", BUILDS)
def test_any_alignment(build: str) -> None:
    codec = Mpc(2, BUILDS[build])
    x = bell(3001, 61)
    expected = encode(codec, x)
    for offset in (1, 3, 6):
        values = np.zeros(x.nbytes + 8, dtype=np.uint8)[offset : offset + x.nbytes].view(np.float64)
        values[:] = x
        room = codec.wire_bytes(x.size, x.dtype)
        wire = np.zeros(room + 8, dtype=np.uint8)[offset : offset + room]
        used = codec.encode(values, wire)
        assert same_bits(wire[:used], expected)
        values[:] = 1.0
        codec.decode(wire[:used], values, accumulate=True)
        assert same_bits(values.copy(), x + 1.0)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
def test_accumulate_adds_in_the_type_of_the_values(dtype: str, build: str) -> None:
    codec = Mpc(1, BUILDS[build])
    x, base = (bell(2100, 62) * 100).astype(dtype), (bell(2100, 63) * 100).astype(dtype)
    total = base.copy()
    codec.decode(encode(codec, x), total, accumulate=True)
    assert same_bits(total, base + x)


def test_never_grows_by_more_than_it_says() -> None:
    codec = Mpc()
    for n in (1, 1023, 1024, 1025, 10_000):
        x = words(n, 64).astype(np.uint32)
        assert encode(codec, x).size == codec.wire_bytes(n, x.dtype) == 4 * n + 2 * -(-n // 1024)


# ---------------------------------------------------------------------------------------------- damage
def container() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    x = np.concatenate([bell(2048, 65), bell(700, 66)]).astype(np.float32)
    return x, encode(Mpc(), x)


def refused(wire: npt.NDArray[np.uint8], n: int, kernels: Any = None) -> bool:
    out = np.empty(n, dtype=np.float32)
    try:
        Mpc(1, kernels).decode(wire, out)
    except ValueError as error:
        assert str(error).startswith("mpc: ")
        return True
    return False


def test_every_cut_is_refused() -> None:
    x, wire = container()
    for size in [*range(40), *range(40, wire.size, 97), wire.size - 2, wire.size - 1]:
        assert refused(wire[:size].copy(), x.size), size
    assert not refused(wire, x.size)


def test_bytes_behind_the_end_are_refused() -> None:
    x, wire = container()
    assert refused(np.append(wire, np.uint8(0)), x.size)
    assert refused(np.zeros(1, dtype=np.uint8), 0)


@pytest.mark.parametrize("build", BUILDS)
def test_wrong_lengths_and_bitmaps_are_refused(build: str) -> None:
    x, wire = container()
    for length in (0, 1, 992, 993, 1024, 1025, 0x7FFF, 0xFFFE, RAW):
        damaged = wire.copy()
        damaged[2:4] = np.frombuffer(np.array([length], dtype="<u2").tobytes(), dtype=np.uint8)
        assert refused(damaged, x.size, BUILDS[build]), length
    for byte in range(6, 6 + 128):
        damaged = wire.copy()
        damaged[byte] ^= 0x10
        assert refused(damaged, x.size, BUILDS[build]), byte


def test_another_number_of_values_is_refused() -> None:
    x, wire = container()
    for n in (x.size - 1024, x.size + 1024, 0):
        assert refused(wire, n), n
