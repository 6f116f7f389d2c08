"""MPC, lossless (Yang, Mukka, Hesaaraki, Burtscher, "MPC: A Massively Parallel Compression Algorithm for Scientific
Data", Cluster 2015, section III).

float16 and bfloat16 are coded as values of 16 bits, everything else as words of 4 bytes. kernels/hb_mpc.h tells the
format of a chunk.

The wire holds, for each chunk of 4096 bytes, the words of 4 bytes that it takes as 16 bits (65535: it did not shrink
and is stored as it is) and zeros up to a multiple of 4 bytes; then the chunks. So a message never grows by more than 2
bytes in 4096 and what fills up to whole words, and its chunks can be decoded one by one.
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
        A value is predicted by the value so many places before it, 1 to 32: of 16 bits for float16 and bfloat16, of 32
        bits for all other types.
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
