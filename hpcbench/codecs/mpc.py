"""MPC, lossless (Yang, Mukka, Hesaaraki, Burtscher, Cluster 2015), over the 32-bit words of any type.

The wire holds, for each chunk of 1024 words, the number of its non-zero words after the transforms as 16 bits (65535:
the chunk did not shrink and is stored as it is); then, chunk after chunk, a bitmap of 1024 bits and those words. So a
message never grows by more than 2 bytes in 4096, and its chunks can be decoded one by one.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.base import Array, Bytes, Codec, check_values, check_wire
from hpcbench.codecs.library import Kernels, kernels
from hpcbench.codecs.spec import MPC_DIMS

_ADD = {np.dtype(np.float32): 1, np.dtype(np.float64): 2}


class Mpc(Codec):
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
        self.name = "mpc" if dim == 1 else f"mpc:{dim}"
        self.dim = dim
        self._kernels = build or kernels()

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        words = -(-n * dtype.itemsize // 4)
        return 4 * words + 2 * -(-words // 1024)

    def encode(self, x: Array, out: Bytes) -> int:
        check_values(self.name, x)
        check_wire(self.name, out, at_least=self.wire_bytes(x.size, x.dtype), writeable=True)
        return self._kernels.mpc_encode(x.ctypes.data, x.nbytes, self.dim, out.ctypes.data)

    def decode(self, wire: Bytes, out: Array, *, accumulate: bool = False) -> None:
        check_values(self.name, out, writeable=True)
        check_wire(self.name, wire)
        add = _ADD.get(out.dtype, 0) if accumulate else 0
        target = np.empty_like(out) if accumulate and not add else out
        if self._kernels.mpc_decode(wire.ctypes.data, wire.size, out.nbytes, self.dim, target.ctypes.data, add):
            raise ValueError(f"{self.name}: {wire.size} bytes that are not {out.size} values of {out.dtype}")
        if target is not out:
            out += target

    def error_bound(self, x: Array) -> float:
        return 0.0
