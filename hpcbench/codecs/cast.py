"""Casts to short floating-point types. Types with a small range use a power-of-two scale per block of 128 values.

kernels/hb_cast.h describes the format.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.base import check_values
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.types import Array, largest_of, rounding

BLOCK = 128
"""Number of values that share a scale."""
_BYTES = {"fp16": 2, "bf16": 2, "fp8e4m3": 1, "fp8e5m2": 1}
_MANTISSA = {"fp16": 10, "bf16": 7, "fp8e4m3": 3, "fp8e5m2": 2}
_LEAST = {"fp16": 2.0**-149, "bf16": 2.0**-134, "fp8e4m3": 2.0**-136, "fp8e5m2": 2.0**-143}
"""Half the smallest subnormal of each type, at the smallest scale."""


class Cast(Compiled):
    """A cast to ``fp16``, ``bf16``, ``fp8e4m3`` or ``fp8e5m2``. ``fp8e4m3`` has no infinity, so infinity becomes NaN.

    Parameters
    ----------
    family
        Name of the target type.
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = False
    fixed_size = True

    def __init__(self, family: str, build: Kernels | None = None) -> None:
        super().__init__(family, family, build)
        self._width = _BYTES[family]
        self._scaled = family != "bf16"
        self._mantissa = _MANTISSA[family]

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the size of the values and of the block scales in bytes."""
        self.check_type(dtype)
        if not self._scaled:
            return self._width * n
        return -(-self._width * n // 4) * 4 + -(-n // BLOCK)

    def error_bound(self, x: Array) -> float | None:
        """Return half an ulp of the largest magnitude, or None if values are not finite or may round to infinity."""
        check_values(self.name, x)
        self.check_type(x.dtype)
        largest = float(np.max(np.abs(x), initial=0))
        bound = largest * 2.0 ** -(self._mantissa + 1) + _LEAST[self.name]
        if not largest + bound < largest_of(x.dtype):
            return None
        return bound + rounding(x.dtype, largest + bound) if largest else 0.0
