"""MPC, a lossless codec.

The codec is described in Yang, Mukka, Hesaaraki and Burtscher, "MPC: A Massively Parallel Compression Algorithm for
Scientific Data", Cluster 2015, section III.

float16 and bfloat16 are coded as 16-bit values, all other dtypes as 4-byte words. kernels/hb_mpc.h describes
the format of a chunk.

The encoded message begins with a list of chunk lengths. For each chunk of 4096 bytes, a 16-bit entry gives the encoded
length in 4-byte words. The entry 65535 means that the chunk did not shrink and is stored unchanged. The list is padded
with zeros to a multiple of 4 bytes, and is followed by the chunks. A message therefore grows by at most 2 bytes per
4096 bytes, plus the padding. Chunks can be decoded independently.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.spec import MPC_DIMS
from hpcbench.codecs.types import Array


def container_bytes(n: int, dtype: np.dtype[Any]) -> int:
    """Return the maximum size in bytes of a chunk container for `n` values of a dtype."""
    word_count = -(-n * dtype.itemsize // 4)
    return 4 * word_count + -(-2 * -(-word_count // 1024) // 4) * 4


class MpcCodec(Compiled):
    """The MPC codec with a stride.

    Parameters
    ----------
    dim
        Distance to the earlier value that serves as the prediction, from 1 to 32. Values have 16 bits for float16
        and bfloat16, and 32 bits for all other dtypes.
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = True
    fixed_size = False

    def __init__(self, dim: int = 1, build: Kernels | None = None) -> None:
        if dim not in MPC_DIMS:
            raise ValueError(f"mpc: stride {dim} is not from {MPC_DIMS.start} to {MPC_DIMS.stop - 1}")
        super().__init__("mpc", "mpc" if dim == 1 else f"mpc:{dim}", build)
        self.dim = dim

    def param(self, n: int) -> int:
        """Return the stride."""
        return self.dim

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the maximum size of a chunk container."""
        return container_bytes(n, dtype)

    def error_bound(self, x: Array) -> float:
        """Return zero, because the codec is lossless."""
        return 0.0
