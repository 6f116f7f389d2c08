"""Tests that casts, block integers and signs equal the reference in every build: bytes and decoded values."""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import reference
from codec_data import bell, builds, decode, encode, float_sets, random_words, same_bits

from hpcbench.codecs.base import Codec
from hpcbench.codecs.quant import Quant
from hpcbench.codecs.registry import get_codec

NAMES = [
    *("fp16", "bf16", "fp8e4m3", "fp8e5m2"),
    *("int8:32", "int8:256", "int8:1024", "int8:64:stochastic", "int4:32", "int4:512", "int4:128:stochastic"),
    *(
        "int8:128:correlated",
        "int4:64:correlated",
        "int4:16/256:nonuniform:correlated",
        "rotate64+int3:32/256:correlated",
    ),
    *("sign:32", "sign:64", "sign:128", "sign:1024"),
    *(
        "int4:32/256",
        "int4:16/256:nonuniform",
        "int4:32/256:nonuniform:stochastic",
        "int3:32/256",
        "int3:16/256:nonuniform",
    ),
    *("int2:16/256", "int2:32/256:stochastic"),
    *(
        "mxfp8:e4m3",
        "mxfp8:e5m2:rceil",
        "mxfp6:e2m3:even",
        "mxfp6:e3m2",
        "mxfp4",
        "mxfp4:ceil",
        "mxfp4:even",
        "mxfp4:rceil",
    ),
    *("nvfp4", "rotate64+mxfp4:rceil", "rotate128+nvfp4", "hadamard32+mxfp6:e2m3"),
    *("rotate512+int3:16/256", "hadamard1024+mxfp4"),
    *("rotate64+int4:32/256", "hadamard16+int8:1024", "rotate256+sign:32", "hadamard128+fp8e4m3", "rotate32+int4:32"),
]
BUILDS = builds()
LENGTHS = [*range(10), *range(30, 35), *range(125, 132), 255, 256, 257, 1000, *range(1022, 1028), 2047, 2500]


