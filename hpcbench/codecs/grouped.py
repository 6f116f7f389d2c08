"""Integers of 4, 3 or 2 bits with two-level scales: a one-byte scale per block, relative to the maximum of 256 values.

kernels/hb_group.h describes the format. With blocks of 32 values, the scales take 0.31 bits per value. float32 scales
would take 1 bit per value, with the same error.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.base import check_values
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.quant import ROUNDINGS
from hpcbench.codecs.spec import GROUP, GROUP_BLOCKS
from hpcbench.codecs.types import Array, largest_of, rounding

_UNEVEN = 1 << 33


class Grouped(Compiled):
    """The codecs ``int4:B/256``, ``int3:B/256`` and ``int2:B/256``.

    Parameters
    ----------
    bits
        Bits per value: 4, 3 or 2.
    block
        Number of values that share a scale: 16 or 32.
    nonuniform
        Whether quantization levels are more closely spaced near zero. Not supported with 2 bits, which have only three
        levels.
    rounding
        ``nearest``, ``stochastic`` or ``correlated``, as in `Quant`.
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = False
    fixed_size = True

    def __init__(
        self,
        bits: int,
        block: int,
        *,
        nonuniform: bool = False,
        rounding: str = "nearest",
        build: Kernels | None = None,
    ) -> None:
        if bits not in (2, 3, 4) or block not in GROUP_BLOCKS or (nonuniform and bits == 2):
            raise ValueError(f"int{bits}: block {block} of a group of {GROUP} is not one of {GROUP_BLOCKS}")
        options = (":nonuniform" if nonuniform else "") + ("" if rounding == "nearest" else f":{rounding}")
        super().__init__("grouped", f"int{bits}:{block}/{GROUP}{options}", build)
        self.bits, self.block, self.nonuniform, self.rounding = bits, block, nonuniform, rounding

    def param(self, n: int) -> int:
        """Return the block size and the number of bits, combined with one flag bit per option."""
        options = ROUNDINGS[self.rounding] | (_UNEVEN if self.nonuniform else 0)
        return self.block | self.bits << 16 | options

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the size of the integers, group maxima, and block scales in bytes."""
        self.check_type(dtype)
        codes = -(-n // 8) * 4 if self.bits == 4 else -(-n // 16) * 4
        high = -(-n // 32) * 4 if self.bits == 3 else 0
        return codes + high + -(-n // (2 * GROUP)) * 4 + -(-n // self.block) if n else 0

    def error_bound(self, x: Array) -> float | None:
        """Return half the widest gap between levels, or the whole gap if rounding is random.

        Return None if values are not finite.
        """
        check_values(self.name, x)
        self.check_type(x.dtype)
        largest = float(np.max(np.abs(x), initial=0))
        count = 2 ** (self.bits - 1) - 1
        levels = [1.125**k - 1 if self.nonuniform else float(k) for k in range(count + 1)]
        gap = (levels[-1] - levels[-2]) / levels[-1]
        # the maximum of a group is rounded up to bfloat16
        top = min(largest * (1 + 2.0**-7) + 2.0**-133, float(np.finfo(np.float32).max))
        bound = top * gap * ((0.5 if self.rounding == "nearest" else 1.0) + 2.0**-14) + 2.0**-142
        if not largest + bound < largest_of(x.dtype):
            return None
        return bound + rounding(x.dtype, largest + bound) if largest else 0.0
