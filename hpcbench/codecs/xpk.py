"""Lossless exponent packing.

In the values that occur in training, exponents are similar, while signs and mantissas are noise.

Most exponents of a chunk take 2 bits, others take 2 to 4 bits more, and outliers take one more byte. In chunks with
many zeros, each zero takes one bit. Signs and mantissas are stored unchanged, so float32 data without zeros shrinks by
at most a quarter. float32, float16 and bfloat16 are coded in their own formats, all other dtypes as float32.
kernels/hb_xpk.h describes the chunk format. The container is the same as for MPC.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.mpc import container_bytes
from hpcbench.codecs.types import Array


class XpkCodec(Compiled):
    """Codec that packs exponents.

    Parameters
    ----------
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = True
    fixed_size = False

    def __init__(self, build: Kernels | None = None) -> None:
        super().__init__("xpk", "xpk", build)

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the maximum size of a chunk container."""
        return container_bytes(n, dtype)

    def error_bound(self, x: Array) -> float:
        """Return zero, because the codec is lossless."""
        return 0.0
