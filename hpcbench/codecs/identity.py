"""The codec ``none``: values are sent unchanged.

With this codec, an algorithm can be timed without the cost of encoding.
"""

from typing import Any

import numpy as np

from hpcbench.codecs.base import Codec, check_residual, check_values, check_wire
from hpcbench.codecs.types import Array, Bytes, Type, type_of


class Identity(Codec):
    """Unchanged values of any dtype."""

    name = "none"
    lossless = True
    fixed_size = True
    carries_overflow = True

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the size of the values in bytes."""
        return n * dtype.itemsize

    def encode(self, x: Array, out: Bytes, *, residual: Array | None = None, seed: int = 0) -> int:
        """Copy the values to `out`. If there is a residual, add it."""
        check_values(self.name, x)
        check_wire(self.name, out, at_least=x.nbytes, writeable=True)
        sent = x
        if residual is not None:
            check_residual(self.name, residual, x)
            total = x.astype(np.float32) + residual
            sent = total.astype(x.dtype)
            with np.errstate(invalid="ignore"):  # infinity minus infinity
                lack = total - sent.astype(np.float32)
            residual[...] = np.where(np.isfinite(lack), lack, np.float32(0))
        out[: x.nbytes] = sent.view(np.uint8)
        return x.nbytes

    def decode(self, wire: Bytes, out: Array, *, dtype: np.dtype[Any] | None = None, accumulate: bool = False) -> None:
        """Copy `wire` to `out`, or add it to `out`."""
        check_values(self.name, out, writeable=True)
        check_wire(self.name, wire)
        kind = dtype or out.dtype
        if wire.size != out.size * kind.itemsize:
            raise ValueError(f"none: {wire.size} bytes on the wire do not match {out.size} values of {kind}")
        values = wire.view(kind)
        if accumulate:
            out += values.astype(out.dtype, copy=False)
        elif kind == out.dtype:
            out.view(np.uint8)[:] = wire
        else:
            out[...] = values.astype(out.dtype)

    def decode_add_encode(self, wire: Bytes, local: Array, out: Bytes, *, seed: int = 0) -> int:
        """Write the sum of `wire` and `local` to `out`."""
        if type_of(local.dtype) is not Type.F32:
            return super().decode_add_encode(wire, local, out, seed=seed)
        check_values(self.name, local)
        check_wire(self.name, wire)
        check_wire(self.name, out, at_least=local.nbytes, writeable=True)
        if wire.size != local.nbytes:
            raise ValueError(f"none: {wire.size} bytes on the wire do not match {local.size} values of {local.dtype}")
        np.add(local, wire.view(local.dtype), out=out[: local.nbytes].view(local.dtype))
        return local.nbytes

    def error_bound(self, x: Array) -> float:
        """Return zero, because the codec is lossless."""
        return 0.0
