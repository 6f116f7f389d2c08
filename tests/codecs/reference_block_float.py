"""A slow and simple NumPy implementation of block floats, from the specification and with the dtypes of ml_dtypes."""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

ELEMENTS: dict[str, tuple[Any, float, int]] = {
    "e2m1": (ml_dtypes.float4_e2m1fn, 6.0, 2),
    "e2m3": (ml_dtypes.float6_e2m3fn, 7.5, 2),
    "e3m2": (ml_dtypes.float6_e3m2fn, 28.0, 4),
    "e4m3": (ml_dtypes.float8_e4m3fn, 448.0, 8),
    "e5m2": (ml_dtypes.float8_e5m2, 57344.0, 15),
}
"""NumPy type, largest value, and exponent of the largest value, keyed by element format."""
PIECE = 1024


def padded(x: Array, multiple: int) -> Array:
    """Pad `x` with zeros to a multiple of `multiple` values."""
    return np.pad(x, (0, -x.size % multiple))


def element_of(name: str) -> tuple[str, str]:
    """Return the element type and the scale rule of an MX codec."""
    family, *options = name.split(":")
    if family == "mxfp4":
        return "e2m1", (options or ["floor"])[0]
    return options[0], (options[1:] or ["floor"])[0]


def exponent(m: Array, *, up: bool) -> Array:
    """Return the base-2 logarithm, rounded up or down, and -1000 for 0."""
    mantissa, power = np.frexp(m.astype(np.float64))
    return np.where(m > 0, power - np.where(up & (mantissa > 0.5), 0, 1), -1000)


def codes_of(element: str, scaled: Array) -> Bytes:
    """Round scaled values to elements, and return their codes."""
    dtype, largest, _ = ELEMENTS[element]
    return np.clip(scaled.astype(np.float32), -largest, largest).astype(dtype).view(np.uint8)


def values_of(element: str, codes: Bytes) -> npt.NDArray[np.float64]:
    return codes.view(ELEMENTS[element][0]).astype(np.float64)


def mx_quantize(name: str, x: Floats) -> tuple[Bytes, Bytes]:
    """Return a code for each value and a scale for each block."""
    element, rule = element_of(name)
    _, largest, emax = ELEMENTS[element]
    blocks = padded(x, 32).reshape(-1, 32)
    top = np.abs(blocks).max(axis=1)
    finite = np.isfinite(top)
    m = np.where(finite, top, np.float32(1))
    if rule == "rceil":
        power = exponent(m / np.float32(largest), up=True)
    elif rule == "even":
        mantissa, shift = np.frexp(m.astype(np.float64))
        steps = 2.0 ** (int(element[3]) + 1)
        power = exponent(np.ldexp(np.floor(mantissa * steps + 0.5) / steps, shift), up=False) - emax
    else:
        power = exponent(m, up=rule == "ceil") - emax
    power = np.clip(power, -127, 127)
    scale = np.where(finite, power + 127, 255).astype(np.uint8)
    sound = np.where(finite[:, None], blocks, np.float32(0))
    with np.errstate(under="ignore"):
        codes = codes_of(element, np.ldexp(sound.astype(np.float64), -power[:, None]))
    return codes.ravel()[: x.size], scale


def mx_parts(name: str, x: Floats) -> list[Bytes]:
    """Return the planes of an encoded message."""
    codes, scale = mx_quantize(name, x)
    bits = 1 + int(element_of(name)[0][1]) + int(element_of(name)[0][3])
    if bits == 8:
        return [codes, scale]
    two = padded(codes & 15, 2)
    low = two[::2] | two[1::2] << 4
    if bits == 4:
        return [low, scale]
    four = padded(codes >> 4, 4).reshape(-1, 4)
    return [low, four[:, 0] | four[:, 1] << 2 | four[:, 2] << 4 | four[:, 3] << 6, scale]


