"""Adapters for numcodecs and zarr: ``hpcbench.zfp``, ``hpcbench.xpk`` and ``hpcbench.mpc``.

numcodecs finds the adapters through this package's entry points. numcodecs passes only bytes to a decoder. Therefore an
encoded chunk begins with a header that contains the dtype and the number of values.
"""

from typing import Any, ClassVar

import numpy as np
from numcodecs.abc import Codec

from hpcbench.codecs.registry import get_codec
from hpcbench.codecs.types import BFLOAT16

_HEAD = np.dtype([("magic", "S4"), ("version", "u1"), ("type", "u1"), ("spare", "<u2"), ("values", "<u8")])
_MAGIC, _VERSION = b"HPCB", 1
_TYPES = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BFLOAT16)


class _Door(Codec):  # type: ignore[misc]
    """An hpcbench codec with the numcodecs interface."""

    codec_id: ClassVar[str]
    family: ClassVar[str]

    def name(self) -> str:
        """Name of the hpcbench codec."""
        return self.family

    def encode(self, buf: Any) -> bytes:
        """Encode an array.

        Raises
        ------
        TypeError
            The codec does not support this dtype.
        """
        values = np.asarray(buf).reshape(-1, order="A")
        if values.dtype not in _TYPES:
            raise TypeError(
                f"{self.codec_id}: values of type {values.dtype} are not supported: give float16, float32 or float64"
            )
        codec = get_codec(self.name())
        room = np.empty(_HEAD.itemsize + codec.wire_bytes(values.size, values.dtype), dtype=np.uint8)
        head = np.array([(_MAGIC, _VERSION, _TYPES.index(values.dtype), 0, values.size)], _HEAD)
        room[: _HEAD.itemsize] = head.view(np.uint8)
        used = codec.encode(np.ascontiguousarray(values), room[_HEAD.itemsize :])
        return room[: _HEAD.itemsize + used].tobytes()

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Decode bytes. If `out` is given, write the values to `out`.

        Raises
        ------
        ValueError
            The bytes were not encoded by this codec, or `out` has a different size.
        """
        content = np.frombuffer(buf, dtype=np.uint8)
        if content.size < _HEAD.itemsize:
            raise ValueError(f"{self.codec_id}: the {content.size} bytes are not an encoded message")
        head = content[: _HEAD.itemsize].view(_HEAD)[0]
        if head["magic"] != _MAGIC or head["version"] != _VERSION or head["type"] >= len(_TYPES):
            raise ValueError(f"{self.codec_id}: the bytes do not begin with the header of encoded values")
        dtype, n = _TYPES[head["type"]], int(head["values"])
        codec = get_codec(self.name())
        if n > (1 << 40) or content.size - _HEAD.itemsize > codec.wire_bytes(n, dtype):
            raise ValueError(f"{self.codec_id}: the {content.size} bytes do not encode {n} values")
        if out is None:
            values = np.empty(n, dtype)
            codec.decode(content[_HEAD.itemsize :], values)
            return values
        target = np.frombuffer(out, dtype=dtype) if not isinstance(out, np.ndarray) else out.reshape(-1).view(dtype)
        if target.size != n:
            raise ValueError(f"{self.codec_id}: the message has {n} values, but the output has {target.size}")
        codec.decode(content[_HEAD.itemsize :], target)
        return out


class Zfp(_Door):
    """One-dimensional ZFP at a fixed rate.

    Parameters
    ----------
    rate
        Bits per value.
    """

    codec_id = "hpcbench.zfp"
    family = "zfp"

    def __init__(self, rate: int = 16) -> None:
        self.rate = rate
        get_codec(self.name())

    def name(self) -> str:
        """Name of the hpcbench codec."""
        return f"zfp:{self.rate}"


class Xpk(_Door):
    """Lossless exponent packing."""

    codec_id = "hpcbench.xpk"
    family = "xpk"


class Mpc(_Door):
    """Lossless MPC compression."""

    codec_id = "hpcbench.mpc"
    family = "mpc"
