"""One bit for each value, its sign, and one magnitude for each block: strong, biased, made for error feedback.

kernels/hb_sign.h describes the format. 1-bit Adam (arXiv 2102.02888) sends its momentum in this form, with one
magnitude for a whole tensor. A magnitude for each block costs 3 % more bytes and is nearer to the values.
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
        Number of values that share a magnitude, a power of two from 32 to 1024.
    build
        Kernels to use; None takes the fastest that runs here.
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
        """Return the bytes of the signs and of the blocks' magnitudes."""
        self.check_type(dtype)
        return -(-n // 32) * 4 + -(-n // self.block) * 4

    def error_bound(self, x: Array) -> float | None:
        """Return the largest magnitude, which bounds each mean; None if values are not finite or a sum may overflow."""
        check_values(self.name, x)
        self.check_type(x.dtype)
        largest = float(np.max(np.abs(x), initial=0))
        bound = largest * (1 + 2.0**-15) + 2.0**-149
        if not bound * self.block < largest_of(np.dtype(np.float32)):
            return None
        return bound + rounding(x.dtype, bound) if largest else 0.0
