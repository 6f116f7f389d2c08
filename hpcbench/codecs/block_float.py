"""Block floats: MX formats and NVFP4, floats of 4 to 8 bits with a shared scale per block.

kernels/hb_block_float.h describes the formats.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.base import check_values
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.spec import MX_ELEMENTS, MX_RULES
from hpcbench.codecs.types import Array, largest_of, rounding

MX_BLOCK = 32
"""Number of values that share a scale in MX formats."""
NVFP4_BLOCK = 16
"""Number of values that share a scale in NVFP4."""
NVFP4_PIECE = 1024
"""Number of values that share the float32 scale of NVFP4."""
_NUMBERS = {"e2m1": 0, "e2m3": 1, "e3m2": 2, "e4m3": 3, "e5m2": 4}
_LARGEST = {"e2m1": 1.5, "e2m3": 1.875, "e3m2": 1.75, "e4m3": 1.75, "e5m2": 1.75}
"""Significand of the largest finite value of each element type."""


class Mx(Compiled):
    """The codecs ``mxfp8``, ``mxfp6`` and ``mxfp4`` of the OCP Microscaling Formats specification.

    Parameters
    ----------
    family
        ``mxfp8``, ``mxfp6`` or ``mxfp4``.
    element
        Element type, one of ``MX_ELEMENTS[family]``.
    rule
        Rule for the scale of a block, one of `MX_RULES`. ``floor`` is the rule of the specification.
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = False
    fixed_size = True

    def __init__(self, family: str, element: str, rule: str = "floor", build: Kernels | None = None) -> None:
        if element not in MX_ELEMENTS[family] or rule not in MX_RULES:
            raise ValueError(f"{family}: {element} with scale rule {rule} is not a supported combination")
        options = ([element] if len(MX_ELEMENTS[family]) > 1 else []) + ([rule] if rule != "floor" else [])
        super().__init__("mx", ":".join([family, *options]), build)
        self.element, self.rule = element, rule
        self._exponent, self._mantissa = int(element[1]), int(element[3])

    def param(self, n: int) -> int:
        """Return the IDs of the element type and of the scale rule, combined in one integer."""
        return _NUMBERS[self.element] | MX_RULES.index(self.rule) << 8

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the size of the elements and block scales in bytes."""
        self.check_type(dtype)
        bits = 1 + self._exponent + self._mantissa
        low = -(-n // 4) * 4 if bits == 8 else -(-n // 8) * 4
        high = -(-n // 16) * 4 if bits == 6 else 0
        return low + high + -(-n // MX_BLOCK)

    def error_bound(self, x: Array) -> float | None:
        """Return half an ulp of the largest magnitude, or the error of saturating this magnitude, whichever is larger.

        Return None if values are not finite or may round to infinity.
        """
        check_values(self.name, x)
        self.check_type(x.dtype)
        largest = float(np.max(np.abs(x), initial=0))
        ulp = 2.0**-self._mantissa
        # the largest mantissa that does not increase the scale
        most = {"floor": 2.0, "even": 2.0 - ulp / 2}.get(self.rule, 0.0)
        saturated = 1 - _LARGEST[self.element] / most if most else 0.0
        # half the smallest element at the smallest scale
        least = 2.0 ** -(127 + 2 ** (self._exponent - 1) - 1 + self._mantissa)
        bound = largest * max(saturated, ulp / 2) * (1 + 2.0**-20) + least
        if not largest + bound < largest_of(x.dtype):
            return None
        return bound + rounding(x.dtype, largest + bound) if largest else 0.0


class Nvfp4(Compiled):
    """The codec ``nvfp4``: 4-bit floats with a scale per 16 values, and a float32 scale per 1024 values.

    NVIDIA's format has one float32 scale per tensor. A scale per 1024 values can be computed in one pass, and each hop
    of a reduction needs new scales.

    Parameters
    ----------
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = False
    fixed_size = True

    def __init__(self, build: Kernels | None = None) -> None:
        super().__init__("nvfp4", "nvfp4", build)

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the size of the elements, maxima, and block scales in bytes."""
        self.check_type(dtype)
        return -(-n // 8) * 4 + -(-n // NVFP4_PIECE) * 4 + -(-n // NVFP4_BLOCK)

    def error_bound(self, x: Array) -> float | None:
        """Return half the widest gap between adjacent elements, for a block scale that was rounded up.

        Return None if values are not finite or may round to infinity.
        """
        check_values(self.name, x)
        self.check_type(x.dtype)
        largest = float(np.max(np.abs(x), initial=0))
        # the block scale is at most 1/16 too large; the smallest ones are multiples of 2^-9
        bound = largest * (17 / 96 + 2.0**-16) + 2.0**-149
        if not largest + bound < largest_of(x.dtype):
            return None
        return bound + rounding(x.dtype, largest + bound) if largest else 0.0