def mx_decode(name: str, wire: Bytes, n: int) -> Floats:
    element, _ = element_of(name)
    bits = 1 + int(element[1]) + int(element[3])
    if bits == 8:
        codes, end = wire[:n], -(-n // 4) * 4
    else:
        end = -(-n // 8) * 4
        low = wire[: -(-n // 2)]
        codes = np.stack([low & 15, low >> 4], axis=1).ravel()[:n]
    if bits == 6:
        high = wire[end : end - (-n // 4)]
        codes = codes | np.stack([high >> shift & 3 for shift in (0, 2, 4, 6)], axis=1).ravel()[:n] << 4
        end += -(-n // 16) * 4
    scale = wire[end:].repeat(32)[:n]
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.ldexp(values_of(element, codes), scale.astype(np.int64) - 127).astype(np.float32)
    return np.where(scale == 255, np.float32(np.nan), values)


def nvfp4_scales(maxima: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the factor (a power of two) for all values, the scale S, and 1 / S."""
    before = np.where(maxima < 2.0**-60, np.float32(2.0**64), np.float32(1))
    with np.errstate(all="ignore"):
        scale = np.where(maxima > 0, np.float32(2688) / (maxima * before), np.float32(0))
        return before, scale, np.where(maxima > 0, np.float32(1) / scale, np.float32(0))


def nvfp4_parts(x: Floats) -> list[Bytes]:
    """Return the planes of an encoded message."""
    filled = padded(x, PIECE)
    blocks = filled.reshape(-1, 16)
    top = np.abs(blocks).max(axis=1)
    finite = np.isfinite(top)
    m = np.where(finite, top, np.float32(0))
    maxima = m.reshape(-1, PIECE // 16).max(axis=1, initial=0).astype(np.float32)
    before, scale, inverse = (part.repeat(PIECE // 16) for part in nvfp4_scales(maxima))
    with np.errstate(all="ignore"):
        stored = np.minimum(m * before / np.float32(6) * scale, np.float32(448)).astype(ml_dtypes.float8_e4m3fn)
        unit = stored.astype(np.float32) * inverse
        factor = np.where(unit > 0, np.float32(1) / unit, np.float32(0))
        sound = np.where(finite[:, None], blocks, np.float32(0))
        codes = codes_of("e2m1", sound * before[:, None] * factor[:, None]).ravel()[: x.size]
    codes = padded(codes, 2)
    scales = np.where(finite, stored.view(np.uint8), 0x7F).astype(np.uint8)[: -(-x.size // 16)]
    return [codes[::2] | codes[1::2] << 4, maxima[: -(-x.size // PIECE)].view(np.uint8), scales]


def nvfp4_decode(wire: Bytes, n: int) -> Floats:
    low, end = wire[: -(-n // 2)], -(-n // 8) * 4
    codes = np.stack([low & 15, low >> 4], axis=1).ravel()[:n]
    pieces = -(-n // PIECE)
    maxima = np.abs(np.frombuffer(wire[end : end + 4 * pieces].tobytes(), np.float32))
    scales = (wire[end + 4 * pieces :] & 0x7F).repeat(16)[:n]
    before, _, inverse = (part.repeat(PIECE)[:n] for part in nvfp4_scales(np.where(np.isfinite(maxima), maxima, 0)))
    with np.errstate(all="ignore"):
        unit = scales.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * inverse
        values = values_of("e2m1", codes).astype(np.float32) * unit * (np.float32(1) / before)
    broken = (scales == 0x7F) | ~np.isfinite(maxima).repeat(PIECE)[:n]
    return np.where(broken, np.float32(np.nan), values).astype(np.float32)


def encode_parts(name: str, x: Floats) -> list[Bytes]:
    """Return the planes of a message that is encoded with the named codec."""
    return nvfp4_parts(x) if name == "nvfp4" else mx_parts(name, x)


def decode(name: str, wire: Bytes, n: int) -> Floats:
    """Decode with the named codec."""
    return nvfp4_decode(wire, n) if name == "nvfp4" else mx_decode(name, wire, n)
