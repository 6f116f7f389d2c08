"""Sparse codecs against a reference in NumPy that makes the same bytes, against damage, and at their borders."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import reference_sparse as reference
from codec_data import Array, bell, builds, decode, encode, float_sets, same_bits, uniform, words

from hpcbench.codecs.base import Codec
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.sparse import Pick, RowSparse, Threshold, TopK
from hpcbench.codecs.types import BFLOAT16

BUILDS = builds()
TYPES = [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16]
CHUNK = 65536
FRACTIONS = (0.0005, 0.01, 0.09, 0.3, 0.98, 1.0)
THRESHOLDS = (1e-9, 1e-3, 3e-3, 0.3, 10.0)
WIDTHS = (1, 3, 16, 700, 70_000)


def case(name: str, build: Kernels | None = None) -> tuple[Codec, Callable[[Array], bytes]]:
    """A codec and what its bytes must be."""
    family, _, parameter = name.partition(":")
    if family == "topk":
        top = TopK(float(parameter), build)
        return top, lambda x: reference.topk(x, top.param(x.size))
    if family == "threshold":
        return Threshold(float(parameter), build), lambda x: reference.threshold(x, float(parameter))
    if family == "rowsparse":
        return RowSparse(int(parameter), build), lambda x: reference.rowsparse(x, int(parameter))
    return Pick(build), reference.pick


NAMES = [
    *(f"topk:{f:g}" for f in FRACTIONS),
    *(f"threshold:{t:g}" for t in THRESHOLDS),
    *(f"rowsparse:{w}" for w in WIDTHS),
    "2:4",
]


def in_type(x: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(dtype)


def special_sets(n: int) -> dict[str, Array]:
    """What a choice by magnitude may get wrong."""
    x = bell(n, 30).astype(np.float32)
    some = uniform(n, 31)
    bits = words(n, 32).astype(np.uint32)
    return {
        "nan": np.where(some < 0.3, np.float32(np.nan), x),
        "nan-and-infinite": np.where(some < 0.01, np.float32(-np.nan), np.where(some < 0.02, np.float32(-np.inf), x)),
        "subnormal": np.ldexp(x, -130).astype(np.float32),
        "any-bits": bits.view(np.float32),
        "clusters": np.where(np.arange(n) // 300 % 40 == 7, x, x * np.float32(1e-4)),
        "last": np.where(np.arange(n) >= n - n // 50, x, np.float32(0)),
        "rising": np.linspace(0, 1, n, dtype=np.float32),
    }


@functools.cache
def sets(n: int) -> dict[str, Array]:
    few = {label: x for label, x in float_sets(n).items() if n < 1000 or label in LONG}
    return few | special_sets(n)


LONG = ("bell", "sparse", "constant", "zeros", "negative-zeros", "gradient", "integers")


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
            assert same_bits(decode(codec, wire, n, dtype), kept(codec, x)), (dtype, n)


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
            assert same_bits(decode(codec, wire, n, x.dtype), kept(codec, x)), (label, build)


def kept(codec: Codec, x: Array) -> Array:
    """What a decoder must give of `x`: the values that are sent, zeros elsewhere."""
    marks = np.ones(x.size, dtype=bool)
    if isinstance(codec, TopK):
        marks = reference.largest(x, codec.param(x.size))
    elif isinstance(codec, Threshold):
        for at in range(0, x.size, CHUNK):
            part = x[at : at + CHUNK]
            above = reference.magnitudes(part) > codec.param(0)
            dense = 4 + len(reference.padded(part.tobytes()))
            sparse = 4 + len(reference.padded(part[above].tobytes())) + len(reference.index_of(above))
            marks[at : at + CHUNK] = above | (dense <= sparse)
    elif isinstance(codec, Pick):
        groups = reference.magnitudes(np.append(x, np.zeros(-x.size % 4, dtype=x.dtype))).reshape(-1, 4)
        rank = np.argsort(np.argsort(-groups, axis=1, kind="stable"), axis=1)
        chosen = np.where(rank.ravel() < 2, np.append(x, np.zeros(-x.size % 4, x.dtype)), x.dtype.type(0))[: x.size]
        return reference.quieted(chosen)
    return np.where(marks, x, x.dtype.type(0))


# ---------------------------------------------------------------------------------------------- forms and sizes
def form_of(wire: npt.NDArray[np.uint8], m: int, item: int) -> str:
    """Of a message of one chunk, by its length."""
    k = int(wire[:4].view(np.uint32)[0])
    index = wire.size - 4 - -(-k * item // 4) * 4
    if index == 0:
        return "all" if k else "none"
    sizes = {
        "bitmap": -(-m // 32) * 4,
        "places": -(-2 * k // 4) * 4,
        "grouped": -(-(k + -(-m // 256)) // 32) * 4 + -(-k // 4) * 4,
    }
    return next(form for form, size in sizes.items() if size == index)


def test_the_form_follows_the_density() -> None:
    order = words(CHUNK, 35).argsort()
    forms = {}
    for k in (0, 1, 20, 42, 43, 300, 3000, 7200, 7300, 20_000, 60_000, 63_400, 63_600, CHUNK):
        x = np.zeros(CHUNK, dtype=np.float32)
        x[order[:k]] = 1
        wire = encode(Threshold(0.5), x)
        forms[k] = form_of(wire, CHUNK, 4)
        assert wire.tobytes() == reference.threshold(x, 0.5)
    assert [*dict.fromkeys(forms.values())] == ["none", "places", "grouped", "bitmap", "all"]
    assert (forms[42], forms[43], forms[7200], forms[7300]) == ("places", "grouped", "grouped", "bitmap")


def test_places_take_few_bits() -> None:
    """At a density of 1/100 less than ten a value, where their entropy is 8.08 and a place in a chunk has 16."""
    x = bell(10 * CHUNK, 36).astype(np.float32)
    codec = TopK(0.01)
    k = codec.param(x.size)
    assert 8.08 * k < 8 * codec.wire_bytes(x.size, x.dtype) - 32 * k < 10 * k


@pytest.mark.parametrize("dtype", TYPES)
def test_topk_has_one_size_wherever_its_values_are(dtype: np.dtype[Any]) -> None:
    for n in (1, 40, CHUNK, 3 * CHUNK + 1000):
        for fraction in (1 / 3000, 1 / 1792, 1 / 300, 1 / 9, 1 / 8, 1 / 3, 0.97, 1.0):
            codec = TopK(fraction)
            k = codec.param(n)
            order = words(n, 37).argsort()
            some = np.arange(n) * 7 % n if n % 7 else order
            for places in (np.arange(k), n - 1 - np.arange(k), order[:k], some[:k], np.arange(k) * (n // k)):
                x = np.zeros(n, dtype=dtype)
                x[places] = 1
                wire = encode(codec, x)
                assert wire.size == codec.wire_bytes(n, x.dtype)
                assert same_bits(decode(codec, wire, n, x.dtype), x)


def test_variable_sizes_reach_their_bound_and_no_more() -> None:
    for dtype in TYPES:
        for n in (1, 2, 33, CHUNK - 1, CHUNK + 1, 2 * CHUNK):
            x = np.ones(n, dtype=dtype)
            assert encode(Threshold(0.5), x).size == Threshold(0.5).wire_bytes(n, x.dtype)
            assert encode(RowSparse(3), x).size == RowSparse(3).wire_bytes(n, x.dtype)
            assert Threshold(0.5).wire_bytes(n, x.dtype) < x.nbytes + 16 * (n // CHUNK + 1)
            assert encode(Threshold(2), x).size <= 12 * -(-n // CHUNK)


def test_as_many_as_are_written() -> None:
    """Not one more for what a binary fraction lacks."""
    assert 0.07 * 100 > 7
    assert TopK(0.07).param(100) == 7
    assert TopK(1e-9).param(5) == 1
    assert [TopK(0.1).param(n) for n in (0, 1, 10, 11, 30)] == [0, 1, 1, 2, 3]


# ---------------------------------------------------------------------------------------------- the choice
def test_ties_go_to_the_earlier_and_overflow_goes_first() -> None:
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
        lambda x: np.argsort(-reference.magnitudes(x)[::-1], kind="stable"),  # the later of equal ones
        lambda x: np.argsort(-np.nan_to_num(np.abs(x), nan=0.0), kind="stable"),  # NaN is lost
        lambda x: np.argsort(-x, kind="stable"),  # the sign counts
        lambda x: np.argsort(-(reference.magnitudes(x) >> 10), kind="stable"),  # the last digit is not looked at
    ],
)
def test_a_wrong_choice_is_seen(fault: Callable[[Array], Array], monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(x: Array, k: int) -> npt.NDArray[np.bool_]:
        marks = np.zeros(x.size, dtype=bool)
        marks[fault(x)[:k]] = True
        return marks

    codec, expected = case("topk:0.3")
    before = {label: expected(x) for label, x in sets(5000).items()}
    monkeypatch.setattr(reference, "largest", wrong)
    assert any(expected(x) != before[label] for label, x in sets(5000).items())
    assert all(encode(codec, x).tobytes() == before[label] for label, x in sets(5000).items())


# ---------------------------------------------------------------------------------------------- errors
def test_bounds_are_the_largest_magnitude_left_out() -> None:
    for dtype in TYPES:
        for label, values in float_sets(3000).items():
            x = in_type(values, dtype)
            for name in ("topk:0.01", "topk:0.4", "topk:1", "threshold:0.001", "threshold:10", "2:4"):
                codec, _ = case(name)
                bound = codec.error_bound(x)
                if not np.isfinite(x.astype(np.float32)).all():
                    assert bound is None
                    continue
                error = np.abs(decode(codec, encode(codec, x), x.size, dtype).astype(np.float64) - x).max()
                assert bound is not None
                assert error <= bound
                if "topk" in name or name == "2:4":
                    assert error == bound, (label, name)
    assert RowSparse(5).error_bound(np.array([np.nan])) == 0.0
    assert TopK(0.5).error_bound(np.zeros(0, dtype=np.float32)) == 0.0


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["topk:0.01", "topk:0.3", "threshold:1", "threshold:0.01", "rowsparse:16"])
def test_residual_is_what_the_wire_lacks(name: str, dtype: np.dtype[Any]) -> None:
    for build, kernels in BUILDS.items():
        codec, _ = case(name, kernels)
        x = in_type(bell(CHUNK + 3000, 38) * (np.arange(CHUNK + 3000) // 16 % 9 < 2), dtype)
        residual = (bell(x.size, 39) * (np.arange(x.size) // 16 % 9 < 3)).astype(np.float32)
        residual[[7, 3000]] = np.inf, np.nan
        y = x.astype(np.float32) + residual
        sent = in_type(y, dtype)
        if isinstance(codec, TopK):
            expected = reference.topk(sent, codec.param(x.size), by=y)
        elif isinstance(codec, Threshold):
            expected = reference.threshold(sent, codec.threshold, by=y)
        else:
            expected = reference.rowsparse(sent, 16)
        wire = np.zeros(codec.wire_bytes(x.size, dtype), dtype=np.uint8)
        used = codec.encode(x, wire, residual=residual)
        assert quiet_wire(wire[:used]) == quiet_wire(expected), build
        with np.errstate(invalid="ignore"):
            lacks = y - decode(codec, wire[:used], x.size, dtype).astype(np.float32)
        assert same_bits(residual, np.where(np.isfinite(lacks), lacks, np.float32(0))), build


def quiet_wire(wire: Any) -> bytes:
    """NumPy gives another NaN of a sum than the kernels do."""
    return bytes(wire).replace(b"\xc0\x7f", b"\xc0\xff").replace(b"\x00\x7e", b"\x00\xfe")


@pytest.mark.parametrize("build", BUILDS)
def test_more_overflow_than_is_sent_leaves_no_trace_in_the_residual(build: str) -> None:
    x = bell(3000, 40).astype(np.float32)
    x[::3] = np.inf
    x[1::7] = np.nan
    residual = np.zeros(x.size, dtype=np.float32)
    codec = TopK(0.1, BUILDS[build])
    wire = np.zeros(codec.wire_bytes(x.size, x.dtype), dtype=np.uint8)
    codec.encode(x, wire, residual=residual)
    assert same_bits(residual, np.where(np.isfinite(x), x, np.float32(0)))


@pytest.mark.parametrize("name", ["topk:0.05", "topk:0.5", "threshold:40", "rowsparse:8", "2:4"])
@pytest.mark.parametrize("dtype", TYPES)
def test_nothing_is_lost_over_many_messages(name: str, dtype: np.dtype[Any]) -> None:
    """Whole numbers, so that the books must balance to the last bit."""
    codec, _ = case(name)
    n = 2000
    residual = np.zeros(n, dtype=np.float32)
    given, arrived = np.zeros(n, dtype=np.float32), np.zeros(n, dtype=np.float32)
    wire = np.zeros(codec.wire_bytes(n, dtype), dtype=np.uint8)
    for turn in range(12):
        x = np.rint(bell(n, 41 + turn) * 20).astype(dtype)
        used = codec.encode(x, wire, residual=residual)
        codec.decode(wire[:used], arrived, dtype=dtype, accumulate=True)
        given += x.astype(np.float32)
        assert same_bits(arrived + residual, given + np.float32(0)), turn
    assert arrived.any()


# ---------------------------------------------------------------------------------------------- decoding
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", ["topk:0.01", "topk:0.3", "threshold:1", "threshold:0.01", "rowsparse:16"])
def test_accumulate_adds_what_was_sent_and_touches_nothing_else(name: str, build: str) -> None:
    codec, _ = case(name, BUILDS[build])
    for dtype in TYPES:
        x = in_type(np.where(np.arange(5000) // 16 % 5 == 1, 0.0, bell(5000, 42)), dtype)
        wire = encode(codec, x)
        plain = decode(codec, wire, x.size, dtype)
        untouched = dtype.type(-0.0)
        expected = np.where(plain != 0, plain, untouched)
        assert same_bits(decode_as(codec, wire, dtype, np.full(x.size, untouched)), expected)
        for target in TYPES:
            base = in_type(bell(x.size, 43), target)
            total = (base.astype(np.float32) + plain.astype(np.float32)).astype(target)
            assert same_bits(decode_as(codec, wire, dtype, base), total)
            out = np.empty(x.size, dtype=target)
            codec.decode(wire, out, dtype=dtype)
            assert same_bits(out, plain.astype(target))


def decode_as(codec: Codec, wire: npt.NDArray[np.uint8], dtype: np.dtype[Any], base: Array) -> Array:
    out = base.copy()
    codec.decode(wire, out, dtype=dtype, accumulate=True)
    return out


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", ["topk:0.02", "topk:0.4", "threshold:1", "rowsparse:16", "2:4"])
def test_a_hop_encodes_the_sum(name: str, build: str) -> None:
    codec, expected = case(name, BUILDS[build])
    x, local = (np.rint(bell(CHUNK + 500, seed) * 9).astype(np.float32) for seed in (44, 45))
    local[::2] = 0
    for dtype in TYPES:  # these sums are exact in all of them
        arrived = encode(codec, x.astype(dtype))
        total = decode(codec, arrived, x.size, dtype).astype(np.float32) + local
        out = np.zeros(codec.wire_bytes(x.size, dtype), dtype=np.uint8)
        used = codec.decode_add_encode(arrived, local.astype(dtype), out)
        assert out[:used].tobytes() == expected(total.astype(dtype))


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
            assert same_bits(values.copy(), kept(codec, x))


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
            with pytest.raises(TypeError, match=f"^{name}: takes float32, float16 or bfloat16, not"):
                codec.wire_bytes(3, np.dtype(dtype))


def test_beyond_two_to_the_31() -> None:
    """Memory is zeros that nothing was written to, so the message costs a few pages."""
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
    """By the heads of all chunks."""
    starts = wire[: 8 * ((n - 1) // CHUNK)].view("<u8")
    heads = starts.nbytes + np.append(np.uint64(0), starts).astype(np.int64)
    return int(sum(wire[at : at + 4].view(np.uint32)[0] for at in heads))


# ---------------------------------------------------------------------------------------------- damage
def refused(codec: Codec, wire: npt.NDArray[np.uint8], n: int) -> bool:
    out = np.full(n + 64, 9, dtype=np.float32)
    try:
        codec.decode(wire.copy(), out[:n])
    except ValueError as error:
        assert str(error).startswith(f"{codec.name}: ")
        return True
    finally:
        assert (out[n:] == 9).all(), "written behind the end"
    return False


def with_words(wire: npt.NDArray[np.uint8], at: int, *values: int, dtype: str = "<u4") -> npt.NDArray[np.uint8]:
    damaged = wire.copy()
    raw = np.array(values, dtype=dtype).view(np.uint8)
    damaged[at : at + raw.size] = raw
    return damaged


def message(density: float, n: int) -> Array:
    return (1 + np.arange(n) % 5).astype(np.float32) * (uniform(n, 48) < density)


@pytest.mark.parametrize("name", ["topk:0.0003", "topk:0.02", "topk:0.3", "topk:1", "threshold:0.5", "rowsparse:4"])
def test_cuts_and_additions_are_refused(name: str) -> None:
    codec, _ = case(name)
    x = message(0.02, CHUNK + 900)
    wire = encode(codec, x)
    assert not refused(codec, wire, x.size)
    for size in [*range(30), *range(30, wire.size, max(1, wire.size // 60)), wire.size - 2, wire.size - 1]:
        assert refused(codec, wire[:size], x.size), size
    assert refused(codec, np.append(wire, np.zeros(4, dtype=np.uint8)), x.size)
    for n in (0, CHUNK, x.size + CHUNK):
        assert refused(codec, wire, n), n


@pytest.mark.parametrize("name", ["topk:0.02", "topk:0.3", "threshold:0.5"])
@pytest.mark.parametrize("build", BUILDS)
def test_wrong_heads_are_refused(name: str, build: str) -> None:
    codec, _ = case(name, BUILDS[build])
    x = message(0.02, CHUNK + 900)
    wire = encode(codec, x)
    start, k = int(wire[:8].view("<u8")[0]), int(wire[8:12].view("<u4")[0])
    for value in (0, start - 4, start + 4, 2**63, 2**64 - 1):
        assert refused(codec, with_words(wire, 0, value, dtype="<u8"), x.size), value
    for value in (0, k - 1, k + 1, CHUNK, CHUNK + 1, 2**31, 2**32 - 1):
        assert refused(codec, with_words(wire, 8, value), x.size), value
        assert refused(codec, with_words(wire, 8 + start, value), x.size), value


@pytest.mark.parametrize("build", BUILDS)
def test_wrong_indices_are_refused(build: str) -> None:
    n = 3000
    codec = Threshold(0.5, BUILDS[build])

    def indexed(k: int, form: str) -> tuple[npt.NDArray[np.uint8], int]:
        x = np.zeros(n, dtype=np.float32)
        x[np.arange(k) * (n // k)] = 1
        wire = encode(codec, x)
        assert form_of(wire, n, 4) == form
        assert not refused(codec, wire, n)
        return wire, 4 + 4 * k

    wire, at = indexed(2, "places")
    for places in ((5, 5), (1500, 0), (0, n), (0, 0xFFFF), (n, n + 1)):
        assert refused(codec, with_words(wire, at, *places, dtype="<u2"), n), places

    wire, at = indexed(1000, "bitmap")
    word = int(wire[at : at + 4].view("<u4")[0])
    for wrong in (word ^ 1, word ^ 2, 0, 0xFFFFFFFF):
        assert refused(codec, with_words(wire, at, wrong), n), wrong
    end = wire.size - 4  # n is no multiple of 32: bits behind the last value, one of the others less
    last = int(wire[end:].view("<u4")[0])
    assert refused(codec, with_words(with_words(wire, at, word ^ 1), end, last | 1 << 31), n)

    x = np.zeros(n, dtype=np.float32)
    x[:1000] = 1
    wire = encode(codec, x)
    assert form_of(wire, n, 4) == "bitmap"
    assert refused(codec, with_words(wire, 4 + 4000 + 4 * 80, 1), n), "one more, far behind"

    wire, at = indexed(100, "grouped")
    high = wire[at : at + 16].view("<u4")  # 100 + 12 bits
    low = at + 16
    assert refused(codec, with_words(wire, at, int(high[0]) ^ 1), n)
    assert refused(codec, with_words(wire, at, *([0] * 4)), n)
    assert refused(codec, with_words(wire, at, int(high[0]) & ~1, *map(int, high[1:3]), int(high[3]) | 1 << 31), n)
    assert refused(codec, with_words(wire, low, int(wire[low + 1]), dtype="u1"), n), "one place twice"
    assert refused(codec, with_words(wire, low, 255, dtype="u1"), n), "a step back"
    assert refused(codec, with_words(wire, low + 99, 255, dtype="u1"), n), "behind the last value"


@pytest.mark.parametrize("build", BUILDS)
def test_places_that_do_not_rise_are_refused(build: str) -> None:
    n, k = 40_000, 4000
    codec = Threshold(0.5, BUILDS[build])
    x = np.zeros(n, dtype=np.float32)
    x[:: n // k] = 1
    wire = encode(codec, x)
    assert form_of(wire, n, 4) == "grouped"
    low = wire.size - k
    for rank in range(1, k):  # whatever is decoded at one go
        if wire[low + rank] > wire[low + rank - 1]:
            assert refused(codec, with_words(wire, low + rank, int(wire[low + rank - 1]), dtype="u1"), n), rank


@pytest.mark.parametrize("name", ["topk:0.02", "topk:0.3", "threshold:0.5", "rowsparse:4"])
@pytest.mark.parametrize("build", BUILDS)
def test_no_byte_writes_outside(name: str, build: str) -> None:
    """Whatever is changed, the message is refused or gives n values."""
    codec, _ = case(name, BUILDS[build])
    x = message(0.05, 2500)
    wire = encode(codec, x)
    outcomes = set()
    for at in range(0, wire.size, 3):
        for flip in (1, 0x80, 0xFF):
            damaged = wire.copy()
            damaged[at] ^= flip
            outcomes.add(refused(codec, damaged, x.size))
    assert outcomes == {True, False}
