"""Value types supported by codecs: NumPy dtypes and bfloat16."""

from enum import IntEnum
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
"""NumPy dtype of bfloat16.

``tensor.view(torch.int16).numpy().view(BFLOAT16)`` shares memory with a torch.bfloat16 tensor.
"""


class Type(IntEnum):
    """Value types, numbered as in kernels/hb_names.h."""

    F32 = 0
    F16 = 1
    BF16 = 2
    F64 = 3
    BYTES = 4

    @property
    def size(self) -> int:
        """Bytes per value."""
        return (4, 2, 2, 8, 1)[self]


_TYPES = {
    np.dtype(np.float32): Type.F32,
    np.dtype(np.float16): Type.F16,
    BFLOAT16: Type.BF16,
    np.dtype(np.float64): Type.F64,
}
SHORT = (Type.F32, Type.F16, Type.BF16)
"""Types that lossy codecs support. float32 can represent all their values."""


def type_of(dtype: np.dtype[Any]) -> Type:
    """Return the kernels' type number for a dtype. Unsupported dtypes are treated as bytes."""
    return _TYPES.get(dtype, Type.BYTES)


def rounding(dtype: np.dtype[Any], largest: float) -> float:
    """Return a bound on the error of rounding float32 values with magnitudes up to `largest` to a dtype."""
    kind = type_of(dtype)
    if kind is Type.F16:
        return largest * 2.0**-11 + 2.0**-25
    if kind is Type.BF16:
        return largest * 2.0**-8 + 2.0**-134
    return 0.0


def largest_of(dtype: np.dtype[Any]) -> float:
    """Return the largest finite value of a floating-point dtype."""
    return 2.0**128 - 2.0**120 if dtype == BFLOAT16 else float(np.finfo(dtype).max)
