"""Streams must not change: SHA-256 of every codec's bytes on every data set, committed as golden.json.

After a change of a format that is meant: ``python tests/codecs/test_codec_golden.py`` writes the file anew.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from codec_data import builds, encode, float_sets

from hpcbench.codecs.base import Codec
from hpcbench.codecs.library import Kernels, kernels
from hpcbench.codecs.mpc import Mpc
from hpcbench.codecs.zfp import Zfp

FILE = Path(__file__).with_name("golden.json")


def codecs(build: Kernels) -> list[Codec]:
    return [*(Zfp(rate, build) for rate in range(4, 33)), *(Mpc(dim, build) for dim in (1, 2, 3, 16, 32))]


def inputs() -> dict[str, npt.NDArray[np.float32]]:
    sets = float_sets(5003)
    tiny = sets["bell"]
    sets["subnormal"] = np.ldexp(tiny, -130).astype(np.float32)
    sets["special"] = np.where(tiny > 2e-3, np.float32(np.inf), np.where(tiny < -2e-3, np.float32(np.nan), tiny))
    return sets


def digest(wire: npt.NDArray[np.uint8]) -> str:
    return hashlib.sha256(wire.tobytes()).hexdigest()


def digests(build: Kernels) -> dict[str, dict[str, str]]:
    return {codec.name: {label: digest(encode(codec, x)) for label, x in inputs().items()} for codec in codecs(build)}


@pytest.mark.parametrize("build", builds())
def test_streams_are_those_committed(build: str) -> None:
    assert digests(kernels(build)) == json.loads(FILE.read_text())


def test_inputs_differ_and_a_flipped_bit_is_seen() -> None:
    golden = json.loads(FILE.read_text())
    for codec in codecs(kernels()):
        assert len(set(golden[codec.name].values())) >= len(inputs()) - 1, "only the two kinds of zeros may coincide"
    x = inputs()["bell"]
    wire = encode(Zfp(8), x)
    for bit in (0, 1000, 8 * wire.size - 1):
        flipped = wire.copy()
        flipped[bit // 8] ^= 1 << bit % 8
        assert digest(flipped) != golden["zfp:8"]["bell"]
    x[1234] = np.nextafter(x[1234], np.float32(9))
    assert digest(encode(Zfp(32), x)) != golden["zfp:32"]["bell"]


if __name__ == "__main__":
    FILE.write_text(json.dumps(digests(kernels("generic")), indent=1) + "\n")
