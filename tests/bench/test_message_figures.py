"""The figures of messages against data whose figures are known, and against other ways to compute them."""

import math
import zlib
from collections import Counter

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept_runs import gaussian, low, message

from hpcbench.bench.messages.coded import DEFAULT, all_through
from hpcbench.bench.messages.fields import entropy, fields
from hpcbench.bench.messages.magnitudes import magnitudes
from hpcbench.bench.messages.spectrum import MOST, control, energy_rank, matrices, ranks, spectra
from hpcbench.codecs.registry import get_codec

TYPES = {
    "float64": (np.float64, 11, 52),
    "float32": (np.float32, 8, 23),
    "float16": (np.float16, 5, 10),
    "bfloat16": (ml_dtypes.bfloat16, 8, 7),
}
every_type = pytest.mark.parametrize("name", TYPES)


def counted(symbols) -> float:
    """Entropy by its definition, symbol by symbol."""
    counts = Counter(symbols)
    total = sum(counts.values())
    return -sum(n / total * math.log2(n / total) for n in counts.values())


@every_type
def test_a_constant_has_no_information(name: str) -> None:
    found = fields(np.full(100, -1.5, TYPES[name][0]))
    assert (found.zeros, found.exponent, found.sign, found.mantissa, found.bits) == (0, 0, 0, 0, 0)
    assert found.ratio == math.inf


def test_zeros_are_zeros_of_both_signs() -> None:
    assert fields(np.zeros(64, np.float32)).bits == 0
    both = fields(np.array([0.0, -0.0] * 32, np.float32))
    assert (both.zeros, both.bits) == (1.0, 1.0), "the sign of zero must come back"
    half = fields(np.array([0.0, 1.0] * 32, np.float32))
    assert (half.zeros, half.exponent, half.bits, half.ratio) == (0.5, 1.0, 1.0, 32.0)
    assert fields(np.array([0.0, 1e-42] * 32, np.float32)).zeros == 0.5, "what has no leading one is not zero"


@every_type
def test_powers_of_two_have_exponents_alone(name: str) -> None:
    dtype, _, _ = TYPES[name]
    x = np.repeat(2.0 ** np.arange(-8, 8), 10).astype(dtype)
    found = fields(x)
    assert found.exponent == pytest.approx(4.0, abs=1e-12), "16 exponents, all as frequent"
    assert (found.sign, found.mantissa) == (0, 0)
    assert found.ratio == pytest.approx(x.dtype.itemsize * 8 / 4)
    assert fields(np.concatenate([x, -x])).bits == pytest.approx(5.0), "and signs"


@every_type
def test_random_bits_have_all_information(name: str) -> None:
    dtype, exponent_bits, mantissa_bits = TYPES[name]
    width = np.dtype(dtype).itemsize
    x = np.frombuffer(np.random.default_rng(1).bytes(width << 16), dtype)
    found = fields(x)
    assert found.sign == pytest.approx(1, abs=1e-3) and found.mantissa == pytest.approx(mantissa_bits, abs=0.01)
    assert found.exponent == pytest.approx(exponent_bits, abs=0.03), "short by (2^e - 1) / 2n / ln 2"
    assert found.ratio == pytest.approx(1, abs=0.01)


def test_exponents_are_those_of_frexp() -> None:
    x = (np.random.default_rng(2).standard_t(2, 5000) * 1e-3).astype(np.float32)
    exponents = np.frexp(x.astype(np.float64))[1]
    assert fields(x).exponent == pytest.approx(counted(exponents.tolist()), abs=1e-9)
    assert entropy(np.array([3, 0, 1])) == pytest.approx(counted("aaab"))


@given(st.lists(st.floats(width=16, allow_nan=False), min_size=1, max_size=60), st.sampled_from(["float32", "float16"]))
def test_no_code_of_single_values_is_shorter_than_the_values_entropy(values: list[float], name: str) -> None:
    """The bound codes fields apart, so it needs at least what whole values, bit by bit, hold."""
    x = np.array(values, name)
    words = x.view(f"u{x.itemsize}").tolist()
    assert fields(x).bits >= counted(words) - 1e-9


def test_values_rounded_to_bfloat16_are_found_to_have_7_bits() -> None:
    x = np.random.default_rng(3).standard_normal(20000).astype(ml_dtypes.bfloat16).astype(np.float32)
    found = fields(x)
    assert 6.5 < found.mantissa <= 7
    packed = x.nbytes / len(zlib.compress(x.tobytes(), 9))
    assert packed < found.ratio < 3.5, "a real codec of bytes stays below the bound"


def test_range_and_outliers_of_known_values() -> None:
    x = np.array([2.0**-20, 0.0, -(2.0**11), 1.0], np.float32)
    found = magnitudes(x)
    assert found.log2_range == 31
    assert found.peak == pytest.approx(2048 / math.sqrt((2.0**22 + 1 + 2.0**-40) / 4))
    wide = x.astype(np.float64)
    centred = wide - wide.mean()
    assert found.kurtosis == pytest.approx((centred**4).mean() / (centred**2).mean() ** 2)
    one_far = np.zeros(10_000)
    one_far[7] = 5.0
    assert magnitudes(one_far).far == 1e-4
    uniform = magnitudes(np.linspace(-1, 1, 100_001))
    assert (uniform.far, round(uniform.kurtosis or 0, 3), round(uniform.peak or 0, 3)) == (0, 1.8, 1.732)
    assert magnitudes(np.random.default_rng(4).standard_normal(200_000)).kurtosis == pytest.approx(3, abs=0.05)


