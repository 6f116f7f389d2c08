"""Tests that the error bound of ZFP holds for every input and is reasonably tight."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from codec_data import decode, encode, float_sets, integers, uniform
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hpcbench.codecs.zfp import ZfpCodec

RATES = range(4, 33)


def largest_error(codec: ZfpCodec, x: npt.NDArray[np.float32]) -> float:
    y = decode(codec, encode(codec, x), x.size, x.dtype)
    return float(np.abs(y.astype(np.float64) - x).max(initial=0.0))


@pytest.mark.parametrize("rate", RATES)
def test_holds_on_training_like_data(rate: int) -> None:
    codec = ZfpCodec(rate)
    for name, x in float_sets(2048).items():
        bound = codec.error_bound(x)
        assert bound is not None
        assert largest_error(codec, x) <= bound, name


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**124), max_value=2.0**124)
# values near powers of two, a half and a quarter of them, and much smaller values, which fill and empty bit planes
CORNERS = st.builds(
    lambda sign, base, nudge, scale: sign * (base + nudge) * scale,
    st.sampled_from([-1.0, 1.0]),
    st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]),
    st.sampled_from([0.0, 2.0**-24, -(2.0**-24), 2.0**-12, 1 / 3]),
    st.sampled_from([1.0, 0.5, 2.0**-7, 2.0**-20, 2.0**-126]),
)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(RATES),
    hnp.arrays(np.float32, st.integers(1, 24), elements=FINITE | CORNERS.map(lambda v: float(np.float32(v)))),
)
@example(4, np.array([-1.0, 1.0, 1.0, -1.0], dtype=np.float32))
@example(8, np.array([2.0**-149, 0, 0, 0], dtype=np.float32))
@example(32, np.array([2.0**124, -(2.0**124), 2.0**-149, 1], dtype=np.float32))
def test_holds_on_adversarial_data(rate: int, x: npt.NDArray[np.float32]) -> None:
    codec = ZfpCodec(rate)
    bound = codec.error_bound(x)
    assert bound is not None
    assert largest_error(codec, x) <= bound


@pytest.mark.parametrize("rate", RATES)
def test_holds_on_many_corner_blocks_and_is_tight(rate: int) -> None:
    """In 40,000 blocks of corner values, the largest error is between 1/30 of the bound and the bound."""
    n = 160_000
    levels = np.array([0, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, 0.999, 1 - 2.0**-24], dtype=np.float64)
    x = levels[integers(n, 0, 8, 50)] * np.where(uniform(n, 51) < 0.5, -1.0, 1.0)
    x *= np.where(uniform(n, 52) < 0.2, 2.0**-8, 1.0)
    codec = ZfpCodec(rate)
    values = x.astype(np.float32)
    bound = codec.error_bound(values)
    assert bound is not None
    worst = largest_error(codec, values)
    assert worst <= bound
    assert worst >= bound / 30


def test_halves_with_each_bit() -> None:
    x = np.ones(4, dtype=np.float32)
    bounds = [ZfpCodec(rate).error_bound(x) for rate in range(8, 25)]
    for wide, narrow in itertools.pairwise(bounds):
        assert wide is not None and narrow is not None
        assert narrow < 0.51 * wide


def test_no_bound_for_non_finite_and_huge_values() -> None:
    codec = ZfpCodec(8)
    for value in (np.nan, np.inf, -np.inf):
        assert codec.error_bound(np.array([1, value], dtype=np.float32)) is None
    huge = np.full(4, np.finfo(np.float32).max)
    assert codec.error_bound(huge) is None, "decoding may round up to infinity"
    assert codec.error_bound(np.zeros(5, dtype=np.float32)) == 0.0
    assert codec.error_bound(np.zeros(0, dtype=np.float32)) == 0.0
