"""Integers of 8 or 4 bits with one scale for each block of values, rounded to nearest or stochastically.

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


class Quant(Compiled):
    """The codecs ``int8:B`` and ``int4:B``.

    Parameters
    ----------
    bits
        8 or 4.
    block
        Number of values that share a scale, a power of two from 32 to 1024.
    stochastic
        Whether to round up with the probability of the fraction, so that the mean error is zero.
    build
        Kernels to use; None takes the fastest that runs here.
    """

    lossless = False
    fixed_size = True

    def __init__(self, bits: int, block: int, stochastic: bool = False, build: Kernels | None = None) -> None:
        if bits not in (4, 8) or block not in BLOCKS:
            raise ValueError(f"int{bits}: block {block} is not a power of two from {BLOCKS[0]} to {BLOCKS[-1]}")
        super().__init__(f"int{bits}", f"int{bits}:{block}" + (":stochastic" if stochastic else ""), build)
        self.bits, self.block, self.stochastic = bits, block, stochastic

    def param(self, n: int) -> int:
        """Return the block size, with a bit for stochastic rounding."""
        return self.block | (_STOCHASTIC if self.stochastic else 0)

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the bytes of the integers and of the blocks' scales."""
        self.check_type(dtype)
        return -(-n * self.bits // 32) * 4 + -(-n // self.block) * 4

    def error_bound(self, x: Array) -> float | None:
        """Return half a unit of the largest magnitude, one if rounding is stochastic; None if values are not finite."""
        check_values(self.name, x)
        self.check_type(x.dtype)
        largest = float(np.max(np.abs(x), initial=0))
        unit = largest / (2 ** (self.bits - 1) - 1)
        # three roundings to float32 in addition to that to an integer, and the rounding of a subnormal scale
        bound = unit * ((1.0 if self.stochastic else 0.5) + 2.0**-14) + 2.0**-142
        if not largest + bound < largest_of(x.dtype):
            return None
        return bound + rounding(x.dtype, largest + bound) if largest else 0.0
