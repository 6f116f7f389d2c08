"""No compression: the bytes of the values. The same algorithm with this codec tells algorithm and codec apart."""

from typing import Any

import numpy as np

from hpcbench.codecs.base import Array, Bytes, Codec, check_values, check_wire


class Identity(Codec):
    """Values of any type as they lie in memory."""

    name = "none"
    lossless = True
    fixed_size = True

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        return n * dtype.itemsize

    def encode(self, x: Array, out: Bytes) -> int:
        check_values(self.name, x)
        check_wire(self.name, out, at_least=x.nbytes, writeable=True)
        out[: x.nbytes] = x.view(np.uint8)
        return x.nbytes

    def decode(self, wire: Bytes, out: Array, *, accumulate: bool = False) -> None:
        check_values(self.name, out, writeable=True)
        check_wire(self.name, wire)
        if wire.size != out.nbytes:
            raise ValueError(f"none: {wire.size} bytes on the wire for {out.size} values of {out.dtype}")
        if accumulate:
            out += wire.view(out.dtype)
        else:
            out.view(np.uint8)[:] = wire

    def error_bound(self, x: Array) -> float:
        return 0.0
