"""A slow and simple NumPy implementation of the block codecs: the oracle for the kernels."""

from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import reference_block_float

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]


def padded(x: Array, multiple: int) -> Array:
    """Pad `x` with zeros to a multiple of `multiple` values."""
    out = np.zeros(-(-x.size // multiple) * multiple, dtype=x.dtype)
    out[: x.size] = x
    return out


def planes(*parts: Array) -> Bytes:
    """Concatenate planes. All planes except the last are padded to a multiple of 4 bytes."""
    raw = [part.view(np.uint8).ravel() for part in parts]
    return np.concatenate([*(padded(part, 4) for part in raw[:-1]), raw[-1]])


# ------------------------------------------------------------------------------------------------ casts
_TARGETS: dict[str, tuple[Any, int]] = {
    "fp16": (np.float16, 15),
    "fp8e4m3": (ml_dtypes.float8_e4m3fn, 8),
    "fp8e5m2": (ml_dtypes.float8_e5m2, 15),
}


def short(x: Floats, dtype: Any) -> Array:
    """Round to a 16-bit or 8-bit dtype as NumPy or ml_dtypes does, and return the bits as integers.

    Each sign has a single NaN.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        values = x.astype(dtype)
    code = values.view(np.uint16 if values.itemsize == 2 else np.uint8)
    sign = np.signbit(x).astype(code.dtype) << (8 * code.itemsize - 1)
    quiet = np.array(np.nan, dtype=dtype).view(code.dtype) & ~(code.dtype.type(1) << (8 * code.itemsize - 1))
    return np.where(np.isnan(values.astype(np.float32)), quiet | sign, code).astype(code.dtype)


def cast_encode(name: str, x: Floats) -> Bytes:
    if name == "bf16":
        return short(x, ml_dtypes.bfloat16).view(np.uint8)
    dtype, exponent = _TARGETS[name]
    blocks = padded(x, 128).reshape(-1, 128)  # [n/128, 128]
    top = np.where(np.isfinite(blocks), np.abs(blocks), 0).max(axis=1).astype(np.float64)
    power = np.where(top > 0, np.frexp(top)[1] - 1 - exponent, -126)
    fits = np.isfinite(np.ldexp(top, -power).astype(np.float32).astype(dtype).astype(np.float32))
    power = np.maximum(power + ~fits, -126)
    with np.errstate(invalid="ignore"):  # signaling NaN
        scaled = np.ldexp(blocks.astype(np.float64), -power[:, None]).astype(np.float32)
    return planes(short(scaled.ravel()[: x.size], dtype), (power + 127).astype(np.uint8))


def cast_decode(name: str, wire: Bytes, n: int) -> Floats:
    if name == "bf16":
        return wire.view(ml_dtypes.bfloat16).astype(np.float32)
    dtype = np.dtype(_TARGETS[name][0])
    values = wire[: n * dtype.itemsize].view(dtype).astype(np.float64)
    power = wire[-(-n * dtype.itemsize // 4) * 4 :].astype(np.int64) - 127
    with np.errstate(over="ignore"):
        return np.ldexp(values, power.repeat(128)[:n]).astype(np.float32)


# ------------------------------------------------------------------------------------------------ block integers
def random_words(n: int, seed: int, first: int = 0) -> Words:
    """Return the random words of a seed with indices ``first`` to ``first + n``. The indices must not cross 2^32."""

    def mix(x: Words) -> Words:
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
        x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
        return x ^ (x >> np.uint32(16))

    low, high = np.array([seed & 0xFFFFFFFF], dtype=np.uint32), np.array([seed >> 32], dtype=np.uint32)
    a = mix(low + np.uint32(0x9E3779B9))
    b = mix(high ^ a)
    upper, begin = np.uint32(first >> 32), np.uint32(first & 0xFFFFFFFF)
    with np.errstate(over="ignore"):
        second = mix(b + upper * np.uint32(0x9E3779B9))
    return mix(mix((np.arange(n, dtype=np.uint32) + begin) ^ mix(a ^ upper)) + second)


def split_seed(how: str, seed: int) -> tuple[int, np.uint32]:
    """Return the seed of the random words, and the offset of the noise. Only correlated rounding has an offset."""
    return (seed & (2**48 - 1), np.uint32(seed >> 48)) if how == "correlated" else (seed, np.uint32(0))


def quant_encode(bits: int, block: int, x: Floats, seed: int, how: str = "", first: int = 0) -> Bytes:
    """Encode block integers. `how` is the rounding, and `first` is the index of ``x[0]`` in the message."""
    largest = np.float32(127 if bits == 8 else 7)
    blocks = padded(x, block).reshape(-1, block)  # [n/b, b]
    top = np.abs(blocks).max(axis=1)
    with np.errstate(all="ignore"):
        before = np.where(top < np.float32(2.0**-100), np.float32(2.0**64), np.float32(1))
        inverse = np.where(top > 0, largest / (top * before), np.float32(0))
        scale = np.where(np.isfinite(top), top / largest, np.float32(np.inf)).astype(np.float32)
        y = blocks * before[:, None] * inverse[:, None]
        if not how:
            q = np.rint(y)
        else:
            shared, offset = split_seed(how, seed)
            noise = random_words(blocks.size, shared, first).reshape(blocks.shape) >> np.uint32(16)
            u = (((noise + offset) % np.uint32(65536)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-16)
            q = np.minimum(np.floor(y + u), largest)
    special = np.where(np.isinf(blocks), np.copysign(largest, blocks), np.float32(0))
    q = np.where(np.isfinite(top)[:, None], q, special).astype(np.int8).ravel()
    if bits == 4:
        q = padded(q[: x.size], 2)
        return planes((q[::2] & 15) | (q[1::2] << 4), scale)
    return planes(q[: x.size], scale)


def quant_decode(bits: int, block: int, wire: Bytes, n: int) -> Floats:
    raw = wire[: -(-n * bits // 8)].view(np.int8)
    q = raw if bits == 8 else np.stack([raw << 4 >> 4, raw >> 4], axis=1).ravel()[:n]
    scale = wire[-(-n * bits // 32) * 4 :].view(np.float32).repeat(block)[:n]
    with np.errstate(invalid="ignore"):
        return np.where((q == 0) & np.isinf(scale), np.float32(np.nan), q.astype(np.float32) * scale)


# ------------------------------------------------------------------------------------------------ two-level scales
def group_levels(bits: int, nonuniform: bool) -> Floats:
    """Return the magnitudes of the quantization levels, starting at 0."""
    k = np.arange(2 ** (bits - 1))
    return (np.float64(1.125) ** k - 1 if nonuniform else k).astype(np.float32)


def group_units(bits: int, nonuniform: bool, code: Array, scale: Array) -> tuple[Array, Floats, Floats]:
    """Return each group's exponent shift, the shifted maxima, and the unit of each block."""
    code = code.astype(np.uint32) & np.uint32(0x7FFF)
    maximum = (code << np.uint32(16)).view(np.float32)
    shift = np.where(maximum < 2.0**-60, 64, np.where(maximum >= 2.0**100, -64, 0))
    maximum = np.ldexp(maximum, shift)
    inverse = np.float32(1) / (np.float32(255) * group_levels(bits, nonuniform)[-1])
    per_block = scale.size // max(1, code.size)
    return shift, maximum, scale.astype(np.float32) * maximum.repeat(per_block) * inverse


def group_encode(bits: int, block: int, options: list[str], x: Floats, seed: int, first: int = 0) -> Bytes:
    """Encode integers with two-level scales. `first` is the index of ``x[0]`` in the message."""
    nonuniform = "nonuniform" in options
    levels = group_levels(bits, nonuniform)
    filled = padded(x, 256)
    tops = np.abs(filled).reshape(-1, block).max(axis=1)
    top = np.where(np.isnan(tops), np.inf, tops).reshape(-1, 256 // block).max(axis=1).astype(np.float32)
    code = np.minimum((top.view(np.uint32).astype(np.uint64) + 0xFFFF) >> np.uint64(16), 0x7F7F)
    code = np.where(np.isfinite(top), code, 0x7F80).astype(np.uint16)
    none = np.zeros(tops.size, np.uint8)
    with np.errstate(all="ignore"):
        shift, maximum, _ = group_units(bits, nonuniform, code, none)
        ratio = np.where(code > 0, np.float32(255) / maximum, np.float32(0))
        t = np.ldexp(tops, shift.repeat(256 // block)) * ratio.repeat(256 // block)
        broken = ~np.isfinite(top).repeat(256 // block)
        scale = np.where(broken, 0, np.minimum(np.ceil(np.where(broken, 0, t)), 255)).astype(np.uint8)
        _, _, unit = group_units(bits, nonuniform, code, scale)
        inverse = np.where(unit > 0, np.float32(1) / unit, np.float32(0))
        y = np.ldexp(filled, shift.repeat(256)) * inverse.repeat(block)
    a, gaps = np.abs(y), np.diff(levels)
    if options and options[-1] != "nonuniform":
        at = np.arange(filled.size)
        shared, offset = split_seed(options[-1], seed)
        random = random_words(filled.size // 2, shared, first // 2)[at // 32 * 16 + at % 16]
        noise = ((random >> np.where(at & 16, 16, 0).astype(np.uint32)) + offset) & np.uint32(0xFFFF)
        if options[-1] == "correlated":  # values of both signs are rounded in the same direction
            noise = np.where(np.signbit(y), np.uint32(0xFFFF) - noise, noise)
        u = (noise.astype(np.float32) * 2 + 1) * np.float32(2.0**-17)
        if nonuniform:
            k = sum((a > u * gap + low).astype(int) for low, gap in zip(levels, gaps, strict=False))
        else:
            k = np.minimum(np.floor(np.where(np.isfinite(a), a, 0) + u), levels[-1]).astype(int)
    elif nonuniform:
        k = sum((a > (low + high) * np.float32(0.5)).astype(int) for low, high in pairwise(levels))
    else:
        k = np.rint(np.where(np.isfinite(a), a, 0)).astype(int)
    special = np.where(np.isinf(filled), levels.size - 1, 0)
    k = np.where(np.isfinite(top).repeat(256), k, special)
    q = (np.where(np.signbit(filled), -k, k).astype(np.int64) & (2**bits - 1)).astype(np.uint8)[: x.size]
    last = scale[: -(-x.size // block)]
    if bits == 4:
        q = padded(q, 2)
        return planes(q[::2] | q[1::2] << 4, code, last)
    low = padded(q & 3, 4).reshape(-1, 4)
    low = low[:, 0] | low[:, 1] << 2 | low[:, 2] << 4 | low[:, 3] << 6
    high = np.packbits(q >> 2, bitorder="little") if bits == 3 else np.zeros(0, np.uint8)
    return planes(low, high, code, last)


def group_decode(bits: int, block: int, options: list[str], wire: Bytes, n: int) -> Floats:
    levels = group_levels(bits, "nonuniform" in options)
    sizes = [-(-n // 2) if bits == 4 else -(-n // 4), -(-n // 8) if bits == 3 else 0, -(-n // 256) * 2, -(-n // block)]
    starts = np.cumsum([0, *(-(-size // 4) * 4 for size in sizes)])
    low, high, code, scale = (wire[start : start + size] for start, size in zip(starts, sizes, strict=False))
    code = np.frombuffer(code.tobytes(), np.uint16)
    if bits == 4:
        q = np.stack([low & 15, low >> 4], axis=1).ravel()
    else:
        q = np.stack([low >> shift & 3 for shift in (0, 2, 4, 6)], axis=1).ravel()
    q = q[:n].astype(np.int64)
    if bits == 3:
        q |= np.unpackbits(high, bitorder="little")[:n].astype(np.int64) << 2
    q = (q ^ 2 ** (bits - 1)) - 2 ** (bits - 1)
    with np.errstate(invalid="ignore"):
        shift, _, unit = group_units(bits, "nonuniform" in options, code, padded(scale, 256 // block))
    broken = ((code & 0x7FFF) >= 0x7F80).repeat(256)[:n]
    with np.errstate(all="ignore"):
        unit, back = unit.repeat(block)[:n], -shift.repeat(256)[:n]
        signed = np.where(q < 0, -levels[np.abs(q) % levels.size], levels[np.abs(q) % levels.size])
        if bits == 3 and "nonuniform" in options:  # a unit may exceed the largest float32
            values = np.ldexp(signed * unit, back)
        else:
            values = signed * np.ldexp(unit, back)
        special = np.where(q == 0, np.nan, np.copysign(np.inf, q))
        return np.where(broken, special, values).astype(np.float32)


# ------------------------------------------------------------------------------------------------ signs
def sign_encode(block: int, x: Floats) -> Bytes:
    filled = padded(x, block)
    lanes = min(block // 4, 32)
    four = np.abs(filled).reshape(-1, block // (4 * lanes), lanes, 4)  # [n/b, rounds, lanes, 4]
    with np.errstate(all="ignore"):
        sums = (four[..., 0] + four[..., 1]) + (four[..., 2] + four[..., 3])
        total = sums[:, 0]
        for turn in range(1, sums.shape[1]):
            total = total + sums[:, turn]
        while total.shape[1] > 1:
            half = total.shape[1] // 2
            total = total[:, :half] + total[:, half:]
        count = np.minimum(block, x.size - block * np.arange(total.shape[0])).astype(np.float32)
        scale = total[:, 0] / count
    scale = np.where(np.isnan(scale), np.float32(np.nan), scale).astype(np.float32)
    return planes(np.packbits(np.signbit(padded(x, 32)), bitorder="little"), scale)


def sign_decode(block: int, wire: Bytes, n: int) -> Floats:
    negative = np.unpackbits(wire[: -(-n // 32) * 4], bitorder="little")[:n]
    scale = wire[-(-n // 32) * 4 :].view(np.uint32).repeat(block)[:n]
    return (scale | negative.astype(np.uint32) << np.uint32(31)).view(np.float32)


# ------------------------------------------------------------------------------------------------ rotations
def rotate(stage: str, x: Floats, *, inverse: bool) -> Floats:
    """Rotate each complete block of values, with steps in the same order as in the kernels."""
    size = int(stage.lstrip("adehmort"))
    end = x.size // size * size
    with np.errstate(over="ignore"):
        word = np.arange(32, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(0x68627574)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        word = (word ^ (word >> np.uint32(shift))) * np.uint32(factor)
    at = np.arange(end, dtype=np.uint32)
    flips = (word[at // 32 % 32] >> (at % 32) & 1) << np.uint32(31)
    if stage.startswith("hadamard"):
        flips = np.zeros_like(flips)
    y = (x[:end].view(np.uint32) ^ (0 if inverse else flips)).view(np.float32)
    log = size.bit_length() - 1
    with np.errstate(all="ignore"):
        y = y * (np.float32(0.70710678 if log % 2 else 1) / np.float32(2 ** (log // 2)))
        for step in (2**k for k in range(log)):
            low, high = np.moveaxis(y.reshape(-1, 2, step), 1, 0)
            y = np.stack([low + high, low - high], axis=1).ravel()
    bits = y.view(np.uint32) ^ (flips if inverse else np.uint32(0))
    turned = np.where(np.isnan(y), np.float32(np.nan), bits.view(np.float32))
    return np.concatenate([turned, x[end:]])


def encode(name: str, x: Floats, seed: int = 0) -> Bytes:
    """Encode with the named codec."""
    stage, _, codec = name.rpartition("+")
    if stage:
        return encode(codec, rotate(stage, x, inverse=False), seed)
    family, _, parameter = name.partition(":")
    if "/" in parameter:
        block, *options = parameter.split(":")
        return group_encode(int(family[3:]), int(block.partition("/")[0]), options, x, seed)
    if family.startswith(("mx", "nv")):
        return planes(*reference_block_float.encode_parts(name, x))
    if family in ("int8", "int4"):
        block, _, how = parameter.partition(":")
        return quant_encode(int(family[3:]), int(block), x, seed, how)
    if family == "sign":
        return sign_encode(int(parameter), x)
    return cast_encode(family, x)


def decode(name: str, wire: Bytes, n: int) -> Floats:
    """Decode with the named codec."""
    stage, _, codec = name.rpartition("+")
    if stage:
        return rotate(stage, decode(codec, wire, n), inverse=True)
    family, _, parameter = name.partition(":")
    if "/" in parameter:
        block, *options = parameter.split(":")
        return group_decode(int(family[3:]), int(block.partition("/")[0]), options, wire, n)
    if family.startswith(("mx", "nv")):
        return reference_block_float.decode(name, wire, n)
    if family in ("int8", "int4"):
        return quant_decode(int(family[3:]), int(parameter.partition(":")[0]), wire, n)
    if family == "sign":
        return sign_decode(int(parameter), wire, n)
    return cast_decode(family, wire, n)
