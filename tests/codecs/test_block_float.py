"""Tests of block floats against torchao and against examples of the formats, in every build."""

import json
import math

import numpy as np
import pytest
from codec_data import Array, bell, builds, decode, encode
from make_torchao import FILE, NAMES, digest, inputs, nvfp4_inputs

from hpcbench.codecs.block_float import Mx
from hpcbench.codecs.registry import get_codec

BUILDS = builds()
TORCHAO = json.loads(FILE.read_text())["digests"]


def parts(name: str, wire: Array, n: int) -> tuple[Array, Array]:
    """Return a code per value and a byte per block, given the bytes of n values. n is a multiple of 1024."""
    if name.startswith("mxfp8"):
        return wire[:n], wire[n:]
    codes = np.stack([wire[: n // 2] & 15, wire[: n // 2] >> 4], axis=1).ravel()
    if name.startswith("mxfp6"):
        high = wire[n // 2 : 3 * n // 4]
        codes = codes | np.stack([high >> shift & 3 for shift in (0, 2, 4, 6)], axis=1).ravel() << 4
        return codes, wire[3 * n // 4 :]
    return codes, wire[n // 2 + (n // 1024 * 4 if name == "nvfp4" else 0) :]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", [*NAMES, "nvfp4"])
def test_codes_and_scales_equal_those_of_torchao(name: str, build: str) -> None:
    sets = nvfp4_inputs() if name == "nvfp4" else inputs()
    codec = get_codec(name, BUILDS[build])
    assert {label: digest(*parts(name, encode(codec, x), x.size)) for label, x in sets.items()} == TORCHAO[name]


def relative_error(name: str, values: Array) -> float:
    """Return the RMS error relative to the RMS of the values."""
    x = values.astype(np.float32)
    y = decode(get_codec(name), encode(get_codec(name), x), x.size, np.float32)
    wide = x.astype(np.float64)
    return float(np.sqrt(np.mean((y - wide) ** 2) / np.mean(wide**2)))


def first_scale(name: str, largest: float) -> int:
    """Return the scale byte of a block with this largest magnitude."""
    x = np.zeros(1024, np.float32)
    x[3], x[4] = -largest, largest / 3
    return int(parts(name, encode(get_codec(name), x), x.size)[1][0])


@pytest.mark.parametrize(
    ("largest", "floor", "ceil", "even", "rceil"),
    [
        (6.0, 127, 128, 127, 127),
        (6.5, 127, 128, 127, 128),
        (7.0, 127, 128, 128, 128),
        (8.0, 128, 128, 128, 128),
        (4.0, 127, 127, 127, 127),
        (2.0**-149, 0, 0, 0, 0),
        (2.0**-125, 0, 0, 0, 0),
        (3.4e38, 252, 253, 253, 253),
    ],
)
def test_scales_of_4_bits(largest: float, floor: int, ceil: int, even: int, rceil: int) -> None:
    rules = {"mxfp4": floor, "mxfp4:ceil": ceil, "mxfp4:even": even, "mxfp4:rceil": rceil}
    assert {name: first_scale(name, largest) for name in rules} == rules


def test_ties_of_4_bits_round_to_even_and_large_values_saturate() -> None:
    x = np.zeros(32, np.float32)
    x[:10] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -5.0, 7.9, -0.25]
    wire = encode(get_codec("mxfp4"), x)
    assert wire.size == 17
    y = decode(get_codec("mxfp4"), wire, x.size, np.float32)
    np.testing.assert_array_equal(y[:10], np.array([0, 1, 1, 2, 2, 4, 4, -4, 6, -0.0], np.float32))
    assert np.signbit(y[9])


@pytest.mark.parametrize(
    ("name", "largest", "least"),
    [
        ("mxfp8:e4m3", 448.0, 2.0**-9),
        ("mxfp8:e5m2", 57344.0, 2.0**-16),
        ("mxfp6:e2m3", 7.5, 0.125),
        ("mxfp6:e3m2", 28.0, 2.0**-4),
        ("mxfp4", 6.0, 0.5),
    ],
)
def test_range_of_elements(name: str, largest: float, least: float) -> None:
    """The largest and the smallest element are exact at a scale of 1.

    Values between 0 and the smallest element are rounded.
    """
    x = np.zeros(64, np.float32)
    x[:4] = [largest, least, 0.51 * least, 0.5 * least]
    y = decode(get_codec(name), encode(get_codec(name), x), x.size, np.float32)
    np.testing.assert_array_equal(y[:4], np.array([largest, least, least, 0], np.float32))
    x[4] = 2 ** math.floor(math.log2(largest) + 1) * 0.999
    y = decode(get_codec(name), encode(get_codec(name), x), x.size, np.float32)
    assert y[4] == largest, "the rule floor saturates"


@pytest.mark.parametrize("name", ["mxfp8:e4m3", "mxfp8:e5m2", "mxfp6:e3m2", "mxfp4:rceil", "nvfp4"])
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_only_the_block_of_a_special_value_becomes_nan(name: str, special: float) -> None:
    x = bell(4096, 90).astype(np.float32)
    clean = decode(get_codec(name), encode(get_codec(name), x), x.size, np.float32)
    block = 16 if name == "nvfp4" else 32
    x[1234] = special
    y = decode(get_codec(name), encode(get_codec(name), x), x.size, np.float32)
    broken = np.arange(x.size) // block == 1234 // block
    assert np.isnan(y[broken]).all()
    other = np.arange(x.size) // 1024 != 1234 // 1024 if name == "nvfp4" else ~broken
    np.testing.assert_array_equal(y[other], clean[other])
    assert np.isfinite(y[~broken]).all()


def test_special_elements_of_a_stream_decode_to_special_values() -> None:
    """The encoders of hpcbench never write such elements, but the specification defines them."""
    wire = np.zeros(33, np.uint8)
    wire[:4], wire[32] = [0x7C, 0xFC, 0x7E, 0x3C], 127
    y = decode(get_codec("mxfp8:e5m2"), wire, 32, np.float32)
    np.testing.assert_array_equal(y[:4], np.array([np.inf, -np.inf, np.nan, 1], np.float32))
    wire[:4] = [0x7F, 0xFF, 0x7E, 0x38]
    y = decode(get_codec("mxfp8:e4m3"), wire, 32, np.float32)
    np.testing.assert_array_equal(y[:4], np.array([np.nan, np.nan, 448, 1], np.float32))


def test_nvfp4_example() -> None:
    """With a maximum of 2688, the scale of a piece is 1.

    The block that contains 5 has a scale of 0.8125, so 5 becomes 4.875.
    """
    x = np.zeros(64, np.float32)
    x[0], x[16], x[32] = 2688, 5, -6
    wire = encode(get_codec("nvfp4"), x)
    assert wire.size == 32 + 4 + 4
    assert wire[32:36].view(np.float32)[0] == 2688
    assert list(wire[36:]) == [0x7E, 0x35, 0x38, 0]
    y = decode(get_codec("nvfp4"), wire, x.size, np.float32)
    assert (y[0], y[16], y[32]) == (2688, 4.875, -6)


def test_each_piece_of_nvfp4_has_its_own_scale() -> None:
    x = np.concatenate([bell(1024, 91) * 1e9, bell(1024, 92) * 1e-9]).astype(np.float32)
    y = decode(get_codec("nvfp4"), encode(get_codec("nvfp4"), x), x.size, np.float32)
    apart = decode(get_codec("nvfp4"), encode(get_codec("nvfp4"), x[1024:]), 1024, np.float32)
    np.testing.assert_array_equal(y[1024:], apart)
    assert relative_error("nvfp4", x[1024:]) < 0.11


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        *((name, scale) for name in ("mxfp4:rceil", "mxfp8:e4m3", "nvfp4") for scale in (1e-36, 1e-20, 1e37)),
        ("nvfp4", 1e-40),
    ],
)
def test_magnitudes_do_not_change_the_error(name: str, scale: float) -> None:
    x = bell(2048, 93)
    assert relative_error(name, x * scale) == pytest.approx(relative_error(name, x), rel=0.2)


@pytest.mark.parametrize(
    ("family", "element", "rule"), [("mxfp8", "e2m1", "floor"), ("mxfp4", "e2m1", "up"), ("mxfp6", "e4m3", "even")]
)
def test_forms_that_do_not_exist(family: str, element: str, rule: str) -> None:
    with pytest.raises(ValueError, match="is not a supported combination"):
        Mx(family, element, rule)


def test_measured_errors() -> None:
    """The expected relative errors for normally distributed values follow from the formats."""
    x = np.random.default_rng(1).normal(size=1 << 16)
    expected = {"mxfp4": 0.115, "mxfp4:rceil": 0.115, "mxfp4:even": 0.112, "nvfp4": 0.095}
    expected |= {"mxfp6:e2m3": 0.028, "mxfp6:e3m2": 0.054, "mxfp8:e4m3": 0.029, "mxfp8:e4m3:rceil": 0.0265}
    for name, error in expected.items():
        assert relative_error(name, x) == pytest.approx(error, rel=0.03), name
