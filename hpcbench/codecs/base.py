"""What every codec offers to the collectives."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


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

    @abstractmethod
    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Bytes on the wire of `n` values: exact when `fixed_size`, else the most that they can be.

        Raises
        ------
        TypeError
            The codec does not take values of this type.
        """

    @abstractmethod
    def encode(self, x: Array, out: Bytes) -> int:
        """Encode `x` to the start of `out`.

        Parameters
        ----------
        x
            Values, shape (n,), contiguous; any alignment.
        out
            Bytes, shape (at least ``wire_bytes(n, x.dtype)``,), contiguous. What lies behind the returned length may
            be overwritten up to ``wire_bytes``.

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
    def decode(self, wire: Bytes, out: Array, *, accumulate: bool = False) -> None:
        """Decode `wire` into `out`, or add what it holds to `out`.

        Parameters
        ----------
        wire
            The bytes that `encode` used, shape (m,), contiguous.
        out
            Values, shape (n,), contiguous, of the type that was encoded.
        accumulate
            Add, in the type of `out`, instead of overwriting.

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
    if wire.dtype != np.uint8:
        raise ValueError(f"{name}: the wire is made of uint8, not {wire.dtype}")
    if wire.size < at_least:
        raise ValueError(f"{name}: {wire.size} bytes on the wire, {at_least} needed")
