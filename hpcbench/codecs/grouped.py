"""Integers of 4, 3 or 2 bits with scales of two levels: one byte for each block, relative to a maximum of 256 values.

kernels/hb_group.h describes the format. Blocks of 32 take 0.31 bits per value for their scales, where float32 scales
take a whole one, and the error is the same.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.base import check_values
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.spec import GROUP, GROUP_BLOCKS
from hpcbench.codecs.types import Array, largest_of, rounding

_STOCHASTIC, _UNEVEN = 1 << 32, 1 << 33


class Grouped(Compiled):
    """The codecs ``int4:B/256``, ``int3:B/256`` and ``int2:B/256``.

    Parameters
    ----------
    bits
        4, 3 or 2.
    block
        Number of values that share a scale, 16 or 32.
    nonuniform
        Whether levels are closer to each other near zero. With 2 bits there are only three levels.
    stochastic
        Whether to round up with the probability of the fraction, so that the mean error is zero.
    build
        Kernels to use; None takes the fastest that runs here.
    """

    lossless = False
    fixed_size = True

    def __init__(
        self, bits: int, block: int, *, nonuniform: bool = False, stochastic: bool = False, build: Kernels | None = None
    ) -> None:
        if bits not in (2, 3, 4) or block not in GROUP_BLOCKS or (nonuniform and bits == 2):
            raise ValueError(f"int{bits}: block {block} of a group of {GROUP} is not one of {GROUP_BLOCKS}")
        options = (":nonuniform" if nonuniform else "") + (":stochastic" if stochastic else "")
        super().__init__("grouped", f"int{bits}:{block}/{GROUP}{options}", build)
        self.bits, self.block, self.nonuniform, self.stochastic = bits, block, nonuniform, stochastic

    def param(self, n: int) -> int:
        """Return the block size and the number of bits, with a bit for each option."""
        options = (_STOCHASTIC if self.stochastic else 0) | (_UNEVEN if self.nonuniform else 0)
        return self.block | self.bits << 16 | options

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the bytes of the integers, the maxima of the groups and the scales of the blocks."""
        self.check_type(dtype)
        codes = -(-n // 8) * 4 if self.bits == 4 else -(-n // 16) * 4
        high = -(-n // 32) * 4 if self.bits == 3 else 0
        return codes + high + -(-n // (2 * GROUP)) * 4 + -(-n // self.block) if n else 0

    def error_bound(self, x: Array) -> float | None:
        """Return half of the widest gap between levels, a whole one if rounding is stochastic.

        None if values are not finite.
        """
        check_values(self.name, x)
        self.check_type(x.dtype)
        largest = float(np.max(np.abs(x), initial=0))
        count = 2 ** (self.bits - 1) - 1
        levels = [1.125**k - 1 if self.nonuniform else float(k) for k in range(count + 1)]
        gap = (levels[-1] - levels[-2]) / levels[-1]
        # the maximum of a group is rounded up to bfloat16
        top = min(largest * (1 + 2.0**-7) + 2.0**-133, float(np.finfo(np.float32).max))
        bound = top * gap * ((1.0 if self.stochastic else 0.5) + 2.0**-14) + 2.0**-142
        if not largest + bound < largest_of(x.dtype):
            return None
        return bound + rounding(x.dtype, largest + bound) if largest else 0.0
