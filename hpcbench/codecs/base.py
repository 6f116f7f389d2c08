"""The interface of codecs for the collectives."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from hpcbench.codecs.types import SHORT, Array, Bytes, type_of


class Codec(ABC):
    """One codec with its parameter. It keeps no state: one object may serve any number of channels and threads.

    The codec, the number of values and their type are the same on both sides of a message, so they are not sent.
    """

    name: str
    """Name as in a study: ``zfp:8``."""
    lossless: bool
    """Whether decoding gives every bit back, NaN payloads and the sign of zero included."""
    fixed_size: bool
    """Whether the bytes on the wire depend only on the number of values."""
    carries_overflow: bool = False
    """Whether NaN and infinity are still not finite after decoding.

    If not, training looks for them in every message.
    """

    @abstractmethod
    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the bytes on the wire of `n` values: exact if `fixed_size`, otherwise the maximum.

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
            Values, shape (n,), contiguous, with any alignment.
        out
            Bytes, shape (at least ``wire_bytes(n, x.dtype)``,), contiguous. Bytes after the returned length may be
            overwritten, up to ``wire_bytes``.
        residual
            Error feedback: float32, shape (n,), the error of earlier messages. It is added to `x`, and this message's
            error replaces it (0 where that is not finite).
        seed
            Seed of stochastic rounding. Equal seeds round in the same way.

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
        """Decode `wire` into `out`, or add the values to `out`.

        Parameters
        ----------
        wire
            The bytes that `encode` used, shape (m,), contiguous.
        out
            Values, shape (n,), contiguous.
        dtype
            Type of the encoded values, if it is not that of `out`: half-precision messages may be summed in float32.
        accumulate
            Add, in float32 (in float64 to float64), and round to the type of `out`.

        Raises
        ------
        TypeError
            The codec does not take values of this type.
        ValueError
            `wire` is not an encoding of n values. A part of `out` may have been changed.
        """

    @abstractmethod
    def error_bound(self, x: Array) -> float | None:
        """Return a bound on ``max |decode(encode(x)) - x|``: 0.0 for a lossless codec, None if no bound exists."""

    def decode_add_encode(self, wire: Bytes, local: Array, out: Bytes, *, seed: int = 0) -> int:
        """Encode the sum of `local` and the values in `wire`: one hop of a reduction that encodes again.

        Parameters
        ----------
        wire
            The bytes that `encode` used for n values of the type of `local`.
        local
            Values, shape (n,), contiguous. They are added in float32.
        out
            The same as for `encode`. It may not overlap `wire`.
        seed
            The same as for `encode`.

        Returns
        -------
        int
            Bytes used.

        Raises
        ------
        TypeError, ValueError
            The same as for `decode` and `encode`.
        """
        total = local.astype(np.promote_types(np.float32, local.dtype))
        self.decode(wire, total, dtype=local.dtype, accumulate=True)
        return self.encode(total.astype(local.dtype), out, seed=seed)


def check_values(name: str, x: Array, *, writeable: bool = False) -> None:
    """Refuse an array that is not a contiguous vector.

    Raises
    ------
    ValueError
        Shape, contiguity, byte order or write protection is wrong.
    """
    if x.ndim != 1 or not x.flags.c_contiguous:
        raise ValueError(f"{name}: values must be a contiguous vector, not shape {x.shape} with strides {x.strides}")
    if not x.dtype.isnative or x.dtype.hasobject:
        raise ValueError(f"{name}: values of type {x.dtype} are not plain numbers in this machine's byte order")
    if writeable and not x.flags.writeable:
        raise ValueError(f"{name}: the array to write to is read-only")


def check_wire(name: str, wire: Bytes, *, at_least: int = 0, writeable: bool = False) -> None:
    """Refuse an array that is not a contiguous vector of at least `at_least` bytes.

    Raises
    ------
    ValueError
        Shape, type, contiguity, size or write protection is wrong.
    """
    check_values(name, wire, writeable=writeable)
    match_wire(name, wire, at_least)


def check_residual(name: str, residual: Array, x: Array) -> None:
    """Refuse an array that cannot be the residual of `x`.

    Raises
    ------
    TypeError
        float32 does not hold the values of `x`.
    ValueError
        Shape, type, contiguity, size or write protection is wrong.
    """
    match_residual(name, residual, x)
    check_values(name, residual, writeable=True)


class SizedArray(Protocol):
    """An array with a size and a type, in the memory of the host or of a device."""

    @property
    def size(self) -> int:
        """Number of values."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""


def match_wire(name: str, wire: SizedArray, at_least: int) -> None:
    """Refuse an array that is not at least `at_least` bytes.

    Raises
    ------
    ValueError
        Type or size is wrong.
    """
    if wire.dtype != np.uint8:
        raise ValueError(f"{name}: the encoded message must be an array of uint8, not {wire.dtype}")
    if wire.size < at_least:
        raise ValueError(f"{name}: {wire.size} bytes on the wire, but {at_least} are needed")


def match_residual(name: str, residual: SizedArray, x: SizedArray) -> None:
    """Refuse an array without the type and size of a residual of `x`.

    Raises
    ------
    TypeError
        float32 does not hold the values of `x`.
    ValueError
        Type or size of the residual is wrong.
    """
    if type_of(x.dtype) not in SHORT:
        raise TypeError(f"{name}: error feedback takes float32, float16 or bfloat16, not {x.dtype}")
    if residual.dtype != np.float32 or residual.size != x.size:
        raise ValueError(
            f"{name}: a residual of {residual.size} {residual.dtype} for {x.size} values: give a "
            "float32 array of the same size"
        )
