"""MPC, a lossless codec.

It is described in Yang, Mukka, Hesaaraki and Burtscher, "MPC: A Massively Parallel Compression Algorithm for
Scientific Data", Cluster 2015, section III.

float16 and bfloat16 are coded as values of 16 bits, all other types as words of 4 bytes. kernels/hb_mpc.h describes
the format of a chunk.

The wire begins with a list. For each chunk of 4096 bytes it holds the chunk's length on the wire in words of 4 bytes,
as 16 bits; 65535 means that the chunk did not shrink and is stored unchanged. Zeros fill the list up to a multiple of
4 bytes. Then the chunks follow. So a message grows by at most 2 bytes in 4096 and the padding, and its chunks can be
decoded one by one.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.spec import MPC_DIMS
from hpcbench.codecs.types import Array


def container_bytes(n: int, dtype: np.dtype[Any]) -> int:
    """Return the largest size of a container of chunks for `n` values of any type."""
    word_count = -(-n * dtype.itemsize // 4)
    return 4 * word_count + -(-2 * -(-word_count // 1024) // 4) * 4


class MpcCodec(Compiled):
    """MPC with a stride.

    Parameters
    ----------
    dim
        Distance, 1 to 32, of the earlier value that predicts a value. Values have 16 bits for float16 and bfloat16, and
        32 bits for all other types.
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
        """Return the stride."""
        return self.dim

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the largest size of a container of chunks."""
        return container_bytes(n, dtype)

    def error_bound(self, x: Array) -> float:
        """Return zero, because nothing is lost."""
        return 0.0
