"""GPU conversions to and from the shorter dtype in which values are sent: rounding, widening and adding.

Sums of values of the same dtype are also computed here, because CuPy's own kernels flush subnormal float32 values to
zero. Results are bitwise identical to NumPy's casts and to ml_dtypes' casts to bfloat16: round to nearest, ties to
even, with overflow to infinity. Only the sign of a NaN is preserved. kernels/gpu/convert.h contains the kernels.
"""

from typing import Any, Protocol

import numpy as np

from hpcbench.codecs.device import Build, Device
from hpcbench.codecs.sequence import CONVERSIONS, SUMS
from hpcbench.codecs.types import SHORT, Type, type_of


class DeviceVector(Protocol):
    """A contiguous array in device memory."""

    @property
    def pointer(self) -> int:
        """Device address of the first value."""

    @property
    def size(self) -> int:
        """Number of values."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""


def build_of(values: np.dtype[Any], sent: np.dtype[Any]) -> Build:
    """Return the kernel build for two dtypes.

    Raises
    ------
    TypeError
        Values of this dtype cannot be sent in the dtype `sent`.
    """
    wide, short = type_of(values), type_of(sent)
    if wide not in (Type.F32, Type.F64) or short not in SHORT:
        raise TypeError(
            f"on a GPU, float32 and float64 can be sent as float32, float16 or bfloat16, but not {values} as {sent}"
        )
    return Build(CONVERSIONS.source, 0, 0, wide, short)


def convert(
    device: Device,
    target: DeviceVector,
    source: DeviceVector,
    stream: int,
    *,
    accumulate: bool = False,
    residual: DeviceVector | None = None,
) -> None:
    """Convert values to the dtype in which they are sent, or back.

    The dtypes of source and target determine the direction.

    Parameters
    ----------
    device
        Device that runs the kernels.
    target, source
        Arrays with two different dtypes, shape (n,).
    stream
        Handle of the stream.
    accumulate
        Whether to add widened values to the target, with one addition in the target's dtype.
    residual
        float32, shape (n,), used when values are rounded. Finite rounding errors are added to the residual.

    Raises
    ------
    TypeError, ValueError
        The dtypes or sizes do not match.
    """
    rounds = target.dtype.itemsize < source.dtype.itemsize
    if (rounds and accumulate) or (residual is not None and not rounds):
        raise TypeError(
            f"{source.dtype} to {target.dtype}: pass a residual only if values are rounded, and accumulate only if "
            "they are not"
        )
    values, sent = (source, target) if rounds else (target, source)
    build = build_of(values.dtype, sent.dtype)
    if rounds:
        _launch(device, "round", build, source, target, residual, stream)
    else:
        _launch(device, "widen and add" if accumulate else "widen", build, source, target, None, stream)


def add_residual(
    device: Device, target: DeviceVector, source: DeviceVector, residual: DeviceVector, stream: int
) -> None:
    """Add values and a residual in float32, and round to the dtype of the values.

    The rounding error replaces the residual.

    Parameters
    ----------
    target, source
        Arrays with the same dtype (float32, float16 or bfloat16), shape (n,).
    residual
        float32, shape (n,). The residual becomes 0 where a sum is not finite.

    Raises
    ------
    TypeError, ValueError
        The dtypes or sizes do not match.
    """
    if target.dtype != source.dtype:
        raise TypeError(f"{source.dtype} to {target.dtype}: a residual can be added only to values of the same type")
    build = build_of(np.dtype(np.float32), source.dtype)
    _launch(device, "add a residual", build, source, target, residual, stream)


def sum_build_of(dtype: np.dtype[Any]) -> Build:
    """Return the build of the kernel that adds values of a dtype.

    Raises
    ------
    TypeError
        The dtype is not a floating-point dtype, or the kernels do not support it.
    """
    kind = type_of(dtype)
    if kind is Type.BYTES:
        raise TypeError(f"on a GPU, only float32, float64, float16 and bfloat16 can be summed, not {dtype}")
    return Build(SUMS.source, 0, 0, kind, kind)


def add(device: Device, total: DeviceVector, values: DeviceVector, stream: int) -> None:
    """Add values to a total. Each sum is rounded once to the dtype. NaN payloads are lost.

    Parameters
    ----------
    device
        Device that runs the kernel.
    total, values
        Arrays with the same floating-point dtype, shape (n,).
    stream
        Handle of the stream.

    Raises
    ------
    TypeError, ValueError
        The dtypes or sizes do not match.
    """
    if total.dtype != values.dtype:
        raise TypeError(f"{values.dtype} to {total.dtype}: only values of the same type can be summed")
    _launch(device, "add", sum_build_of(total.dtype), values, total, None, stream)


def _launch(
    device: Device,
    operation: str,
    build: Build,
    source: DeviceVector,
    target: DeviceVector,
    residual: DeviceVector | None,
    stream: int,
) -> None:
    n, sequence = source.size, SUMS if build.source == SUMS.source else CONVERSIONS
    if target.size != n or (residual is not None and residual.size != n):
        raise ValueError(f"there are {n} values, but the output or the residual has a different size")
    if residual is not None and residual.dtype != np.float32:
        raise TypeError(f"residuals must be float32, not {residual.dtype}")
    arguments: tuple[int, ...] = (source.pointer, n, target.pointer)
    if operation in ("round", "add a residual"):
        arguments += (residual.pointer if residual is not None else 0,)
    blocks = device.blocks(n * Type(build.type).size, sequence.block_bytes)
    for kernel in sequence.kernels[operation]:
        device.launch(build, kernel, blocks, arguments, stream)
