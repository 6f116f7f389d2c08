"""Tests that the ZFP stream equals that of libzfp, at every rate and with every build."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zfpy
from codec_data import bell, builds, decode, encode, float_sets, random_words, same_bits

from hpcbench.codecs.zfp import ZfpCodec

RATES = range(4, 33)
BUILDS = builds()
N = 4099  # 64 groups of 16 blocks, and a block of three values
SETS = float_sets(N)


def zfp_bytes(x: npt.NDArray[np.float32], rate: int) -> bytes:
    return bytes(zfpy.compress_numpy(x, rate=rate, write_header=False))


def zfp_values(stream: bytes, n: int, rate: int) -> npt.NDArray[Any]:
    kind = zfpy.dtype_to_ztype(np.dtype(np.float32))
    values: npt.NDArray[Any] = zfpy._decompress(stream + bytes(8), kind, (n,), rate=rate)
    return values


def random_stream(rate: int, blocks: int, seed: int, sparse: bool) -> npt.NDArray[np.uint8]:
    """Return non-zero blocks of random bits whose exponents libzfp can scale without overflow."""
    mb = 4 * rate
    bits = (random_words(blocks * mb, seed) & np.uint64(1)).astype(np.uint8).reshape(blocks, mb)
    if sparse:  # many empty bit planes, so coefficients become significant late or never
        bits &= (random_words(blocks * mb, seed + 1) % np.uint64(4) == 0).astype(np.uint8).reshape(blocks, mb)
    bits[:, 0] = 1
    exponent = 60 + random_words(blocks, seed + 2) % np.uint64(140)
    bits[:, 1:9] = (exponent[:, None] >> np.arange(8, dtype=np.uint64)) & np.uint64(1)
    stream = np.packbits(bits.ravel(), bitorder="little")
    return np.concatenate([stream, np.zeros(-stream.size % 8, dtype=np.uint8)])


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("rate", RATES)
def test_same_bytes_and_values_as_zfpy(rate: int, build: str) -> None:
    codec = ZfpCodec(rate, BUILDS[build])
    for name, x in SETS.items():
        reference = zfp_bytes(x, rate)
        wire = encode(codec, x)
        assert wire.tobytes() == reference, name
        assert wire.size == codec.wire_bytes(x.size, x.dtype), name
        assert same_bits(decode(codec, wire, x.size, x.dtype), zfp_values(reference, x.size, rate)), name


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("rate", RATES)
def test_random_streams_decode_as_zfpy_decodes_them(rate: int, build: str) -> None:
    codec = ZfpCodec(rate, BUILDS[build])
    for sparse in (False, True):
        stream = random_stream(rate, 16 * 33, 1000 * rate, sparse)
        n = 4 * 16 * 33
        assert same_bits(decode(codec, stream, n, np.float32), zfp_values(stream.tobytes(), n, rate))


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("rate", [4, 5, 8, 11, 13, 16, 24, 31, 32])
def test_every_length(rate: int, build: str) -> None:
    codec = ZfpCodec(rate, BUILDS[build])
    values = bell(1100, 30).astype(np.float32)
    for n in [*range(10), *range(55, 75), *range(250, 262), *range(1020, 1029)]:
        x = values[:n].copy()
        wire = encode(codec, x)
        assert wire.size == -(-(-(-n // 4) * 4 * rate) // 64) * 8
        if n:
            assert wire.tobytes() == zfp_bytes(x, rate), n
            assert same_bits(decode(codec, wire, n, np.float32), zfp_values(wire.tobytes(), n, rate)), n


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("rate", [4, 7, 16, 25])
def test_any_alignment(rate: int, build: str) -> None:
    codec = ZfpCodec(rate, BUILDS[build])
    x = bell(777, 31).astype(np.float32)
    expected = encode(codec, x)
    for offset in (1, 2, 3, 5):
        values = np.zeros(x.nbytes + 8, dtype=np.uint8)[offset : offset + x.nbytes].view(np.float32)
        values[:] = x
        wire = np.zeros(expected.size + 8, dtype=np.uint8)[offset : offset + expected.size]
        assert codec.encode(values, wire) == expected.size
        assert same_bits(wire, expected)
        values[:] = 0
        codec.decode(wire, values)
        assert same_bits(values.copy(), decode(codec, expected, x.size, x.dtype))


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("rate", RATES)
def test_nan_and_infinity_survive(rate: int, build: str) -> None:
    codec = ZfpCodec(rate, BUILDS[build])
    x = bell(4 * 300, 32).astype(np.float32)
    specials = np.array([np.nan, np.inf, -np.inf, -np.nan], dtype=np.float32)
    kind = (random_words(x.size, 33) % np.uint64(12)).astype(np.int64)
    touched = (random_words(300, 34) % np.uint64(3) == 0).repeat(4)
    place = touched & (kind < 4)
    x[place] = specials[kind[place]]
    y = decode(codec, encode(codec, x), x.size, x.dtype)

    infinite = np.isinf(x)
    assert infinite.any() and np.isnan(x).any()
    assert (y[infinite] == x[infinite]).all(), "infinities keep sign and place"
    assert (np.isinf(y) == infinite).all(), "no others appear"
    spoilt = (~np.isfinite(x)).reshape(-1, 4).any(axis=1).repeat(4)
    assert np.isnan(y[spoilt & ~infinite]).all(), "their neighbors get no wrong value"
    clean = np.where(spoilt, np.float32(0), x)
    assert same_bits(y[~spoilt], zfp_values(zfp_bytes(clean, rate), x.size, rate)[~spoilt]), "other blocks unharmed"
    total = np.ones(x.size, dtype=np.float32)
    codec.decode(encode(codec, x), total, accumulate=True)
    assert (~np.isfinite(total) == spoilt).all(), "and they survive a sum"


@pytest.mark.parametrize("build", BUILDS)
def test_blocks_below_the_scale_of_libzfp(build: str) -> None:
    """Below 2^-98, libzfp's scale overflows and all values become the maximum.

    The codec keeps the relative precision.
    """
    codec = ZfpCodec(24, BUILDS[build])
    for exponent in (-100, -120, -126):
        x = np.ldexp(bell(400, 35), exponent).astype(np.float32)
        y = decode(codec, encode(codec, x), x.size, x.dtype)
        assert np.abs(y.astype(np.float64) - x).max() <= 2.0**-14 * np.abs(x).max()
    subnormal = np.ldexp(bell(400, 36), -140).astype(np.float32)
    y = decode(codec, encode(codec, subnormal), 400, np.float32)
    assert np.abs(y.astype(np.float64) - subnormal).max() <= np.ldexp(1.0, -140)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("rate", [4, 8, 9, 16, 30])
def test_accumulate_is_decode_and_add(rate: int, build: str) -> None:
    codec = ZfpCodec(rate, BUILDS[build])
    x, base = bell(1030, 37).astype(np.float32), bell(1030, 38).astype(np.float32)
    wire = encode(codec, x)
    total = base.copy()
    codec.decode(wire, total, accumulate=True)
    assert same_bits(total, base + decode(codec, wire, x.size, x.dtype))


def test_a_flipped_bit_is_detected() -> None:
    """The comparison must detect a change to any bit in a block's header and first planes."""
    x = SETS["bell"]
    wire = encode(ZfpCodec(8), x)
    expected = zfp_values(wire.tobytes(), x.size, 8)
    for bit in range(20):
        flipped = wire.copy()
        flipped[bit // 8] ^= 1 << bit % 8
        assert not same_bits(decode(ZfpCodec(8), flipped, x.size, x.dtype), expected), bit
