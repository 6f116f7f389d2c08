"""Comparison of MPC with an independent NumPy reference. test_chunks.py tests the container."""

import numpy as np
import pytest
import reference_chunks as reference
from codec_data import bell, builds, decode, encode, float_sets, same_bits

from hpcbench.codecs.mpc import MpcCodec
from hpcbench.codecs.types import BFLOAT16

BUILDS = builds()
DTYPES = {"f4": np.dtype(np.float32), "f2": np.dtype(np.float16), "bf16": BFLOAT16, "f8": np.dtype(np.float64)}


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", range(1, 33))
def test_bytes_of_the_reference(dim: int, dtype: str, build: str) -> None:
    codec = MpcCodec(dim, BUILDS[build])
    for name, values in float_sets(2500).items():
        with np.errstate(over="ignore"):
            x = values.astype(DTYPES[dtype])
        wire = encode(codec, x)
        assert wire.tobytes() == reference.pack(x, reference.mpc_encode(dim)), name
        assert same_bits(decode(codec, wire, x.size, x.dtype), x), name


@pytest.mark.parametrize("dtype", ["f4", "bf16"])
@pytest.mark.parametrize("dim", [1, 3, 17])
def test_the_reference_decodes_the_bytes(dim: int, dtype: str) -> None:
    for name, values in float_sets(2500).items():
        x = values.astype(DTYPES[dtype])
        wire = encode(MpcCodec(dim), x).tobytes()
        assert same_bits(reference.unpack(wire, x.size, x.dtype, reference.mpc_decode(dim)), x), name


def test_a_stride_counts_values_of_the_type() -> None:
    """Interleaved series compress best with a stride equal to the number of series, for 4-byte and 2-byte values."""
    series = np.stack([np.cumsum(bell(4096, 60 + k)) * 1e-3 + 10.0 * k for k in range(3)], axis=1).ravel()
    for dtype in ("f4", "f2", "bf16"):
        x = series.astype(DTYPES[dtype])
        sizes = {dim: encode(MpcCodec(dim), x).size for dim in (1, 2, 3, 4)}
        assert min(sizes, key=lambda dim: sizes[dim]) == 3, (dtype, sizes)


def test_ratio_on_training_data() -> None:
    for name, least in {"gradient": (1.10, 1.26), "activation": (1.10, 1.26), "weight": (1.10, 1.28)}.items():
        x = float_sets(8192)[name]
        for values, ratio in zip((x, x.astype(BFLOAT16)), least, strict=True):
            assert values.nbytes / encode(MpcCodec(), values).size > ratio, (name, values.dtype)


@pytest.mark.parametrize("build", BUILDS)
def test_wrong_bitmaps_are_refused(build: str) -> None:
    x = bell(2048, 65).astype(np.float32)
    wire = encode(MpcCodec(), x)
    for byte in range(4, 4 + 128):
        damaged = wire.copy()
        damaged[byte] ^= 0x10
        with pytest.raises(ValueError, match="mpc: "):
            decode(MpcCodec(1, BUILDS[build]), damaged, x.size, x.dtype)
