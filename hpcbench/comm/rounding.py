"""Rounding, widening and summing of values that are sent in a shorter dtype. Each function makes a single pass."""

from typing import Any

import numpy as np

from hpcbench.codecs.library import kernels
from hpcbench.codecs.types import Type, type_of
from hpcbench.comm.arrays import Array

_HALVES = (Type.F16, Type.BF16)


def is_half(dtype: np.dtype[Any]) -> bool:
    """Return whether the dtype has 16 bits."""
    return type_of(dtype) in _HALVES


def narrow(values: Array, out: Array, residual: Array | None = None) -> None:
    """Round values to the dtype of `out`, to nearest even.

    Parameters
    ----------
    values, out
        Contiguous arrays of shape (n,).
    residual
        float32, shape (n,). Finite rounding errors are added to the residual.
    """
    if is_half(out.dtype) and values.dtype == np.float32:
        lacked = None if residual is None else residual.ctypes.data
        kernels().halves.narrow(type_of(out.dtype), values.ctypes.data, values.size, out.ctypes.data, lacked)
        return
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(out, values, casting="unsafe")
        if residual is not None:
            lack = values - out.astype(values.dtype)
            np.add(residual, lack, out=residual, where=np.isfinite(lack), casting="same_kind")


def widen(values: Array, out: Array, *, accumulate: bool = False) -> None:
    """Write values to an array of a wider dtype, or add the values to that array.

    Both arrays are contiguous, with shape (n,).
    """
    if is_half(values.dtype) and out.dtype == np.float32:
        kernels().halves.widen(type_of(values.dtype), values.ctypes.data, values.size, out.ctypes.data, accumulate)
    elif accumulate:
        np.add(out, values, out=out)
    elif values.ctypes.data != out.ctypes.data:
        np.copyto(out, values)
