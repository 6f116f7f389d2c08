"""Tests that conversions on an emulated GPU equal NumPy's casts at every tie, and that planted faults are detected."""

from pathlib import Path

import numpy as np
import pytest
from conversion import F16, F32, F64, PAIRS, SUMMED, Pair, check_sums, critical, sweep
from emulated_device import EmulatedDevice, Fenced
from emulator import compile_all
from planted import check_detected, plant_fault

from hpcbench.codecs.convert import add, add_residual, build_of, convert, sum_build_of
from hpcbench.codecs.device import View
from hpcbench.codecs.types import BFLOAT16


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    compile_all([*(build_of(*pair) for pair in PAIRS), *map(sum_build_of, SUMMED)])


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]} as {pair[1]}")
def test_bits_of_numpy(pair: Pair) -> None:
    sweep(EmulatedDevice(), Fenced(), *pair)
    sweep_short(EmulatedDevice(backwards=True), *pair)


@pytest.mark.parametrize("dtype", SUMMED, ids=str)
def test_sums_of_numpy(dtype: np.dtype[np.generic]) -> None:
    check_sums(EmulatedDevice(), Fenced(), dtype)


def test_sums_that_do_not_fit_are_refused() -> None:
    device = EmulatedDevice()

    def put(n: int, dtype: str) -> View:
        return device.view("", np.zeros(n, dtype), 0)

    with pytest.raises(TypeError, match="float32 to float64: only values of the same type can be summed"):
        add(device, put(4, "f8"), put(4, "f4"), 0)
    with pytest.raises(TypeError, match="only float32, float64, float16 and bfloat16 can be summed, not int32"):
        add(device, put(4, "i4"), put(4, "i4"), 0)
    with pytest.raises(ValueError, match="4 values, but the output"):
        add(device, put(3, "f4"), put(4, "f4"), 0)
    assert not device.launched


def sweep_short(device: EmulatedDevice, *pair: np.dtype[np.generic]) -> None:
    x = critical(*pair)[:700]
    out, back = np.zeros(x.size, pair[1]), np.zeros_like(x)
    with np.errstate(all="ignore"):
        convert(device, *(device.view("", a, 0) for a in (out, x)), 0)
        convert(device, *(device.view("", a, 0) for a in (back, out)), 0)
        assert np.array_equal(back, x.astype(pair[1]).astype(pair[0]), equal_nan=True)


def faulty_sweep(name: str, kernels: Path) -> None:
    values, sent = (np.dtype(part) for part in name.split(" as "))
    sweep(EmulatedDevice(kernels=kernels), Fenced(), values, sent)


FAULTS = {
    "what is cut off leaves no trace": ("<< 29) - 1u)) != 0u", "<< 29) - 1u)) > 1u << 29", "float64 as float16"),
    "a residual that takes the lack twice": ("? kept + lack :", "? kept + lack + lack :", "float32 as float16"),
    "a residual that keeps infinity": ("kept + lack : kept", "kept + lack : lack", "float32 as bfloat16"),
    "a sum that forgets what was there": ("hb_add_tile<R>(v, old)", "hb_add_tile<R>(v, v)", "float32 as bfloat16"),
    "a float64 lost on the way": ("i < n; i += step) work(i)", "i + 1 < n; i += step) work(i)", "float64 as bfloat16"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_detected(fault: str, tmp_path: Path) -> None:
    old, new, name = FAULTS[fault]
    check_detected(faulty_sweep, name, plant_fault(tmp_path, "gpu/convert.h", old, new))


def faulty_sums(name: str, kernels: Path) -> None:
    check_sums(EmulatedDevice(kernels=kernels), Fenced(), np.dtype(name))


FLUSHES = (
    "for (int r = 0; r < R; r++) for (int i = 0; i < 4; i++)"
    " if ((hb_lane<hb_u32>::as_bits(v[r][i]) & HB_MAGNITUDE) < 0x800000u) v[r][i] = 0.0f;"
)
SUM_FAULTS = {
    "subnormal sums become zero": ("hb_add_tile<R>(v, old);", f"hb_add_tile<R>(v, old); {FLUSHES}", "float32"),
    "a sum that forgets what was there": ("hb_add_tile<R>(v, old)", "hb_add_tile<R>(v, v)", "bfloat16"),
    "a float64 lost on the way": ("i < n; i += step)", "i + 1 < n; i += step)", "float64"),
}


@pytest.mark.parametrize("fault", SUM_FAULTS)
def test_planted_faults_of_sums_are_detected(fault: str, tmp_path: Path) -> None:
    old, new, name = SUM_FAULTS[fault]
    check_detected(faulty_sums, name, plant_fault(tmp_path, "gpu/sum.cu", old, new))


@pytest.mark.parametrize("pair", [(F16, BFLOAT16), (F32, F64), (F16, F32), (F32, np.dtype(np.int16))])
def test_other_pairs_are_refused(pair: Pair) -> None:
    with pytest.raises(TypeError, match=f"can be sent as float32, float16 or bfloat16, but not {pair[0]} as {pair[1]}"):
        build_of(*pair)


def test_arguments_that_do_not_fit_are_refused() -> None:
    device = EmulatedDevice()

    def views(*arrays: np.ndarray) -> list:
        return [device.view("", a, 0) for a in arrays]

    x, sent, residual = np.zeros(4, F32), np.zeros(4, F16), np.zeros(4, F32)
    for target, source, residual_, accumulate in ((x, sent, residual, False), (sent, x, None, True)):
        with pytest.raises(
            TypeError, match="pass a residual only if values are rounded, and accumulate only if they are not"
        ):
            lack = None if residual_ is None else views(residual_)[0]
            convert(device, *views(target, source), 0, residual=lack, accumulate=accumulate)
    for target, lack in ((sent[:3], residual), (sent, residual[:3])):
        with pytest.raises(ValueError, match="4 values, but the output"):
            convert(device, *views(target, x), 0, residual=views(lack)[0])
    with pytest.raises(TypeError, match="residuals must be float32, not float64"):
        convert(device, *views(sent, x), 0, residual=views(np.zeros(4, F64))[0])
    with pytest.raises(TypeError, match="not float32 as float64"):
        add_residual(device, *views(np.zeros(4, F64), np.zeros(4, F64), residual), 0)
    with pytest.raises(TypeError, match="float32 to float16: a residual can be added only to values of the same type"):
        add_residual(device, *views(sent, x, residual), 0)
    assert not device.launched
