"""The GPU front's staging of bits, run as threads of the CPU: the same bytes and values as the CPU front.

This is no run on a GPU; it proves the index arithmetic of kernels/gpu.cu.
"""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from codec_data import bell, decode, encode, same_bits

from hpcbench.codecs.zfp import Zfp
from hpcbench.resources import data_dir


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("gpu") / "front.so"
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler, "needs a C++ compiler, as building the package does"
    source = Path(__file__).with_name("gpu_front.cpp")
    command = [compiler, "-std=gnu++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-pthread"]
    command += [f"-I{data_dir('kernels')}", "-x", "c++", str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return ctypes.CDLL(str(library))


def run(front: ctypes.CDLL, what: int, rate: int, blocks: int, values: np.ndarray, wire: np.ndarray) -> None:
    addresses = (ctypes.c_void_p(a.ctypes.data) for a in (values, wire))
    front.run(what, rate, ctypes.c_ulonglong(blocks), *addresses)


@pytest.mark.parametrize("rate", range(4, 33))
def test_same_stream_and_values_as_the_cpu(rate: int, front: ctypes.CDLL) -> None:
    codec = Zfp(rate)
    for blocks in (1, 31, 33, 160):  # part of a warp, all but a lane of it, and more than all warps at once
        x = bell(4 * blocks, 80 + blocks).astype(np.float32)
        x[1] = np.inf
        expected = encode(codec, x)
        used = -(-blocks * 4 * rate // 32) * 4
        wire = np.full(used + 32, 0x5A, dtype=np.uint8)
        run(front, 0, rate, blocks, x, wire)
        assert same_bits(wire[:used], expected[:used]), blocks
        assert (wire[used:] == 0x5A).all(), "written behind the end"

        values = decode(codec, expected, x.size, np.float32)
        out = np.full(x.size + 4, 7, dtype=np.float32)
        run(front, 1, rate, blocks, out, wire)
        assert same_bits(out[: x.size], values), blocks
        assert (out[x.size :] == 7).all()
        out[:] = 1
        run(front, 2, rate, blocks, out, wire)
        assert same_bits(out[: x.size], values + np.float32(1)), blocks
