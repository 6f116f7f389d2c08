"""Tests that topk, threshold and rowsparse on the emulated GPU equal the CPU: bytes, values and rejections."""

from pathlib import Path

import numpy as np
import pytest
from codec_data import bell, integers
from emulated_device import EmulatedDevice, Fenced
from emulator import build_of, compile_all, compiled
from gpu_agreement import check, check_damaged, damaged, mixed
from planted import check_detected, plant_fault

from hpcbench.codecs.cuda import CudaCodec
from hpcbench.codecs.types import BFLOAT16, Array

F32, F16, F64 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.float64)
NAMES = ["topk:0.01", "topk:0.2", "topk:1", "threshold:0.001", "threshold:0.003", "threshold:1e30"]
ROWS = ["rowsparse:1", "rowsparse:7", "rowsparse:64", "rowsparse:5000", "rowsparse:70000"]
CASES = [(name, dtype) for name in NAMES for dtype in (F32, F16, BFLOAT16)]
CASES += [(name, dtype) for name in ROWS for dtype in (F32, F16, F64, np.dtype(np.int8))]
LENGTHS = [0, 1, 2, 5, 31, 33, 255, 257, 1025, 7001, 65_535, 65_536, 65_537, 140_003]


def data(name: str, n: int, dtype: np.dtype[np.generic], seed: int) -> Array:
    """Return mixed values. For rowsparse, most rows are zero."""
    x = mixed(n, dtype, seed)
    if name.startswith("rowsparse"):
        width = int(name.partition(":")[2])
        live = integers(-(-n // width), 0, 9, seed + 50) == 0
        x = np.where(np.repeat(live, width)[:n], x, np.zeros_like(x))
    return np.ascontiguousarray(x)


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    pairs = [(F32, F32), (F16, F16), (BFLOAT16, BFLOAT16), (F16, F32), (BFLOAT16, F32), (BFLOAT16, F16)]
    builds = [build_of(name, *pair) for name in ("topk:0.1", "threshold:1") for pair in pairs]
    compile_all(builds + [build_of("rowsparse:1", dtype, dtype) for dtype in (F32, F16, F64, np.dtype(np.int8))])


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_bytes_and_values_of_the_cpu(name: str, dtype: np.dtype[np.generic]) -> None:
    codec, memory = compiled(name), Fenced()
    x, other = data(name, 150_000, dtype, 300), data(name, 150_000, dtype, 400)
    for k, n in enumerate(LENGTHS):
        start = 0 if n > 100_000 else 1777 * k % 19_000
        gpu = CudaCodec(codec, EmulatedDevice(backwards=k % 2 == 1))
        check(gpu, codec, memory, x[start : start + n], other[start : start + n], (0, 4, 1, 2, 8)[k % 5])


def test_ties_go_to_the_lower_places() -> None:
    """Only a few magnitudes occur, so every chunk contains values of the smallest selected magnitude.

    In one chunk, only some of these values are selected.
    """
    gpus = {}
    for name in ("topk:0.01", "topk:0.2", "topk:0.7"):
        codec = compiled(name)
        gpus[name] = CudaCodec(codec, EmulatedDevice(multiprocessors=2, workers=5))
        for kinds in (1, 2, 5):
            x = integers(200_000, 0, kinds, 70).astype(np.float32) * np.float32(-1.5)
            x[::3] *= -1
            check(gpus[name], codec, Fenced(), x, x[::-1].copy())


def test_more_overflow_than_room() -> None:
    codec = compiled("topk:0.01")
    gpu = CudaCodec(codec, EmulatedDevice())
    x = bell(80_000, 71).astype(np.float32)
    x[::20] = np.inf
    x[5::40] = np.nan
    check(gpu, codec, Fenced(), x, bell(80_000, 72).astype(np.float32))


@pytest.mark.parametrize("name", ["topk:0.02", "threshold:0.002", "rowsparse:3"])
def test_blocks_wait_for_earlier_blocks(name: str) -> None:
    codec, device = compiled(name), EmulatedDevice(multiprocessors=3, workers=6)
    gpu = CudaCodec(codec, device)
    x, other = data(name, 600_000, F32, 500), data(name, 600_000, F32, 600)
    for _ in range(20):
        check(gpu, codec, Fenced(), x, other)
        if device.waits:
            break
    assert device.waits, "no block ever waited: the test proves nothing"


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize(
    "name", ["topk:0.01", "topk:0.08", "topk:0.0003", "threshold:0.001", "rowsparse:7", "rowsparse:1"]
)
def test_damaged_streams_are_refused_as_on_the_cpu(name: str, dtype: np.dtype[np.generic]) -> None:
    codec, memory = compiled(name), Fenced()
    gpu = CudaCodec(codec, EmulatedDevice())
    x = data(name, 70_001, dtype, 700)
    stream = np.zeros(codec.wire_bytes(x.size, dtype), np.uint8)
    stream = stream[: codec.encode(x, stream)].copy()
    wires = damaged(stream, 800, 120)
    near_the_end = integers(60, 0, min(stream.size, 3000), 801)  # the position of the last index
    for wire, place, bit in zip(wires[60:], near_the_end, integers(60, 0, 8, 802), strict=True):
        if wire.size == stream.size:
            wire[...] = stream
            wire[-1 - place] ^= np.uint8(1 << bit)
    count = sum(check_damaged(gpu, codec, memory, wire, x) for wire in wires)
    assert 20 < count < 120


def sweep(name: str, kernels: Path) -> None:
    codec, memory = compiled(name), Fenced()
    gpu = CudaCodec(codec, EmulatedDevice(kernels=kernels))
    x, other = data(name, 150_000, F32, 300), data(name, 150_000, F32, 400)
    if name == "topk:0.2":
        x = np.round(x * 500)  # ties
    if name == "rowsparse:7":
        x[140:147] = -0.0
    x[3], x[5000:5600] = np.nan, np.inf
    check(gpu, codec, memory, x[:2001], other[:2001])
    stream = check(gpu, codec, memory, x, other, 4)
    for place, bit in zip(integers(200, 0, min(stream.size, 2000), 810), integers(200, 0, 8, 811), strict=True):
        wire = stream.copy()
        wire[-1 - place] ^= np.uint8(1 << bit)
        check_damaged(gpu, codec, memory, wire, x)
    stream[0] ^= 4
    check_damaged(gpu, codec, memory, stream, x)


FAULTS = {
    "a digit's bin": ("gpu/select.h", "state->equal = k - before;", "state->equal = k - before - 1;", "topk:0.2"),
    "a last block that looks too early": ("gpu/elements.h", "+ 1u == gridDim.x", "+ 2u == gridDim.x", "topk:0.2"),
    "ties of every chunk": ("gpu/sparse.h", "equal > before ? equal - before : 0", "equal", "topk:0.2"),
    "infinity left in the residual": ("gpu/sparse.h", "hb_finite_or_0(lack)", "lack", "topk:0.01"),
    "never all": ("gpu/sparse.h", "sent < m && s.end >= all.end", "false", "threshold:1e-06"),
    "padding forgotten": ("gpu/marks.h", "to[end + threadIdx.x] = 0", "(void)0", "topk:0.01"),
    "starts believed": ("gpu/sparse.h", "hb_load_raw<8>(wire + 8 * chunk) == end", "true", "threshold:0.003"),
    "order believed": ("gpu/marks.h", "from[s.low + rank - 1u] >= low", "false", "topk:0.01"),
    "places believed": ("gpu/marks.h", "hb_load_half(from + s.index + 2u * j - 2u) >= place", "false", "topk:0.0003"),
    "values behind the last row": ("gpu/sparse.h", "end = at + SIZE * msg.rest;", "end = at;", "rowsparse:7"),
    "negative zeros dropped": ("gpu/sparse.h", "from.raw(first + e) &&", "from.raw(first + e) << 33 &&", "rowsparse:7"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_detected(fault: str, tmp_path: Path) -> None:
    *change, name = FAULTS[fault]
    check_detected(sweep, name, plant_fault(tmp_path, *change))
