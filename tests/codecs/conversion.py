"""Requirements for device conversions: results must be bitwise identical to NumPy's casts, residuals and sums."""

import numpy as np
from codec_data import Array, bell, random_words, same_bits
from gpu_agreement import Memory, mixed

from hpcbench.codecs.convert import add, add_residual, convert
from hpcbench.codecs.device import Device
from hpcbench.codecs.types import BFLOAT16

F16, F32, F64 = (np.dtype(t) for t in (np.float16, np.float32, np.float64))
Pair = tuple[np.dtype[np.generic], np.dtype[np.generic]]
PAIRS: tuple[Pair, ...] = ((F32, F16), (F32, BFLOAT16), (F64, F16), (F64, BFLOAT16), (F64, F32))
"""Pairs of the dtype of values and the dtype in which they are sent."""
SUMMED = (F32, F64, F16, BFLOAT16)
"""Dtypes in which values of the same dtype can be summed."""
LENGTHS = (0, 1, 2, 3, 5, 31, 33, 127, 129, 511, 512, 513, 1023, 4097, 20_011)


def codes(sent: np.dtype[np.generic]) -> Array:
    """Return all values of a 16-bit dtype, or the same number of random float32 values."""
    if sent == F32:
        return random_words(65_536, 5).astype(np.uint32).view(np.float32)
    return np.arange(65_536).astype(np.uint16).view(sent)


def critical(values: np.dtype[np.generic], sent: np.dtype[np.generic]) -> Array:
    """Return the rounding ties of a dtype (the midpoints between neighbors), and their neighbors on both sides."""
    with np.errstate(all="ignore"):
        grid = np.sort(codes(sent).astype(F64))
        grid = grid[np.isfinite(grid)]
        ends = grid[-1] + (grid[-1] - grid[-2]) / 2  # values that round to infinity
        middles = np.concatenate([(grid[1:] + grid[:-1]) / 2, [ends, -ends]]).astype(values)
        return np.concatenate([middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)]).astype(values)


def plain_nan(x: Array) -> Array:
    """Replace NaN payloads with the default payload. Signs are preserved."""
    result = x.copy()
    nan = np.isnan(x)
    with np.errstate(invalid="ignore"):
        result[nan] = np.where(np.signbit(x[nan].astype(F32)), -np.nan, np.nan)
    return result


def check(device: Device, memory: Memory, x: Array, sent: np.dtype[np.generic], offset: int = 0) -> None:
    """Check all kernel operations on `x`, and on received values."""
    n, where = x.size, f"{x.size} of {x.dtype} as {sent} at {offset}"

    def view(array):
        return device.view("conversion", array, 0)

    with np.errstate(all="ignore"):
        rounded = x.astype(sent)
        lack = x - rounded.astype(x.dtype)
        lacked = np.where(np.arange(n) % 5 == 0, np.float32(-0.0), bell(n, 3).astype(F32) * np.float32(1e-3))
        expected_residual = lacked.copy()
        np.add(expected_residual, lack, out=expected_residual, where=np.isfinite(lack), casting="same_kind")
        total = rounded.astype(F32) + lacked
        anew = total.astype(sent)
        lacking = total - anew.astype(F32)
    values, out = memory.put(x, offset), memory.new(n, sent, offset)
    convert(device, view(out), view(values), 0)
    assert same_bits(plain_nan(memory.get(out)), plain_nan(rounded)), where

    out, residual = memory.new(n, sent, offset), memory.put(lacked, offset)
    convert(device, view(out), view(values), 0, residual=view(residual))
    assert same_bits(plain_nan(memory.get(out)), plain_nan(rounded)), where
    assert same_bits(memory.get(residual).copy(), expected_residual), f"residual of {where}"
    assert memory.intact(out)
    assert memory.intact(residual)

    source, out, residual = memory.put(rounded, offset), memory.new(n, sent, offset), memory.put(lacked, offset)
    add_residual(device, view(out), view(source), view(residual), 0)
    assert same_bits(plain_nan(memory.get(out)), plain_nan(anew)), f"sum with a residual of {where}"
    assert same_bits(memory.get(residual).copy(), np.where(np.isfinite(lacking), lacking, F32.type(0)))

    came = np.resize(codes(sent), n) if n > 65_536 else codes(sent)[random_words(n, 8).astype(np.uint16)]
    with np.errstate(all="ignore"):
        wide, added = came.astype(x.dtype), x + came.astype(x.dtype)
    wire, out, sums = memory.put(came, offset), memory.new(n, x.dtype, offset), memory.put(x, offset)
    convert(device, view(out), view(wire), 0)
    convert(device, view(sums), view(wire), 0, accumulate=True)
    assert same_bits(plain_nan(memory.get(out)), plain_nan(wide)), f"back from {where}"
    assert same_bits(np.abs(plain_nan(memory.get(sums))), np.abs(plain_nan(added))), f"sums of {where}"
    assert memory.intact(out)
    assert memory.intact(sums)
    assert same_bits(memory.get(values).copy(), x)


def sweep(device: Device, memory: Memory, values: np.dtype[np.generic], sent: np.dtype[np.generic]) -> None:
    """Check every tie of the dtype, and mixed values at all address offsets."""
    check(device, memory, critical(values, sent), sent)
    pool = mixed(60_000, values, 300)
    if values == F64:
        fine = np.ldexp(bell(pool.size, 9), np.arange(pool.size) % 400 - 200)  # beyond float32's range and precision
        pool = np.where(np.arange(pool.size) % 3 == 0, fine, pool)
    for k, n in enumerate(LENGTHS):
        start = 1777 * k % 30_000
        check(device, memory, pool[start : start + n].copy(), sent, (0, 4, 1, 2, 8)[k % 5])


def check_sums(device: Device, memory: Memory, dtype: np.dtype[np.generic]) -> None:
    """Check that sums of mixed and subnormal values are bitwise identical to NumPy's, except for NaN."""
    smallest = np.array([1, 2, 0x8003 if dtype.itemsize == 2 else 3], f"u{dtype.itemsize}").view(dtype)
    pool, others = (mixed(60_000, dtype, seed) for seed in (300, 400))
    cases = [(smallest, smallest[::-1].copy(), 0)]
    for k, n in enumerate(LENGTHS):
        start = 1777 * k % 30_000
        cases.append((pool[start : start + n].copy(), others[start : start + n].copy(), (0, 4, 1, 2, 8)[k % 5]))
    for x, y, offset in cases:
        with np.errstate(all="ignore"):
            expected = x + y
        total, values = memory.put(x, offset), memory.put(y, offset)
        add(device, *(device.view("sum", array, 0) for array in (total, values)), 0)
        assert same_bits(np.abs(plain_nan(memory.get(total))), np.abs(plain_nan(expected))), f"{x.size} of {dtype}"
        assert memory.intact(total)
        assert same_bits(memory.get(values).copy(), y)
