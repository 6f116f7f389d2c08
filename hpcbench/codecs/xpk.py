"""xpk, a lossless packer of exponents. Exponents of trained values are close together; signs and mantissas are noise.

Most exponents of a chunk take 2 bits, the others 2 to 4 bits more, and outliers a byte. If there are many zeros, each
takes a bit. Sign and mantissa are stored unchanged, so that float32 shrinks by at most a quarter unless it holds zeros.
float32, float16 and bfloat16 are coded by their own formats, all other types as float32. kernels/hb_xpk.h describes the
format of a chunk; the container is that of MPC.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.mpc import container_bytes
from hpcbench.codecs.types import Array


class XpkCodec(Compiled):
    """The exponent packer.

    Parameters
    ----------
    build
        Kernels to use; None takes the fastest that runs here.
    """

    lossless = True
    fixed_size = False

    def __init__(self, build: Kernels | None = None) -> None:
        super().__init__("xpk", "xpk", build)

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the largest size of a container of chunks."""
        return container_bytes(n, dtype)

    def error_bound(self, x: Array) -> float:
        """Return zero, because nothing is lost."""
        return 0.0
