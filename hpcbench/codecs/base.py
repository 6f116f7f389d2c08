"""What every codec offers to the collectives."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from hpcbench.codecs.types import SHORT, Array, Bytes, type_of


class Codec(ABC):
    """One codec with its parameter. It keeps no state: one object may serve any number of channels and threads.

    The two sides of a message know the codec, the number of values and their type beforehand; nothing of that is on
    the wire.
    """

    name: str
    """As in a study: ``zfp:8``."""
    lossless: bool
    """Decoding gives every bit back, NaN payloads and the sign of zero included."""
    fixed_size: bool
    """The bytes on the wire depend on the number of values alone."""
    carries_overflow: bool = False
    """What is not finite comes out as not finite. Where it does not, training looks at every message for it."""

    @abstractmethod
    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Bytes on the wire of `n` values: exact when `fixed_size`, else the most that they can be.

        Raises
        ------
        TypeError
            The codec does not take values of this type.
        """

    @abstractmethod
    def encode(self, x: Array, out: Bytes, *, residual: Array | None = None, seed: int = 0) -> int:
        """Encode `x`, or ``x + residual``, to the start of `out`.

        Parameters
        ----------
        x
            Values, shape (n,), contiguous; any alignment.
        out
            Bytes, shape (at least ``wire_bytes(n, x.dtype)``,), contiguous. What lies behind the returned length may
            be overwritten up to ``wire_bytes``.
        residual
            Error feedback: float32, shape (n,), what earlier messages lacked. It is added to `x`, and what this
            message lacks takes its place (0 where that is not finite).
        seed
            Of stochastic rounding. Equal seeds round alike.

        Returns
        -------
        int
            Bytes used.

        Raises
        ------
        TypeError
            The codec does not take values of this type.
        ValueError
            A shape, the contiguity or the size of an array is wrong.
        """

    @abstractmethod
    def decode(self, wire: Bytes, out: Array, *, dtype: np.dtype[Any] | None = None, accumulate: bool = False) -> None:
        """Decode `wire` into `out`, or add what it holds to `out`.

        Parameters
        ----------
        wire
            The bytes that `encode` used, shape (m,), contiguous.
        out
            Values, shape (n,), contiguous.
        dtype
            Type that was encoded, where it is not that of `out`: half-precision messages may be summed in float32.
        accumulate
            Add, in float32 (in float64 to float64), and round to the type of `out`.

        Raises
        ------
        TypeError
            The codec does not take values of this type.
        ValueError
            `wire` is not what `encode` makes of n values. `out` may have been changed in part.
        """

    @abstractmethod
    def error_bound(self, x: Array) -> float | None:
        """Bound of ``max |decode(encode(x)) - x|``: 0.0 when lossless, None when there is none."""

    def decode_add_encode(self, wire: Bytes, local: Array, out: Bytes, *, seed: int = 0) -> int:
        """Encode the sum of what `wire` holds and `local`: one hop of a reduction that encodes anew.

        Parameters
        ----------
        wire
            The bytes that `encode` used of n values of the type of `local`.
        local
            Values, shape (n,), contiguous. They are added in float32.
        out
            As of `encode`; it may not overlap `wire`.
        seed
            As of `encode`.

        Returns
        -------
        int
            Bytes used.

        Raises
        ------
        TypeError, ValueError
            As `decode` and `encode`.
        """
        total = local.astype(np.promote_types(np.float32, local.dtype))
        self.decode(wire, total, dtype=local.dtype, accumulate=True)
        return self.encode(total.astype(local.dtype), out, seed=seed)


def check_values(name: str, x: Array, *, writeable: bool = False) -> None:
    """Refuse what is not a contiguous vector.

    Raises
    ------
    ValueError
        Shape, contiguity, byte order or write protection.
    """
    if x.ndim != 1 or not x.flags.c_contiguous:
        raise ValueError(f"{name}: values must be a contiguous vector, not shape {x.shape} with strides {x.strides}")
    if not x.dtype.isnative or x.dtype.hasobject:
        raise ValueError(f"{name}: values of type {x.dtype} are not plain numbers in this machine's byte order")
    if writeable and not x.flags.writeable:
        raise ValueError(f"{name}: the array to write to is read-only")


def check_wire(name: str, wire: Bytes, *, at_least: int = 0, writeable: bool = False) -> None:
    """Refuse what is not a contiguous vector of at least so many bytes.

    Raises
    ------
    ValueError
        Shape, type, contiguity, size or write protection.
    """
    check_values(name, wire, writeable=writeable)
    match_wire(name, wire, at_least)


def check_residual(name: str, residual: Array, x: Array) -> None:
    """Refuse what cannot be the residual of `x`.

    Raises
    ------
    TypeError
        float32 does not hold the values of `x`.
    ValueError
        Shape, type, contiguity, size or write protection.
    """
    match_residual(name, residual, x)
    check_values(name, residual, writeable=True)


class Vector(Protocol):
    """An array, or a view of one in the memory of a device."""

    @property
    def size(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...


def match_wire(name: str, wire: Vector, at_least: int) -> None:
    """Refuse what is not at least so many bytes.

    Raises
    ------
    ValueError
        Type or size.
    """
    if wire.dtype != np.uint8:
        raise ValueError(f"{name}: the wire is made of uint8, not {wire.dtype}")
    if wire.size < at_least:
        raise ValueError(f"{name}: {wire.size} bytes on the wire, {at_least} needed")


def match_residual(name: str, residual: Vector, x: Vector) -> None:
    """Refuse what has not the type and size of a residual of `x`.

    Raises
    ------
    TypeError
        float32 does not hold the values of `x`.
    ValueError
        Type or size of the residual.
    """
    if type_of(x.dtype) not in SHORT:
        raise TypeError(f"{name}: error feedback takes float32, float16 or bfloat16, not {x.dtype}")
    if residual.dtype != np.float32 or residual.size != x.size:
        raise ValueError(
            f"{name}: a residual of {residual.size} {residual.dtype} for {x.size} values: it holds as many float32"
        )
