"""One sign bit per value, and one magnitude per block. Strong, biased compression for use with error feedback.

kernels/hb_sign.h describes the format. 1-bit Adam (arXiv 2102.02888) sends its momentum in this form, with one
magnitude per tensor. One magnitude per block adds 3 % to the size and is more accurate.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.base import check_values
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.spec import BLOCKS
from hpcbench.codecs.types import Array, largest_of, rounding


class Sign(Compiled):
    """The codec ``sign:B``.

    Parameters
    ----------
    block
        Number of values that share a magnitude: a power of two from 32 to 1024.
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = False
    fixed_size = True

    def __init__(self, block: int = 1024, build: Kernels | None = None) -> None:
        if block not in BLOCKS:
            raise ValueError(f"sign: block {block} is not a power of two from {BLOCKS[0]} to {BLOCKS[-1]}")
        super().__init__("sign", f"sign:{block}", build)
        self.block = block

    def param(self, n: int) -> int:
        """Return the block size."""
        return self.block

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the size of the signs and block magnitudes in bytes."""
        self.check_type(dtype)
        return -(-n // 32) * 4 + -(-n // self.block) * 4

    def error_bound(self, x: Array) -> float | None:
        """Return the largest magnitude. No value exceeds it, and neither does the mean magnitude of any block.

        Return None if values are not finite or a sum may overflow.
        """
        check_values(self.name, x)
        self.check_type(x.dtype)
        largest = float(np.max(np.abs(x), initial=0))
        bound = largest * (1 + 2.0**-15) + 2.0**-149
        if not bound * self.block < largest_of(np.dtype(np.float32)):
            return None
        return bound + rounding(x.dtype, bound) if largest else 0.0
