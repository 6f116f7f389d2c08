"""Tests that MPC and xpk on the emulated GPU are bitwise identical to the CPU, and reject the same streams."""

from pathlib import Path

import numpy as np
import pytest
from codec_data import float_sets
from emulated_device import EmulatedDevice, Fenced
from emulator import build_of, compile_all, compiled
from gpu_agreement import check, check_damaged, damaged, mixed
from planted import check_detected, plant_fault

from hpcbench.codecs.cuda import CudaCodec
from hpcbench.codecs.types import BFLOAT16

NAMES = ["mpc", "mpc:3", "mpc:32", "xpk"]
F32, F16 = np.dtype(np.float32), np.dtype(np.float16)
DTYPES = [F32, F16, BFLOAT16, np.dtype(np.float64), np.dtype(np.int8), np.dtype(np.int32)]
LENGTHS = [0, 1, 2, 3, 33, 500, 1023, 1024, 1025, 2047, 2049, 4097, 8193, 20_001]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    pairs = [(dtype, dtype) for dtype in DTYPES[:-1]] + [(F16, F32), (BFLOAT16, F32), (BFLOAT16, F16)]
    compile_all(build_of(name, *pair) for name in ("mpc", "xpk") for pair in pairs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_bytes_and_values_of_the_cpu(name: str, dtype: np.dtype[np.generic]) -> None:
    codec, memory = compiled(name), Fenced()
    x, other = mixed(60_000, dtype, 300), mixed(60_000, dtype, 400)
    for k, n in enumerate(LENGTHS):
        start = 1777 * k % 19_000
        gpu = CudaCodec(codec, EmulatedDevice(backwards=k % 2 == 1))
        check(gpu, codec, memory, x[start : start + n], other[start : start + n], (0, 4, 1, 2, 8)[k % 5])


@pytest.mark.parametrize("name", ["mpc", "xpk"])
def test_every_kind_of_data(name: str) -> None:
    codec = compiled(name)
    gpu = CudaCodec(codec, EmulatedDevice())
    sets = float_sets(5003)
    for x in sets.values():
        for dtype in (F32, BFLOAT16):
            check(gpu, codec, Fenced(), x.astype(dtype), sets["bell"].astype(dtype))


@pytest.mark.parametrize("name", ["mpc", "xpk"])
def test_blocks_wait_for_earlier_blocks(name: str) -> None:
    """Each block runs on its own thread, and there are more blocks than processors.

    Blocks wait for each other, but the bytes do not change.
    """
    codec, device = compiled(name), EmulatedDevice(multiprocessors=3, workers=6)
    gpu = CudaCodec(codec, device)
    x, other = mixed(150_000, F32, 500), mixed(150_000, F32, 600)
    for _ in range(40):
        check(gpu, codec, Fenced(), x, other)
        if device.waits:
            break
    assert device.waits, "no block ever waited: the test proves nothing"


@pytest.mark.parametrize("dtype", [F32, BFLOAT16], ids=str)
@pytest.mark.parametrize("name", ["mpc", "xpk"])
def test_damaged_streams_are_refused_as_on_the_cpu(name: str, dtype: np.dtype[np.generic]) -> None:
    codec, memory = compiled(name), Fenced()
    gpu = CudaCodec(codec, EmulatedDevice())
    x = mixed(12_000, dtype, 700)[1000:10_500].copy()
    stream = np.zeros(codec.wire_bytes(x.size, dtype), np.uint8)
    stream = stream[: codec.encode(x, stream)].copy()
    count = sum(check_damaged(gpu, codec, memory, wire, x) for wire in damaged(stream, 800, 250))
    assert 50 < count < 250
    local = mixed(x.size, dtype, 750)
    out = memory.new(codec.wire_bytes(x.size, dtype), np.uint8)
    length = gpu.decode_add_encode(memory.put(stream[:-4].copy()), memory.put(local), out)
    with pytest.raises(ValueError, match="bytes do not encode"):
        int(length)
    assert memory.intact(out)


def sweep(name: str, kernels: Path) -> None:
    codec, memory = compiled(name), Fenced()
    gpu = CudaCodec(codec, EmulatedDevice(kernels=kernels, multiprocessors=2, workers=4))
    for dtype in (F32, F16):
        x, other = mixed(60_000, dtype, 300), mixed(60_000, dtype, 400)
        check(gpu, codec, memory, x, other, 4)
        short = x[:19_000]  # contains every kind of segment
        stream = check(gpu, codec, memory, short, other[: short.size])
        for wire in damaged(stream, 800, 60):
            check_damaged(gpu, codec, memory, wire, short)


FAULTS = {
    "sizes told before they are known": ("gpu/order.h", "HB_TOLD_SIZE | size", "HB_TOLD_ALL | size", "mpc"),
    "a chunk's place in its block": ("gpu/chunks.h", "if (w < warp) before", "if (w <= warp) before", "mpc"),
    "the end of the wire not looked at": ("gpu/chunks.h", "if (end != room) hb_fault(state);", "", "mpc"),
    "a length believed": ("gpu/chunks.h", "&& at + words <= room", "", "xpk"),
    "a bitmap believed": ("gpu/mpc.h", "|| count + BITMAP != words", "", "mpc"),
    "a row's last word forgotten": ("gpu/mpc.h", "last = __shfl_sync(HB_EVERY, t, 31)", "last = 0", "mpc"),
    "the wrong half": ("gpu/mpc.h", "halves[32u + rows.lane] << 16", "halves[rows.lane] << 16", "mpc"),
    "the first of equals": ("gpu/xpk_levels.h", "end) << 5 | lane)", "end) << 5 | (31u - lane))", "xpk"),
    "rare codes out of order": ("gpu/xpk_levels.h", "left += (hb_u32)__popc(those)", "left += 1", "xpk"),
    "rare codes below the start": ("gpu/xpk_levels.h", "if (x >= start) x += most", "x += most", "xpk"),
    "a list decoded from its front": ("gpu/xpk_levels.h", "x = list[left + (", "x = list[(", "xpk"),
    "a residual that keeps infinity": ("gpu/words.h", "hb_finite_or_0(x - hb", "(x - hb", "mpc"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_detected(fault: str, tmp_path: Path) -> None:
    *change, name = FAULTS[fault]
    check_detected(sweep, name, plant_fault(tmp_path, *change))
