"""Comparison of xpk with an independent NumPy reference. test_chunks.py tests the container."""

import numpy as np
import numpy.typing as npt
import pytest
import reference_chunks as reference
from codec_data import Array, bell, builds, decode, encode, float_sets, integers, same_bits, uniform

from hpcbench.codecs.mpc import MpcCodec
from hpcbench.codecs.types import BFLOAT16
from hpcbench.codecs.xpk import XpkCodec

BUILDS = builds()
DTYPES = {"f4": np.dtype(np.float32), "f2": np.dtype(np.float16), "bf16": BFLOAT16, "f8": np.dtype(np.float64)}


def sets(n: int, dtype: str) -> dict[str, Array]:
    arrays: dict[str, npt.NDArray[np.float64]] = {name: x.astype(np.float64) for name, x in float_sets(n).items()}
    arrays["outliers"] = np.where(uniform(n, 90) < 0.01, 1e30, arrays["bell"])
    arrays["subnormal"] = bell(n, 91) * 2.0**-130
    arrays["specials"] = np.choose(integers(n, 0, 4, 92), [np.nan, -np.inf, -0.0, 1.0])
    arrays["few-values"] = np.where(uniform(n, 93) < 0.98, 0.0, bell(n, 94))
    arrays["two-scales"] = np.where(uniform(n, 95) < 0.5, 2.0**-60, 1.0) * bell(n, 96)
    with np.errstate(over="ignore"):
        return {name: x.astype(DTYPES[dtype]) for name, x in arrays.items()}


def ratio(x: Array) -> float:
    return x.nbytes / encode(XpkCodec(), x).size


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_of_the_reference(dtype: str, build: str) -> None:
    codec = XpkCodec(BUILDS[build])
    for n in (300, 5003):
        for name, x in sets(n, dtype).items():
            wire = encode(codec, x)
            assert wire.tobytes() == reference.pack(x, reference.xpk_encode), (name, n)
            assert same_bits(decode(codec, wire, x.size, x.dtype), x), (name, n)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_decodes_the_bytes(dtype: str) -> None:
    for name, x in sets(5003, dtype).items():
        wire = encode(XpkCodec(), x).tobytes()
        assert same_bits(reference.unpack(wire, x.size, x.dtype, reference.xpk_decode), x), name


def test_every_width_and_both_forms_occur() -> None:
    """The comparisons with the reference therefore cover the complete format."""
    met = set()
    for dtype in DTYPES:
        for x in sets(5003, dtype).values():
            wire = encode(XpkCodec(), x)
            chunks = -(-x.nbytes // 4096)
            at = -(-chunks // 2) * 4
            for length in wire[: 2 * chunks].view("<u2"):
                if length != reference.RAW:
                    met |= {("hot", wire[at + 2] & 15), ("rare", wire[at + 2] >> 4 & 7), ("sparse", wire[at + 2] >> 7)}
                    at += 4 * int(length)
                else:
                    at += 4096
    wanted = {("hot", k) for k in range(1, 6)} | {("rare", k) for k in range(5)} | {("sparse", k) for k in range(2)}
    assert met == wanted


@pytest.mark.parametrize(
    ("name", "of_f4", "of_bf16", "of_f2"),
    [("gradient", 1.17, 1.43, 1.15), ("activation", 1.19, 1.48, 1.15), ("weight", 1.20, 1.50, 1.17)],
)
def test_ratio_on_training_data(name: str, of_f4: float, of_bf16: float, of_f2: float) -> None:
    x = float_sets(8192)[name]
    assert ratio(x) > of_f4
    assert ratio(x.astype(BFLOAT16)) > of_bf16
    assert ratio(x.astype(np.float16)) > of_f2
    assert encode(XpkCodec(), x).size < encode(MpcCodec(), x).size


@pytest.mark.parametrize(("zeros", "of_f4", "of_bf16"), [(0.5, 2.15, 2.35), (0.9, 8.0, 6.5)])
def test_zeros_cost_one_bit(zeros: float, of_f4: float, of_bf16: float) -> None:
    x = (np.abs(bell(65536, 97)) * (uniform(65536, 98) >= zeros)).astype(np.float32)
    assert ratio(x) > of_f4
    assert ratio(x.astype(BFLOAT16)) > of_bf16


def test_a_few_outliers_cost_little() -> None:
    x = bell(65536, 99).astype(np.float32)
    before = encode(XpkCodec(), x).size
    for value in (np.inf, -1e38, np.nan, 1e-38):
        struck = x.copy()
        struck[::1000] = value
        assert encode(XpkCodec(), struck).size < before * 1.005, value


def test_wrong_heads_are_refused() -> None:
    x = bell(1024, 100).astype(np.float32)
    wire = encode(XpkCodec(), x)
    for at, values in {5: (16, 255), 6: (0, 6, 15, 0x52, 0x72, 0xB2), 7: (1, 128)}.items():
        for value in values:
            damaged = wire.copy()
            damaged[at] = value
            with pytest.raises(ValueError, match="xpk: "):
                decode(XpkCodec(), damaged, x.size, x.dtype)
