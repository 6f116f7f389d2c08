"""Tests of properties that hold for every input, with a search for counterexamples."""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from codec_data import Array, decode, encode, float_sets, same_bits
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import type_of

LOSSLESS = ["none", "mpc", "mpc:2", "mpc:32", "xpk", "rowsparse:3", "rowsparse:16"]
LOSSY = [
    *("zfp:4", "zfp:8", "zfp:17", "zfp:32", "fp16", "bf16", "fp8e4m3", "fp8e5m2", "int8:32", "int8:256"),
    *(
        "int8:64:stochastic",
        "int4:32:correlated",
        "int3:32/256:nonuniform:correlated",
        "int4:32",
        "int4:32/256",
        "int3:16/256:nonuniform",
        "int2:16/256:stochastic",
        "mxfp8:e4m3:even",
        "mxfp8:e5m2",
        "mxfp6:e2m3:ceil",
        "mxfp6:e3m2:rceil",
        "mxfp4",
        "mxfp4:even",
        "nvfp4",
        "rotate64+int4:32/256",
        "rotate32+mxfp4:rceil",
        "rotate1024+int4:16/256",
        "hadamard16+int8:256",
        "sign:32",
        "topk:0.1",
        "topk:0.6",
        "threshold:0.5",
        "2:4",
    ),
]
TYPES = st.sampled_from([np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)])


def bits_of(dtype: np.dtype[Any]) -> st.SearchStrategy[Array]:
    """Draw arrays of any length with arbitrary bit patterns, including runs of equal words and of zeros."""
    word = np.uint32 if dtype.itemsize == 4 else np.uint16
    elements = st.integers(0, np.iinfo(word).max) | st.sampled_from([0, 1 << (8 * dtype.itemsize - 1)])
    return hnp.arrays(word, st.integers(0, 300), elements=elements, fill=elements).map(lambda a: a.view(dtype))


def finite(dtype: np.dtype[Any]) -> st.SearchStrategy[Array]:
    def clean(x: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(x.astype(np.float32)), x, dtype.type(0)).astype(dtype)

    return bits_of(dtype).map(clean)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(LOSSLESS), TYPES.flatmap(bits_of))
def test_lossless_codecs_give_every_bit_back(name: str, x: Array) -> None:
    codec = get_codec(name)
    assert same_bits(decode(codec, encode(codec, x), x.size, x.dtype), x)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(LOSSY), TYPES.flatmap(finite))
@example("fp8e4m3", np.array([1.8125, 1.8125000001, -1.99], dtype=np.float32))
@example("int8:32", np.array([2.0**-149, 2.0**-140], dtype=np.float32))
@example("fp16", np.array([65519.996, 65520.0], dtype=np.float32))
def test_the_bound_holds(name: str, x: Array) -> None:
    codec = get_codec(name)
    bound = codec.error_bound(x)
    assume(bound is not None)
    y = decode(codec, encode(codec, x), x.size, x.dtype)
    error = np.abs(y.astype(np.float64) - x.astype(np.float64)).max(initial=0.0)
    assert bound is not None
    assert error <= bound


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["fp16", "bf16", "fp8e4m3", "fp8e5m2", "topk:0.1", "topk:0.6", "threshold:0.5", "2:4"]),
    TYPES.flatmap(finite),
)
def test_encoding_is_idempotent(name: str, x: Array) -> None:
    """Codecs with block scales or sums over blocks are excluded, because they may round the largest value."""
    codec = get_codec(name)
    once = decode(codec, encode(codec, x), x.size, x.dtype)
    assume(np.isfinite(once.astype(np.float32)).all())
    assert (decode(codec, encode(codec, once), x.size, x.dtype) == once).all()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([*LOSSLESS, *LOSSY]), TYPES.flatmap(bits_of), st.integers(0, 2**64 - 1))
def test_sizes_are_those_promised(name: str, x: Array, seed: int) -> None:
    codec = get_codec(name)
    wire = encode(codec, x, seed=seed)
    room = codec.wire_bytes(x.size, x.dtype)
    assert wire.size == room if codec.fixed_size else wire.size <= room
    if isinstance(codec, Compiled):
        assert room == codec.ops.wire_bytes(codec.param(x.size), type_of(x.dtype), x.size)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([*LOSSLESS, *LOSSY]), TYPES.flatmap(bits_of))
def test_non_finite_values_survive(name: str, x: Array) -> None:
    codec = get_codec(name)
    y = decode(codec, encode(codec, x), x.size, x.dtype)
    with np.errstate(invalid="ignore"):
        broken = ~np.isfinite(x.astype(np.float32))
        arrived = ~np.isfinite(y.astype(np.float32))
    if name.startswith("topk"):  # the message size is limited
        assert not broken.any() or arrived.any()
    elif name == "2:4":
        groups = np.zeros(-(-x.size // 4) * 4, dtype=bool)
        groups[: x.size] = broken
        assert (arrived.sum() >= np.minimum(groups.reshape(-1, 4).sum(axis=1), 2).sum()) or not broken.any()
    else:
        assert arrived[broken].all()


@pytest.mark.parametrize("label", ["bell", "heavy-tail", "gradient", "activation", "weight", "smooth"])
def test_more_bits_have_a_smaller_error(label: str) -> None:
    x: npt.NDArray[np.float32] = float_sets(4096)[label]

    def error(name: str) -> float:
        y = decode(get_codec(name), encode(get_codec(name), x), x.size, x.dtype)
        return float(np.sqrt(np.mean((y.astype(np.float64) - x) ** 2)))

    for family in (
        [f"zfp:{rate}" for rate in range(5, 28)],  # the remaining error is due to truncation to 31 bits
        ["int8:1024", "int8:256", "int8:64", "int8:32"],
        ["int4:256", "int8:256"],
        ["int2:32/256", "int2:16/256", "int3:32/256", "int3:16/256", "int4:32/256", "int4:16/256", "int8:32"],
        ["mxfp4", "mxfp6:e3m2", "mxfp6:e2m3", "int8:32"],
        ["mxfp4:rceil", "mxfp8:e5m2:rceil", "mxfp8:e4m3:rceil"],
        ["sign:1024", "int4:128", "fp8e5m2", "fp8e4m3", "fp16"],
        ["bf16", "fp16"],
        ["topk:0.01", "topk:0.1", "topk:0.5", "topk:1"],
        ["threshold:1", "threshold:0.01", "threshold:0.0001", "threshold:1e-06"],
    ):
        errors = [error(name) for name in family]
        assert errors == sorted(errors, reverse=True), family
        assert errors[-1] < errors[0]
