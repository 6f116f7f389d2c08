"""MPC, lossless (Yang, Mukka, Hesaaraki, Burtscher, Cluster 2015).

The wire holds, for each chunk of 4096 bytes, the words of 4 bytes that it takes as 16 bits (65535: it did not shrink
and is stored as it is) and zeros up to a multiple of 4 bytes; then the chunks, each a bitmap of 1024 bits and the words
that are not zero after the transforms. So a message never grows by more than 2 bytes in 4096, and its chunks can be
decoded one by one.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.spec import MPC_DIMS
from hpcbench.codecs.types import Array


def container_bytes(n: int, dtype: np.dtype[Any]) -> int:
    """The most that a container of chunks takes for `n` values of any type."""
    words = -(-n * dtype.itemsize // 4)
    return 4 * words + -(-2 * -(-words // 1024) // 4) * 4


class Mpc(Compiled):
    """MPC with a stride.

    Parameters
    ----------
    dim
        A word is predicted by the word so many places before it, 1 to 32.
    build
        Kernels to use; None takes the fastest that runs here.
    """

    lossless = True
    fixed_size = False

    def __init__(self, dim: int = 1, build: Kernels | None = None) -> None:
        if dim not in MPC_DIMS:
            raise ValueError(f"mpc: stride {dim} is not in {MPC_DIMS.start} to {MPC_DIMS.stop - 1}")
        super().__init__("mpc", "mpc" if dim == 1 else f"mpc:{dim}", build)
        self.dim = dim

    def param(self, n: int) -> int:
        return self.dim

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        return container_bytes(n, dtype)

    def error_bound(self, x: Array) -> float:
        return 0.0
