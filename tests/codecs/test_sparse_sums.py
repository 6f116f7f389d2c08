"""Tests of values that sparse codecs omit or add: error bounds, residuals, accumulation and hops."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import reference_sparse as reference
from codec_data import Array, bell, decode, encode, float_sets, same_bits
from sparse_cases import BUILDS, CHUNK, TYPES, case, in_type

from hpcbench.codecs.base import Codec
from hpcbench.codecs.sparse import RowSparse, Threshold, TopK


def test_bounds_are_the_largest_omitted_magnitude() -> None:
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
def test_residual_is_the_encoding_error(name: str, dtype: np.dtype[Any]) -> None:
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
    """Normalize NaN bytes, because NumPy's sums and the kernels yield different NaNs."""
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
    """The values are integers, so the sum of sent values and residuals must be exact."""
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
def test_accumulate_adds_sent_values_and_changes_nothing_else(name: str, build: str) -> None:
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
    for dtype in TYPES:  # these sums are exact in all dtypes
        arrived = encode(codec, x.astype(dtype))
        total = decode(codec, arrived, x.size, dtype).astype(np.float32) + local
        out = np.zeros(codec.wire_bytes(x.size, dtype), dtype=np.uint8)
        used = codec.decode_add_encode(arrived, local.astype(dtype), out)
        assert out[:used].tobytes() == expected(total.astype(dtype))
