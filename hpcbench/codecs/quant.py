"""Integers of 8 or 4 bits with one scale per block, rounded to nearest or at random.

kernels/hb_quant.h describes the format.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.base import check_values
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.spec import BLOCKS
from hpcbench.codecs.types import Array, largest_of, rounding

_STOCHASTIC = 1 << 32
ROUNDINGS = {"nearest": 0, "stochastic": _STOCHASTIC, "correlated": _STOCHASTIC | 1 << 34}
"""Bits of a parameter that select how values are rounded."""


class Quant(Compiled):
    """The codecs ``int8:B`` and ``int4:B``.

    Parameters
    ----------
    bits
        Bits per value: 8 or 4.
    block
        Number of values that share a scale: a power of two from 32 to 1024.
    rounding
        ``nearest``, ``stochastic`` or ``correlated``. With the last two, the expected error is zero. Correlated
        rounding takes an offset of the random numbers from the upper 16 bits of a seed (`comm.correlated`).
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = False
    fixed_size = True

    def __init__(self, bits: int, block: int, rounding: str = "nearest", build: Kernels | None = None) -> None:
        if bits not in (4, 8) or block not in BLOCKS:
            raise ValueError(f"int{bits}: block {block} is not a power of two from {BLOCKS[0]} to {BLOCKS[-1]}")
        super().__init__(f"int{bits}", f"int{bits}:{block}" + ("" if rounding == "nearest" else f":{rounding}"), build)
        self.bits, self.block, self.rounding = bits, block, rounding

    def param(self, n: int) -> int:
        """Return the block size, combined with the bits of the rounding."""
        return self.block | ROUNDINGS[self.rounding]

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the size of the integers and block scales in bytes."""
        self.check_type(dtype)
        return -(-n * self.bits // 32) * 4 + -(-n // self.block) * 4

    def error_bound(self, x: Array) -> float | None:
        """Return half a quantization step at the largest magnitude, or a whole step if rounding is random.

        Return None if values are not finite.
        """
        check_values(self.name, x)
        self.check_type(x.dtype)
        largest = float(np.max(np.abs(x), initial=0))
        unit = largest / (2 ** (self.bits - 1) - 1)
        # rounding to an integer, three roundings to float32, and the rounding of a subnormal scale
        bound = unit * ((0.5 if self.rounding == "nearest" else 1.0) + 2.0**-14) + 2.0**-142
        if not largest + bound < largest_of(x.dtype):
            return None
        return bound + rounding(x.dtype, largest + bound) if largest else 0.0
