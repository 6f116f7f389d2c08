"""The information in the fields of floating-point values: sign, exponent and mantissa."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcbench.codecs.types import BFLOAT16, Array

_LAYOUTS: dict[np.dtype[Any], tuple[type[np.unsignedinteger[Any]], int, int]] = {
    np.dtype(np.float64): (np.uint64, 11, 52),
    np.dtype(np.float32): (np.uint32, 8, 23),
    np.dtype(np.float16): (np.uint16, 5, 10),
    BFLOAT16: (np.uint16, 8, 7),
}
"""Unsigned type of the same width, bits of the exponent, bits of the mantissa."""


@dataclass(frozen=True)
class Fields:
    """Bits of information a value."""

    zeros: float
    """Share of values that are zero, of either sign."""
    exponent: float
    """Entropy of the exponent field over all values."""
    sign: float
    """Entropy of the sign over the values that are not zero."""
    mantissa: float
    """Sum of the entropies of the mantissa's bits, each for itself, over the values that are not zero."""
    bits: float
    """Bits a value that no codec goes below which codes value by value, each field by its frequencies in the message
    and zero as a symbol of its own."""
    ratio: float
    """Bits of the type divided by `bits`: the bound of such a codec's ratio."""


def entropy(counts: Array) -> float:
    """Bits of a symbol that is drawn with these frequencies; 0.0 if there is none.

    Parameters
    ----------
    counts
        Number of each symbol, none of them negative, shape (n,).
    """
    total = counts.sum()
    if not total:
        return 0.0
    shares = counts[counts > 0] / total
    return float(-(shares * np.log2(shares)).sum()) + 0.0


def fields(x: Array) -> Fields:
    """The information in values.

    Parameters
    ----------
    x
        Values of float64, float32, float16 or bfloat16, shape (n,), n at least 1.
    """
    word, exponent_bits, mantissa_bits = _LAYOUTS[x.dtype]
    bits = np.ascontiguousarray(x).view(word)
    signs = bits >> word(exponent_bits + mantissa_bits)
    magnitudes = bits & word((1 << exponent_bits + mantissa_bits) - 1)
    zero = magnitudes == 0
    zeros = int(zero.sum())
    exponents = magnitudes >> word(mantissa_bits)
    rest = magnitudes[~zero]
    sign = _binary(int(signs[~zero].sum()), rest.size)
    mantissa = sum(_binary(int((rest >> word(k) & word(1)).sum()), rest.size) for k in range(mantissa_bits))
    of_symbols = np.append(_histogram(exponents[~zero], exponent_bits), zeros)
    share = zeros / x.size
    needed = (
        entropy(of_symbols)
        + (1 - share) * (sign + mantissa)
        + share * _binary(int(signs[zero].sum()), zeros)  # lossless codecs give zero its sign back
    )
    width = x.dtype.itemsize * 8
    ratio = width / needed if needed else float("inf")
    return Fields(share, entropy(_histogram(exponents, exponent_bits)), sign, mantissa, needed, ratio)


def _histogram(exponents: Array, bits: int) -> Array:
    counts: Array = np.bincount(exponents.astype(np.int64), minlength=1 << bits)
    return counts


def _binary(ones: int, total: int) -> float:
    return entropy(np.array([ones, total - ones]))