def test_what_has_no_range_has_none() -> None:
    nothing = magnitudes(np.zeros(8, np.float16))
    assert (nothing.log2_range, nothing.far, nothing.peak, nothing.kurtosis) == (None, None, None, None)
    constant = magnitudes(np.full(7, 0.1, np.float32))
    assert (constant.log2_range, constant.far, constant.peak, constant.kurtosis) == (0, 0, pytest.approx(1), None)
    lost = magnitudes(np.array([1.0, np.nan, np.inf, 4.0], np.float32))
    assert (lost.not_finite, lost.log2_range) == (2, 2)
    assert magnitudes(np.array([1e300, 1e-300])).kurtosis == pytest.approx(1), "squares do not overflow"


@pytest.mark.parametrize("k", [1, 5, 12])
def test_k_equal_singular_values_are_rank_k(k: int) -> None:
    left, right = (np.linalg.qr(gaussian((n, k), n))[0] for n in (40, 25))
    found = ranks(left @ right.T)
    assert found.effective == pytest.approx(k, rel=1e-6)
    assert (found.of_energy_90, found.of_energy_99) == (math.ceil(0.9 * k), k)


def test_ranks_are_those_of_the_eigenvalues() -> None:
    """Another way to singular values: the square roots of the eigenvalues of A^T A."""
    for matrix in (gaussian((30, 50), 5), low((60, 20), 4, 6, noise=0.1)):
        square = matrix @ matrix.T if len(matrix) < len(matrix[0]) else matrix.T @ matrix
        singular = np.sqrt(np.linalg.eigvalsh(square)[::-1])
        shares = singular / singular.sum()
        found = ranks(matrix)
        assert found.effective == pytest.approx(math.exp(-(shares * np.log(shares)).sum()))
        energies = [(singular[:n] ** 2).sum() / (singular**2).sum() for n in range(1, len(singular) + 1)]
        assert found.of_energy_90 == 1 + sum(energy < 0.9 for energy in energies)
        assert found.of_energy_99 == 1 + sum(energy < 0.99 for energy in energies)


def test_a_matrix_of_zeros_has_rank_0() -> None:
    found = ranks(np.zeros((9, 9)))
    assert (found.effective, found.of_energy_90, found.of_energy_99) == (0, 0, 0)
    assert energy_rank(np.array([3.0, 0.0]), 0.99) == 1


def test_low_rank_is_told_from_gaussian_whatever_the_shape() -> None:
    for shape in ((64, 32), (32, 64), (200, 40)):
        kept = message("DP BACKWARD GRAD", {"w": low(shape, 3, 7, noise=1e-3), "v": gaussian(shape, 8)})
        found = {one.name: one for one in spectra(kept, np.frombuffer(kept.values, np.float32))}
        assert found["w"].beside_control < 0.15 and found["v"].beside_control == pytest.approx(1, abs=0.02)
        assert found["w"].shape == found["w"].taken == shape
    assert control(32, 64) == control(32, 64), "the same at each call"


def test_matrices_without_a_direction_have_no_rank() -> None:
    bad = gaussian((9, 9), 13)
    bad[4, 4] = np.nan
    own = message("DP BACKWARD GRAD", {"zeros": np.zeros((9, 9)), "bad": bad, "good": gaussian((9, 9), 14)})
    assert [one.name for one in spectra(own, np.frombuffer(own.values, np.float32))] == ["good"]


def test_matrices_are_where_the_parts_say() -> None:
    a, b = gaussian((10, 12), 9).astype(np.float32), gaussian((9, 8), 10).astype(np.float32)
    own = message("PP FORWARD ACT", {"a": a, "bias": np.ones((1, 20)), "b": b, "thin": np.ones((50, 7))})
    values = np.frombuffer(own.values, np.float32)
    found = dict(matrices(own, values))
    assert found.keys() == {"a", "b"}, "what is thinner than 8 has no rank worth a name"
    assert np.array_equal(found["a"], a) and np.array_equal(found["b"], b)
    cut = dict(matrices(own, values[: 12 * 8 + 5]))
    assert cut.keys() == {"a"} and np.array_equal(cut["a"], a[:8]), "whole rows of what the file holds"
    assert dict(matrices(own, values[:50])) == {}


def test_long_matrices_are_thinned_and_compared_with_their_own_shape() -> None:
    own = message("PP FORWARD ACT", {"": gaussian((MOST + 300, 16), 11)})
    (found,) = spectra(own, np.frombuffer(own.values, np.float32))
    assert (found.shape, found.taken) == ((MOST + 300, 16), (MOST, 16))
    assert found.beside_control == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_codecs_give_ratio_and_error(name: str) -> None:
    x = (np.random.default_rng(12).standard_normal(5000) * 1e-2).astype(TYPES[name][0])
    found = all_through((*DEFAULT, "none"), x)
    assert found.keys() == {*DEFAULT, "none"}
    for codec, one in found.items():
        if get_codec(codec).lossless:
            assert one.exact and one.relative_rmse == one.relative_max == 0, codec
        else:
            assert one.ratio > 1 or (codec == "bf16" and name != "float32") or codec == "zfp:16"
    wide = x.astype(np.float64)
    kept = np.argsort(-np.abs(wide), kind="stable")[:50]
    rest = np.delete(wide, kept)
    assert found["topk:0.01"].relative_rmse == pytest.approx(math.sqrt((rest**2).sum() / (wide**2).sum()), rel=1e-4)
    assert found["topk:0.01"].relative_max == pytest.approx(abs(rest).max() / abs(wide).max(), rel=1e-4)
    assert found["bf16"].relative_max < 2**-8


def test_a_codec_that_does_not_take_a_type_has_no_result() -> None:
    assert "zfp:8" not in all_through(DEFAULT, np.ones(9))
