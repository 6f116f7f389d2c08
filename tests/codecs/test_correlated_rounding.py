"""Tests of correlated rounding: noises that differ between processes only by their offsets."""

import numpy as np
import numpy.typing as npt
import pytest
import reference
from codec_data import Array, bell, builds, decode, same_bits, uniform

from hpcbench.codecs.library import Kernels
from hpcbench.codecs.registry import get_codec

BUILDS = builds()
EVEN = ["int8:32", "int4:32", "int4:32/256", "int3:16/256", "int2:16/256"]
"""Codecs with even levels. The unit of the values of `make_units` is 1."""
TOP = {"int8": 127, "int4": 7, "int3": 3, "int2": 1}
ALL = [*EVEN, "int4:32/256:nonuniform", "int3:16/256:nonuniform"]
N = 4096


def decode_rounded(name: str, x: Array, seed: int, offset: float, build: Kernels | None = None) -> Array:
    """Encode with an offset of the noise, as a fraction of a unit, and decode."""
    codec = get_codec(name, build)
    wire = np.zeros(codec.wire_bytes(x.size, x.dtype), np.uint8)
    codec.encode(x, wire, seed=seed | int(offset * 65536) << 48)
    return decode(codec, wire, x.size, np.float32).astype(np.float64)


def make_units(name: str, seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return positive values in units of the codec, and the same values minus the largest level.

    The first value of each 16 has the largest magnitude, so that the unit is 1.
    """
    top = TOP[name.partition(":")[0]]
    x = (uniform(N, seed) * top).astype(np.float32)
    y = x - np.float32(top)
    x[::16], y[::16] = top, -top
    return x, y


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", ALL)
def test_offsets_and_seeds_equal_the_reference(name: str, build: str) -> None:
    x, codec = bell(N, 80).astype(np.float32), get_codec(f"{name}:correlated", BUILDS[build])
    different = set()
    for seed in (0, 7, 1 << 40, 1 << 56, 0xF000 << 48, 7 | 0x8000 << 48, (1 << 64) - 1):
        wire = np.zeros(codec.wire_bytes(N, x.dtype), np.uint8)
        codec.encode(x, wire, seed=seed)
        assert same_bits(wire, reference.encode(codec.name, x, seed)), hex(seed)
        different.add(wire.tobytes())
    assert len(different) == 7


@pytest.mark.parametrize("name", ALL)
def test_without_offset_the_noise_is_that_of_stochastic_rounding(name: str) -> None:
    x = np.abs(bell(N, 81)).astype(np.float32)  # two-level scales round negative values in the other direction
    assert np.array_equal(decode_rounded(f"{name}:correlated", x, 5, 0), decode_rounded(f"{name}:stochastic", x, 5, 0))


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("name", EVEN)
def test_evenly_spaced_noises_round_a_fixed_number_of_processes_up(name: str, count: int) -> None:
    """The sum over processes is a neighbor of the exact sum, for values of both signs."""
    for x in make_units(name, 82):
        total = sum(decode_rounded(f"{name}:correlated", x, 5, k / count) for k in range(count))
        assert np.abs(total - count * x.astype(np.float64)).max() < 1.01
        independent = sum(decode_rounded(f"{name}:stochastic", x, k, 0) for k in range(count))
        assert np.abs(independent - count * x.astype(np.float64)).max() > 1.2


@pytest.mark.parametrize("name", EVEN)
def test_the_direction_of_rounding_does_not_depend_on_the_sign(name: str) -> None:
    """Equal noise rounds equal fractions up, whether the values are positive or negative."""
    x, y = make_units(name, 83)
    up, also = (decode_rounded(f"{name}:correlated", values, 5, 0.3) > values for values in (x, y))
    inner = np.arange(N) % 16 > 0
    assert (up == also)[inner].mean() > 0.99
    if "/" in name:  # stochastic rounding away from zero
        up, also = (decode_rounded(f"{name}:stochastic", values, 5, 0) > values for values in (x, y))
        assert (up == also)[inner].mean() < 0.8


@pytest.mark.parametrize("offset", [0, 1 / 3, 0.9])
@pytest.mark.parametrize("name", ["int4:32", "int4:32/256", "int3:16/256:nonuniform"])
def test_every_offset_is_unbiased(name: str, offset: float) -> None:
    turns, x = 200, bell(N, 84).astype(np.float32)
    errors = [decode_rounded(f"{name}:correlated", x, seed, offset) - x for seed in range(turns)]
    spread = np.sqrt(np.mean(np.square(errors)))
    bias = np.sqrt(np.mean(np.mean(errors, axis=0) ** 2))
    assert bias == pytest.approx(spread / np.sqrt(turns), rel=0.1)
    nearest = decode_rounded(name, x, 0, 0) - x
    assert np.sqrt(np.mean(nearest**2)) > 5 * bias