def hard_sets(n: int) -> dict[str, npt.NDArray[np.float32]]:
    """Return the common data sets, and values at the limits of float32."""
    sets = float_sets(n)
    bits = random_words(n, 60).astype(np.uint32).view(np.float32)
    sets["any-bits"] = np.where(np.isfinite(bits), bits, np.float32(0))
    sets["any-bits-special"] = bits
    sets["subnormal"] = np.ldexp(bell(n, 61), -130).astype(np.float32)
    sets["tiny"] = np.ldexp(bell(n, 62), -146).astype(np.float32)
    sets["huge"] = np.ldexp(np.tanh(bell(n, 63)), 128).astype(np.float32)
    sets["infinite"] = np.where(sets["bell"] > 2e-3, np.float32(np.inf), sets["bell"])
    sets["infinite"][n // 2] = -np.inf
    sets["not-a-number"] = np.where(sets["bell"] > 2e-3, np.float32(np.nan), -sets["bell"])
    return sets


SETS = hard_sets(3001)


def same_values(a: Any, b: Any) -> bool:
    """Return whether two arrays are bitwise identical, except that all NaNs are equal."""
    nan = np.isnan(a)
    return bool((np.isnan(b) == nan).all()) and same_bits(np.where(nan, 0, a), np.where(nan, 0, b))


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", NAMES)
def test_bytes_and_values_equal_the_reference(name: str, build: str) -> None:
    codec = get_codec(name, BUILDS[build])
    for label, x in SETS.items():
        wire = encode(codec, x)
        assert same_bits(wire, reference.encode(name, x)), label
        y = decode(codec, wire, x.size, np.float32)
        assert same_values(y, reference.decode(name, wire, x.size)), label


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_length_and_alignment(name: str, build: str) -> None:
    codec = get_codec(name, BUILDS[build])
    values = bell(max(LENGTHS), 64).astype(np.float32)
    for n in LENGTHS:
        x = values[:n].copy()
        expected = reference.encode(name, x)
        wire = encode(codec, x)
        assert wire.size == codec.wire_bytes(n, x.dtype) == expected.size, n
        assert same_bits(wire, expected), n
        for offset in (1, 2, 3):
            odd = np.zeros(x.nbytes + 4, dtype=np.uint8)[offset : offset + x.nbytes].view(np.float32)
            odd[:] = x
            odd_wire = np.zeros(wire.size + 4, dtype=np.uint8)[offset : offset + wire.size]
            codec.encode(odd, odd_wire)
            assert same_bits(odd_wire, expected), (n, offset)
            odd[:] = 7
            codec.decode(odd_wire, odd)
            assert same_values(odd.copy(), reference.decode(name, expected, n)), (n, offset)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", [*NAMES, "zfp:8", "zfp:21"])
def test_short_types_are_coded_through_float32(name: str, dtype: Any, build: str) -> None:
    codec = get_codec(name, BUILDS[build])
    for label, x in SETS.items():
        with np.errstate(over="ignore", invalid="ignore"):
            half = x.astype(dtype)
            wide = half.astype(np.float32)
        wire = encode(codec, half)
        assert same_bits(wire, encode(codec, wide)), label
        expected = decode(codec, wire, x.size, np.float32)
        with np.errstate(over="ignore"):
            rounded = expected.astype(dtype)
        got = decode(codec, wire, x.size, dtype)
        assert same_values(got.astype(np.float32), rounded.astype(np.float32)), label
        total = np.full(x.size, 0.25, dtype=dtype)
        codec.decode(wire, total, accumulate=True)
        with np.errstate(over="ignore", invalid="ignore"):
            sums = (np.float32(0.25) + expected).astype(dtype)
        assert same_values(total.astype(np.float32), sums.astype(np.float32)), label
        sum32 = np.full(x.size, 0.25, dtype=np.float32)
        codec.decode(wire, sum32, dtype=np.dtype(dtype), accumulate=True)
        with np.errstate(invalid="ignore"):
            assert same_values(sum32, np.float32(0.25) + expected), label


@pytest.mark.parametrize("name", NAMES)
def test_error_stays_in_the_bound(name: str) -> None:
    codec = get_codec(name)
    checked = 0
    for label, x in SETS.items():
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
            with np.errstate(over="ignore", invalid="ignore"):
                v = x.astype(dtype)
                wide = v.astype(np.float64)
                bound = codec.error_bound(v)
            if bound is None:
                assert not np.isfinite(wide).all() or np.abs(wide).max() > 2.0**7, label
                continue
            y = decode(codec, encode(codec, v), v.size, dtype)
            error = np.abs(y.astype(np.float64) - v.astype(np.float64)).max()
            assert error <= bound, (label, dtype)
            if name.startswith(("int", "bf")) and label == "bell" and dtype is np.float32:
                assert error > bound / 3, "the bound is not trivial"
            checked += 1
    assert checked > 40


@pytest.mark.parametrize("name", [name for name in NAMES if "/256" in name and "+" not in name])
def test_finite_values_stay_finite(name: str) -> None:
    """The unit of int3 with uneven levels may exceed the largest float32."""
    x = np.full(512, 1e-3, np.float32)
    x[::40] = [3.3e38, -3.3e38, 1.5e38, -1e38] * 3 + [2e38]
    y = decode(get_codec(name), encode(get_codec(name), x), x.size, np.float32)
    assert np.isfinite(y).all()
    assert (np.sign(y) * np.sign(x) >= 0).all() and np.abs(y).max() > 1e38


@pytest.mark.parametrize("name", [*NAMES, "zfp:8", "2:4"])
def test_an_overflow_reaches_the_receiver(name: str) -> None:
    codec = get_codec(name)
    clean = bell(3000, 65).astype(np.float32)
    for special in (np.inf, -np.inf, np.nan):
        for place in (0, 1500, 2999):
            x = clean.copy()
            x[place] = special
            y = decode(codec, encode(codec, x), x.size, np.float32)
            assert not np.isfinite(y[place])
            if np.isinf(special) and not name.startswith(("fp8e4m3", "mx", "nv")) and "+" not in name:
                assert y[place] == special or (name.startswith("sign") and np.isinf(y[place]))
            apart = np.abs(np.arange(x.size) - place) > 1024
            assert np.isfinite(y[apart]).all(), "other blocks unharmed"


def test_scales_keep_small_gradients() -> None:
    """Values that a cast to fp16 would flush to zero keep their mantissa."""
    x = (bell(4096, 66) * 1e-9).astype(np.float32)
    assert (x.astype(np.float16) == 0).all()
    y = decode(get_codec("fp16"), encode(get_codec("fp16"), x), x.size, np.float32)
    near = np.abs(x) > np.abs(x).max() * 2.0**-10
    assert (np.abs(y - x)[near] <= np.abs(x[near]) * 2.0**-11).all()


@pytest.mark.parametrize(("name", "dtype"), [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_a_cast_to_the_same_type_loses_nothing(name: str, dtype: Any) -> None:
    x = random_words(1 << 16, 67).astype(np.uint16).view(dtype)
    x = x[np.isfinite(x.astype(np.float32))]
    # limit the range within a block: a power of two has 8 bits, and half precision spans 30 binades
    x = x[np.argsort(np.abs(x.astype(np.float32)), kind="stable")].copy()
    assert same_bits(decode(get_codec(name), encode(get_codec(name), x), x.size, dtype), x)


def test_stochastic_rounding_is_unbiased() -> None:
    n, turns = 2048, 400
    x = bell(n, 68).astype(np.float32)
    codec = Quant(4, 256, "stochastic")
    total, square = np.zeros(n), np.zeros(n)
    for seed in range(turns):
        y = np.zeros_like(x)
        wire = np.zeros(codec.wire_bytes(n, x.dtype), dtype=np.uint8)
        codec.encode(x, wire, seed=seed)
        codec.decode(wire, y)
        total += y
        square += (y.astype(np.float64) - x) ** 2
    unit = np.abs(x.reshape(-1, 256)).max(axis=1).repeat(256) / 7
    deviation = np.abs(total / turns - x) / unit
    assert deviation.max() < 5 * 0.5 / np.sqrt(turns), "five standard errors of a random rounding"
    assert (total / turns - x).sum() / unit.sum() < 4 * 0.5 / np.sqrt(turns * n)
    nearest = Quant(4, 256)
    bias = np.abs(decode(nearest, encode(nearest, x), n, np.float32) - x) / unit
    assert bias.max() > 0.4, "rounding to nearest is biased"


def test_other_seeds_and_positions_give_other_noise() -> None:
    x = bell(4096, 69).astype(np.float32)
    codec = Quant(8, 128, "stochastic")

    def wire(seed: int) -> npt.NDArray[np.uint8]:
        out = np.zeros(codec.wire_bytes(x.size, x.dtype), dtype=np.uint8)
        codec.encode(x, out, seed=seed)
        return out

    assert same_bits(wire(3), wire(3))
    assert same_bits(wire(3), reference.encode(codec.name, x, 3))
    assert same_bits(wire(2**63 + 5), reference.encode(codec.name, x, 2**63 + 5))
    assert 0.3 < (wire(3) != wire(4)).mean() < 0.6
    assert 0.3 < (wire(3) != wire(3 + 2**32)).mean() < 0.6
    half = np.full(4096, 0.5 / 127, dtype=np.float32)
    half[::128] = 1
    up = decode(codec, encode(codec, half), half.size, np.float32) > 0.5 / 127
    runs = (up[1:] == up[:-1]).mean()
    assert 0.45 < runs < 0.55, "neighbours are independent"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", [*NAMES, "zfp:8", "none", "2:4"])
def test_residual_is_the_encoding_error(name: str, dtype: Any) -> None:
    codec: Codec = get_codec(name)
    n = 2500
    x = bell(n, 71).astype(dtype)
    residual = (bell(n, 72) * 0.1).astype(np.float32)
    wanted = x.astype(np.float32) + residual
    wire = np.zeros(codec.wire_bytes(n, x.dtype), dtype=np.uint8)
    used = codec.encode(x, wire, residual=residual, seed=9)
    sent = np.zeros(n, dtype=np.float32)
    codec.decode(wire[:used], sent, dtype=np.dtype(dtype))
    assert same_bits(residual, wanted - sent)
    if codec.name not in ("none", "bf16", "fp16"):
        assert np.abs(residual).max() > 0
    x[100], x[200] = np.inf, np.nan
    codec.encode(x, wire, residual=residual, seed=9)
    assert np.isfinite(residual).all(), "an overflow does not persist"


@pytest.mark.parametrize("name", ["sign:1024", "int4:32", "fp8e5m2"])
def test_error_feedback_sends_everything_in_the_end(name: str) -> None:
    """With feedback, the mean of the received values converges to the sent value.

    Without feedback, the mean is constant.
    """
    codec = get_codec(name)
    x = bell(1024, 73).astype(np.float32)
    wire = np.zeros(codec.wire_bytes(x.size, x.dtype), dtype=np.uint8)
    residual, with_feedback, without = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    turns = 200
    for _ in range(turns):
        codec.encode(x, wire, residual=residual)
        codec.decode(wire, with_feedback, accumulate=True)
        codec.encode(x, wire)
        codec.decode(wire, without, accumulate=True)
    assert np.abs(with_feedback / turns - x).mean() < np.abs(without / turns - x).mean() / 10
    assert np.abs(with_feedback + residual - turns * x).max() < 1e-2 * turns * 2**-7


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", [*NAMES, "zfp:8", "zfp:13", "2:4", "none"])
def test_one_hop_is_decode_add_encode(name: str, dtype: Any) -> None:
    codec = get_codec(name)
    for n in (0, 1, 5, 127, 1024, 2500):
        theirs, ours = bell(n, 74).astype(dtype), bell(n, 75).astype(dtype)
        wire = encode(codec, theirs)
        total = ours.astype(np.float32)
        codec.decode(wire, total, dtype=np.dtype(dtype), accumulate=True)
        expected = np.zeros(codec.wire_bytes(n, ours.dtype), dtype=np.uint8)
        if codec.name == "none":  # rounds the sum to the dtype
            codec.encode(total.astype(dtype), expected)
        elif codec.name == "2:4":
            codec.encode(total.astype(dtype), expected)
            if dtype is not np.float32:
                continue  # selects before rounding
        else:
            codec.encode(total, expected, seed=5)
        out = np.full(expected.size + 8, 0xA5, dtype=np.uint8)
        used = codec.decode_add_encode(wire, ours, out[: expected.size], seed=5)
        assert used == expected.size
        assert same_bits(out[:used], expected), n
        assert (out[used:] == 0xA5).all()


def test_the_reference_is_not_the_kernel() -> None:
    """The comparison must detect a scale, code or sign that is off by one."""
    x = SETS["bell"]
    for name in ("int8:256", "fp8e4m3", "sign:64"):
        wire = encode(get_codec(name), x)
        for at in (0, wire.size - 1):
            wrong = wire.copy()
            wrong[at] ^= 1
            assert not same_bits(wrong, reference.encode(name, x))
            assert not same_values(reference.decode(name, wrong, x.size), reference.decode(name, wire, x.size))
