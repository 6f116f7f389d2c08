"""Tests of golden streams: golden.json contains digests of every codec's bytes on every data set.

After an intended format change, ``python tests/codecs/test_codec_golden.py`` regenerates the file.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from codec_data import Array, builds, encode, float_sets

from hpcbench.codecs.library import Kernels, kernels
from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.spec import FAMILIES, ROTATED, ROTATIONS, split
from hpcbench.codecs.types import BFLOAT16

FILE = Path(__file__).with_name("golden.json")
LOSSLESS = ("none", "mpc", "mpc:2", "mpc:3", "mpc:16", "mpc:32", "xpk", "rowsparse:64", "rowsparse:7")
SPARSE = ("topk:0.01", "topk:0.25", "topk:1", "threshold:0.001", "2:4")
OTHERS = (
    *(f"zfp:{rate}" for rate in range(4, 33)),
    *("fp16", "bf16", "fp8e4m3", "fp8e5m2"),
    *(f"int8:{block}" for block in (32, 64, 128, 256, 512, 1024)),
    *(f"int4:{block}" for block in (32, 64, 128, 256, 512, 1024)),
    *("int8:256:stochastic", "int4:32:stochastic"),
    *(f"int{bits}:{block}/256" for bits in (4, 3, 2) for block in (16, 32)),
    *(f"int{bits}:{block}/256:nonuniform" for bits in (4, 3) for block in (16, 32)),
    *("int4:32/256:stochastic", "int3:16/256:nonuniform:stochastic", "int2:32/256:stochastic"),
    *("int8:256:correlated", "int4:32:correlated", "rotate64+int4:128:correlated"),
    *("int4:32/256:correlated", "int3:16/256:nonuniform:correlated", "int2:32/256:correlated"),
    *(f"{stage}{size}+int4:32/256" for stage in ("rotate", "hadamard") for size in ROTATIONS),
    *(
        f"{element}{rule}"
        for element in ("mxfp8:e4m3", "mxfp8:e5m2", "mxfp6:e2m3", "mxfp6:e3m2", "mxfp4")
        for rule in ("", ":ceil", ":even", ":rceil")
    ),
    *("nvfp4", "rotate64+mxfp8:e4m3", "rotate128+mxfp6:e2m3", "hadamard32+mxfp4:rceil", "rotate16+nvfp4"),
    *("rotate512+nvfp4", "rotate1024+sign:32", "hadamard512+int8:1024"),
    *("rotate64+int8:256", "rotate32+int4:32", "hadamard64+sign:1024", "rotate128+fp8e4m3", "rotate16+fp8e5m2"),
    *("rotate64+int3:16/256", "hadamard256+int2:16/256"),
    *(f"sign:{block}" for block in (32, 64, 128, 256, 512, 1024)),
)
SEED, OFFSET = 20, 0xB5C3 << 48
VALUES = 5003


def cases() -> list[tuple[str, np.dtype[Any]]]:
    """Return every codec with each dtype that affects its bytes."""
    types = [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16]
    each = [(name, dtype) for name in (*LOSSLESS, *SPARSE) for dtype in types]
    return each + [(name, types[0]) for name in OTHERS] + [("int8:128", types[1]), ("zfp:12", types[2])]


def inputs(dtype: np.dtype[Any]) -> dict[str, Array]:
    """Return the data sets in a dtype. Values beyond the range of the dtype become infinite."""
    sets = float_sets(VALUES)
    tiny = sets["bell"]
    sets["subnormal"] = np.ldexp(tiny, -130).astype(np.float32)
    sets["special"] = np.where(tiny > 2e-3, np.float32(np.inf), np.where(tiny < -2e-3, np.float32(np.nan), tiny))
    with np.errstate(over="ignore"):
        return {label: x.astype(dtype) for label, x in sets.items()}


def seed_of(name: str) -> int:
    """Return the seed of a codec. Only correlated rounding interprets the upper bits, as the offset of its noise."""
    return SEED + (OFFSET if name.endswith(":correlated") else 0)


def digest(wire: npt.NDArray[np.uint8]) -> str:
    return hashlib.sha256(wire.tobytes()).hexdigest()[:16]


def digests(build: Kernels) -> dict[str, dict[str, str]]:
    """Return digests by codec and dtype, then by data set."""
    return {
        f"{name} {dtype}": {
            label: digest(encode(get_codec(name, build), x, seed=seed_of(name))) for label, x in inputs(dtype).items()
        }
        for name, dtype in cases()
    }


@pytest.mark.parametrize("build", builds())
def test_streams_equal_the_committed_digests(build: str) -> None:
    assert digests(kernels(build)) == json.loads(FILE.read_text())


def test_every_family_is_included() -> None:
    assert {split(name)[0] for name, _ in cases() if "+" not in name} == set(FAMILIES)
    assert {split(name.partition("+")[2])[0] for name, _ in cases() if "+" in name} == set(ROTATED)


def test_inputs_differ_and_a_flipped_bit_is_detected() -> None:
    golden = json.loads(FILE.read_text())
    for name in ("zfp:8", "mpc", "xpk", "int8:256", "fp16"):
        different = len(set(golden[f"{name} float32"].values()))
        assert different >= len(inputs(np.dtype(np.float32))) - 1, "only the two kinds of zeros may coincide"
    x = inputs(np.dtype(np.float32))["bell"]
    wire = encode(get_codec("zfp:8"), x)
    for bit in (0, 1000, 8 * wire.size - 1):
        flipped = wire.copy()
        flipped[bit // 8] ^= 1 << bit % 8
        assert digest(flipped) != golden["zfp:8 float32"]["bell"]
    x[1234] = np.nextafter(x[1234], np.float32(9))
    assert digest(encode(get_codec("zfp:32"), x)) != golden["zfp:32 float32"]["bell"]


if __name__ == "__main__":
    FILE.write_text(json.dumps(digests(kernels("generic")), indent=1) + "\n")
