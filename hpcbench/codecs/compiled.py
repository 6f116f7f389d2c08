"""Base class of codecs that call compiled kernels."""

from typing import Any

import numpy as np

from hpcbench.codecs.base import Codec, check_residual, check_values, check_wire
from hpcbench.codecs.library import MALFORMED, Kernels, kernels
from hpcbench.codecs.types import SHORT, Array, Bytes, Type, type_of

_SEED = 2**64 - 1


class Compiled(Codec):
    """A codec that validates its arguments and calls a kernel.

    Parameters
    ----------
    family
        Family name of the codec's library functions.
    name
        Name as used in a study.
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    carries_overflow = True

    def __init__(self, family: str, name: str, build: Kernels | None = None) -> None:
        self.name = name
        self.family = family
        self._kernels = build or kernels()
        self.ops = self._kernels.ops[family]

    def param(self, n: int) -> int:
        """Return the kernels' parameter for `n` values."""
        return 0

    def encode(self, x: Array, out: Bytes, *, residual: Array | None = None, seed: int = 0) -> int:
        """Encode `x`, or ``x + residual``, with a kernel."""
        check_values(self.name, x)
        kind = self.check_type(x.dtype)
        check_wire(self.name, out, at_least=self.wire_bytes(x.size, x.dtype), writeable=True)
        n, residual_address = x.nbytes if kind is Type.BYTES else x.size, None
        if residual is not None:
            check_residual(self.name, residual, x)
            residual_address = residual.ctypes.data
        arguments = x.ctypes.data, n, out.ctypes.data, residual_address, seed & _SEED
        return int(self.ops.encode(self.param(n), kind, *arguments))

    def decode(self, wire: Bytes, out: Array, *, dtype: np.dtype[Any] | None = None, accumulate: bool = False) -> None:
        """Decode `wire` with a kernel. Values that kernels cannot add, such as integers, are added by NumPy."""
        check_values(self.name, out, writeable=True)
        check_wire(self.name, wire)
        kind, target = self.check_type(dtype or out.dtype), self.check_type(out.dtype)
        if kind is not target and (kind not in SHORT or target not in SHORT):
            raise TypeError(f"{self.name}: values of {dtype} cannot be decoded to {out.dtype}")
        n, into = out.size, out
        if target is Type.BYTES:
            n, into = out.nbytes, np.empty_like(out) if accumulate else out
        arguments = wire.ctypes.data, wire.size, n, into.ctypes.data, target, accumulate and into is out
        if self.ops.decode(self.param(n), kind, *arguments):
            raise ValueError(f"{self.name}: {wire.size} bytes do not encode {out.size} values of {dtype or out.dtype}")
        if into is not out:
            out += into

    def decode_add_encode(self, wire: Bytes, local: Array, out: Bytes, *, seed: int = 0) -> int:
        """Decode, add and encode in a single kernel, for dtypes that lossy codecs support."""
        kind = self.check_type(local.dtype)
        if kind not in SHORT:
            return super().decode_add_encode(wire, local, out, seed=seed)
        check_values(self.name, local)
        check_wire(self.name, wire)
        check_wire(self.name, out, at_least=self.wire_bytes(local.size, local.dtype), writeable=True)
        n = local.size
        arguments = wire.ctypes.data, wire.size, local.ctypes.data, n, out.ctypes.data, seed & _SEED
        used = int(self.ops.decode_add_encode(self.param(n), kind, *arguments))
        if used == MALFORMED:
            raise ValueError(f"{self.name}: {wire.size} bytes do not encode {n} values of {local.dtype}")
        return used

    def check_type(self, dtype: np.dtype[Any]) -> Type:
        """Return the number that the kernels use for a dtype.

        Raises
        ------
        TypeError
            The dtype is not supported by this lossy codec.
        """
        kind = type_of(dtype)
        if not self.lossless and kind not in SHORT:
            raise TypeError(
                f"{self.name}: supports float32, float16 and bfloat16, but not {dtype}: use one of these, or a "
                "lossless codec"
            )
        return kind
