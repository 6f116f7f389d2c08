"""Codec interface of the collectives."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from hpcbench.codecs.types import SHORT, Array, Bytes, type_of


class Codec(ABC):
    """A codec with its parameter. Codecs are stateless, so one object may serve any number of channels and threads.

    Messages do not include the codec, the number of values, or the dtype, which are the same on both sides.
    """

    name: str
    """Name as used in a study, for example ``zfp:8``."""
    lossless: bool
    """Whether decoding restores every bit, including NaN payloads and the sign of zero."""
    fixed_size: bool
    """Whether the encoded size depends only on the number of values."""
    carries_overflow: bool = False
    """Whether NaN and infinity remain non-finite after decoding.

    If False, training checks every message for NaN and infinity.
    """

    @abstractmethod
    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the encoded size of `n` values in bytes.

        The size is exact if `fixed_size` is set, otherwise it is the maximum.

        Raises
        ------
        TypeError
            The codec does not support this dtype.
        """

    @abstractmethod
    def encode(self, x: Array, out: Bytes, *, residual: Array | None = None, seed: int = 0) -> int:
        """Encode `x`, or ``x + residual``, to the start of `out`.

        Parameters
        ----------
        x
            Values, shape (n,), contiguous, with any alignment.
        out
            Output bytes, shape (at least ``wire_bytes(n, x.dtype)``,), contiguous. Bytes after the returned length may
            be overwritten, up to ``wire_bytes``.
        residual
            Residual of error feedback, float32, shape (n,). The residual is added to `x`, and then replaced by the
            error of this message. Non-finite errors become 0.
        seed
            Seed of stochastic rounding. The same seed gives the same result.

        Returns
        -------
        int
            Number of bytes written.

        Raises
        ------
        TypeError
            The codec does not support this dtype.
        ValueError
            An array has the wrong shape or size, or is not contiguous.
        """

    @abstractmethod
    def decode(self, wire: Bytes, out: Array, *, dtype: np.dtype[Any] | None = None, accumulate: bool = False) -> None:
        """Decode `wire` into `out`, or add the decoded values to `out`.

        Parameters
        ----------
        wire
            The bytes written by `encode`, shape (m,), contiguous.
        out
            Values, shape (n,), contiguous.
        dtype
            Dtype of the encoded values. By default, it is the dtype of `out`. Half-precision messages may be summed in
            float32.
        accumulate
            Whether to add the values to `out`. Sums are computed in float32 (float64 for float64) and rounded to the
            dtype of `out`.

        Raises
        ------
        TypeError
            The codec does not support this dtype.
        ValueError
            `wire` is not a valid encoding of n values. `out` may have been partially overwritten.
        """

    @abstractmethod
    def error_bound(self, x: Array) -> float | None:
        """Return a bound on ``max |decode(encode(x)) - x|``: 0.0 for lossless codecs, None if unbounded."""

    def decode_add_encode(self, wire: Bytes, local: Array, out: Bytes, *, seed: int = 0) -> int:
        """Encode the sum of `local` and the values in `wire`.

        This is one hop of a reduction that re-encodes partial sums.

        Parameters
        ----------
        wire
            The bytes written by `encode` for n values of the dtype of `local`.
        local
            Values, shape (n,), contiguous. Sums are computed in float32.
        out
            As in `encode`. The array must not overlap `wire`.
        seed
            As in `encode`.

        Returns
        -------
        int
            Number of bytes written.

        Raises
        ------
        TypeError, ValueError
            As in `decode` and `encode`.
        """
        total = local.astype(np.promote_types(np.float32, local.dtype))
        self.decode(wire, total, dtype=local.dtype, accumulate=True)
        return self.encode(total.astype(local.dtype), out, seed=seed)


def check_values(name: str, x: Array, *, writeable: bool = False) -> None:
    """Raise an error unless an array is a contiguous vector.

    Raises
    ------
    ValueError
        The array has the wrong shape or byte order, is not contiguous, or is write-protected.
    """
    if x.ndim != 1 or not x.flags.c_contiguous:
        raise ValueError(f"{name}: values must be a contiguous vector, not shape {x.shape} with strides {x.strides}")
    if not x.dtype.isnative or x.dtype.hasobject:
        raise ValueError(f"{name}: values of type {x.dtype} are not plain numbers in this machine's byte order")
    if writeable and not x.flags.writeable:
        raise ValueError(f"{name}: the array to write to is read-only")


def check_wire(name: str, wire: Bytes, *, at_least: int = 0, writeable: bool = False) -> None:
    """Raise an error unless an array is a contiguous vector of at least `at_least` bytes.

    Raises
    ------
    ValueError
        The array has the wrong shape, dtype or size, is not contiguous, or is write-protected.
    """
    check_values(name, wire, writeable=writeable)
    match_wire(name, wire, at_least)


def check_residual(name: str, residual: Array, x: Array) -> None:
    """Raise an error unless an array is a valid residual for `x`.

    Raises
    ------
    TypeError
        float32 cannot represent the values of `x`.
    ValueError
        The array has the wrong shape, dtype or size, is not contiguous, or is write-protected.
    """
    match_residual(name, residual, x)
    check_values(name, residual, writeable=True)


class SizedArray(Protocol):
    """An array with a size and a dtype, in host or device memory."""

    @property
    def size(self) -> int:
        """Number of values."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""


def match_wire(name: str, wire: SizedArray, at_least: int) -> None:
    """Raise an error unless an array contains at least `at_least` bytes.

    Raises
    ------
    ValueError
        The array has the wrong dtype or is too short.
    """
    if wire.dtype != np.uint8:
        raise ValueError(f"{name}: the encoded message must be an array of uint8, not {wire.dtype}")
    if wire.size < at_least:
        raise ValueError(f"{name}: the wire array has {wire.size} bytes, but {at_least} are needed")


def match_residual(name: str, residual: SizedArray, x: SizedArray) -> None:
    """Raise an error unless an array has the dtype and size of a residual for `x`.

    Raises
    ------
    TypeError
        float32 cannot represent the values of `x`.
    ValueError
        The residual has the wrong dtype or size.
    """
    if type_of(x.dtype) not in SHORT:
        raise TypeError(f"{name}: error feedback takes float32, float16 or bfloat16, not {x.dtype}")
    if residual.dtype != np.float32 or residual.size != x.size:
        raise ValueError(
            f"{name}: the residual has {residual.size} values of {residual.dtype}, but the message has {x.size} "
            "values: give a float32 array of the same size"
        )
