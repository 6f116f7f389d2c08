"""Comparison of sparse codecs with a NumPy reference that gives the same bytes, including edge cases."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import reference_sparse as reference
from codec_data import Array, bell, decode, encode, random_words, same_bits, uniform
from sparse_cases import BUILDS, CHUNK, NAMES, TYPES, case, decode_kept, form_of, in_type, sets

from hpcbench.codecs.base import Codec
from hpcbench.codecs.sparse import RowSparse, Threshold, TopK
from hpcbench.codecs.types import BFLOAT16


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", NAMES)
def test_bytes_of_the_reference(name: str, build: str) -> None:
    codec, expected = case(name, BUILDS[build])
    for dtype in TYPES:
        for n in (5, 33, 300, 5000):
            for label, values in sets(n).items():
                x = in_type(values, dtype)
                assert encode(codec, x).tobytes() == expected(x), (dtype, n, label)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_short_length(name: str, build: str) -> None:
    codec, expected = case(name, BUILDS[build])
    for n in range(71):
        values = np.where(uniform(n, 33) < 0.5, bell(n, 34), 0.0)
        for dtype in TYPES:
            x = in_type(values, dtype)
            wire = encode(codec, x)
            assert wire.tobytes() == expected(x), (dtype, n)
            assert same_bits(decode(codec, wire, n, dtype), decode_kept(codec, x)), (dtype, n)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK - 1, 3 * CHUNK + 77])
def test_borders_of_chunks(n: int, name: str) -> None:
    every = {build: case(name, kernels) for build, kernels in BUILDS.items()}
    for label in ("bell", "clusters", "last", "constant", "nan-and-infinite"):
        x = in_type(sets(n)[label] * np.float32(1e-2 if label == "bell" else 1), TYPES[n % 3])
        expected = next(iter(every.values()))[1](x)
        for build, (codec, _) in every.items():
            wire = encode(codec, x)
            assert wire.tobytes() == expected, (label, build)
            assert same_bits(decode(codec, wire, n, x.dtype), decode_kept(codec, x)), (label, build)


# ---------------------------------------------------------------------------------------------- forms and sizes
def test_the_form_follows_the_density() -> None:
    order = random_words(CHUNK, 35).argsort()
    forms = {}
    for k in (0, 1, 20, 42, 43, 300, 3000, 7200, 7300, 20_000, 60_000, 63_400, 63_600, CHUNK):
        x = np.zeros(CHUNK, dtype=np.float32)
        x[order[:k]] = 1
        wire = encode(Threshold(0.5), x)
        forms[k] = form_of(wire, CHUNK, 4)
        assert wire.tobytes() == reference.threshold(x, 0.5)
    assert [*dict.fromkeys(forms.values())] == ["none", "places", "grouped", "bitmap", "all"]
    assert (forms[42], forms[43], forms[7200], forms[7300]) == ("places", "grouped", "grouped", "bitmap")


def test_positions_take_few_bits() -> None:
    """At a density of 1/100, a position takes less than ten bits.

    The entropy is 8.08 bits, and an uncompressed position within a chunk takes 16 bits.
    """
    x = bell(10 * CHUNK, 36).astype(np.float32)
    codec = TopK(0.01)
    k = codec.param(x.size)
    assert 8.08 * k < 8 * codec.wire_bytes(x.size, x.dtype) - 32 * k < 10 * k


@pytest.mark.parametrize("dtype", TYPES)
def test_topk_has_one_size_for_all_positions_of_its_values(dtype: np.dtype[Any]) -> None:
    for n in (1, 40, CHUNK, 3 * CHUNK + 1000):
        for fraction in (1 / 3000, 1 / 1792, 1 / 300, 1 / 9, 1 / 8, 1 / 3, 0.97, 1.0):
            codec = TopK(fraction)
            k = codec.param(n)
            order = random_words(n, 37).argsort()
            some = np.arange(n) * 7 % n if n % 7 else order
            for places in (np.arange(k), n - 1 - np.arange(k), order[:k], some[:k], np.arange(k) * (n // k)):
                x = np.zeros(n, dtype=dtype)
                x[places] = 1
                wire = encode(codec, x)
                assert wire.size == codec.wire_bytes(n, x.dtype)
                assert same_bits(decode(codec, wire, n, x.dtype), x)


def test_variable_sizes_reach_their_bound_exactly() -> None:
    for dtype in TYPES:
        for n in (1, 2, 33, CHUNK - 1, CHUNK + 1, 2 * CHUNK):
            x = np.ones(n, dtype=dtype)
            assert encode(Threshold(0.5), x).size == Threshold(0.5).wire_bytes(n, x.dtype)
            assert encode(RowSparse(3), x).size == RowSparse(3).wire_bytes(n, x.dtype)
            assert Threshold(0.5).wire_bytes(n, x.dtype) < x.nbytes + 16 * (n // CHUNK + 1)
            assert encode(Threshold(2), x).size <= 12 * -(-n // CHUNK)


def test_the_number_of_values_is_exact() -> None:
    """Rounding errors of binary fractions must not increase the number of sent values."""
    assert 0.07 * 100 > 7
    assert TopK(0.07).param(100) == 7
    assert TopK(1e-9).param(5) == 1
    assert [TopK(0.1).param(n) for n in (0, 1, 10, 11, 30)] == [0, 1, 1, 2, 3]


# ---------------------------------------------------------------------------------------------- the choice
def test_ties_go_to_the_earlier_value_and_overflow_goes_first() -> None:
    x = np.array([1, -2, 2, -0.0, np.inf, 2, -np.nan, 2, 0, 0], dtype=np.float32)
    places = {k: [*np.flatnonzero(kept_places(TopK(k / 10), x))] for k in range(1, 7)}
    assert places == {1: [6], 2: [4, 6], 3: [1, 4, 6], 4: [1, 2, 4, 6], 5: [1, 2, 4, 5, 6], 6: [1, 2, 4, 5, 6, 7]}
    above = np.flatnonzero(kept_places(Threshold(2), np.append(x, np.zeros(70, dtype=np.float32))))
    assert [*above] == [4, 6]


def kept_places(codec: Codec, x: Array) -> npt.NDArray[np.bool_]:
    out = np.full(x.size, -3, dtype=np.float32)
    codec.decode(encode(codec, x), out, accumulate=True)
    return out.view(np.uint32) != np.float32(-3).view(np.uint32)


@pytest.mark.parametrize(
    "fault",
    [
        lambda x: np.argsort(-reference.magnitudes(x)[::-1], kind="stable"),  # selects the later of equal values
        lambda x: np.argsort(-np.nan_to_num(np.abs(x), nan=0.0), kind="stable"),  # loses NaN
        lambda x: np.argsort(-x, kind="stable"),  # compares signed values
        lambda x: np.argsort(-(reference.magnitudes(x) >> 10), kind="stable"),  # ignores the last digit
    ],
)
def test_a_wrong_choice_is_detected(fault: Callable[[Array], Array], monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(x: Array, k: int) -> npt.NDArray[np.bool_]:
        marks = np.zeros(x.size, dtype=bool)
        marks[fault(x)[:k]] = True
        return marks

    codec, expected = case("topk:0.3")
    before = {label: expected(x) for label, x in sets(5000).items()}
    monkeypatch.setattr(reference, "largest", wrong)
    assert any(expected(x) != before[label] for label, x in sets(5000).items())
    assert all(encode(codec, x).tobytes() == before[label] for label, x in sets(5000).items())


# ---------------------------------------------------------------------------------------------- places and types
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", ["topk:0.1", "threshold:1", "rowsparse:7", "2:4"])
def test_any_alignment(name: str, build: str) -> None:
    codec, expected = case(name, BUILDS[build])
    for dtype in TYPES:
        x = in_type(bell(3001, 46), dtype)
        for offset in (1, 2, 3, 7):
            values = np.zeros(x.nbytes + 8, dtype=np.uint8)[offset : offset + x.nbytes].view(dtype)
            values[:] = x
            room = codec.wire_bytes(x.size, dtype)
            wire = np.zeros(room + 8, dtype=np.uint8)[offset : offset + room]
            residual = np.zeros(4 * x.size + 8, dtype=np.uint8)[offset : offset + 4 * x.size].view(np.float32)
            used = codec.encode(values, wire)
            assert wire[:used].tobytes() == expected(x)
            assert codec.encode(values, wire, residual=residual) == used
            assert wire[:used].tobytes() == expected(x)
            codec.decode(wire[:used], values)
            assert same_bits(values.copy(), decode_kept(codec, x))


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dtype", ["f8", "i4", "u1", "c8", "?"])
def test_rows_of_other_types(dtype: str, build: str) -> None:
    codec = RowSparse(24, BUILDS[build])
    for n in (0, 1, 23, 24, 25, 5000):
        x = np.rint(bell(n, 47) * 50 * (np.arange(n) // 24 % 3 == 0)).astype(dtype)
        wire = encode(codec, x)
        raw = x if dtype == "f8" else x.view(np.uint8)
        assert wire.tobytes() == reference.rowsparse(raw, 24)
        assert same_bits(decode(codec, wire, n, x.dtype), x)
        if dtype != "?":
            total = np.ones(n, dtype=dtype)
            codec.decode(wire, total, accumulate=True)
            assert same_bits(total, x + np.ones(n, dtype=dtype))


def test_other_types_are_refused_in_one_line() -> None:
    for name in ("topk:0.1", "threshold:1", "2:4"):
        codec, _ = case(name)
        for dtype in ("f8", "i4"):
            with pytest.raises(TypeError, match=f"^{name}: supports float32, float16 and bfloat16, but not"):
                codec.wire_bytes(3, np.dtype(dtype))


def test_beyond_two_to_the_31() -> None:
    """Most of the input is zeroed memory that is never written, so the test needs only a few pages of memory."""
    codec = TopK(1e-9)
    n = 2**31 + 2 * CHUNK + 300
    x, out = np.zeros(n, dtype=BFLOAT16), np.zeros(n, dtype=BFLOAT16)
    places = np.array([5, 2**31 - 1, n - 2])
    x[places] = [1, 2, 3]
    wire = np.empty(codec.wire_bytes(n, x.dtype), dtype=np.uint8)
    used = codec.encode(x, wire)
    codec.decode(wire[:used], out, accumulate=True)
    assert same_bits(out[places], x[places])
    out[places] = 0
    assert kept_count(wire[:used], n) == 3


def kept_count(wire: npt.NDArray[np.uint8], n: int) -> int:
    """Return the number of sent values according to the headers of all chunks."""
    starts = wire[: 8 * ((n - 1) // CHUNK)].view("<u8")
    heads = starts.nbytes + np.append(np.uint64(0), starts).astype(np.int64)
    return int(sum(wire[at : at + 4].view(np.uint32)[0] for at in heads))
