"""Rotation before encoding.

The rotation spreads outliers over neighboring values, so that no outlier determines a scale alone.

kernels/hb_rotate.h describes the rotation. The codec's kernels include the rotation, which adds no bytes. The rotation
helps if the largest value of a block is far larger than a normal distribution would suggest. The rotation reduces
accuracy if many values are zero.
"""

import math
from typing import Any

import numpy as np

from hpcbench.codecs.base import check_values
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.spec import ROTATED, ROTATIONS
from hpcbench.codecs.types import Array, largest_of, rounding

_SIZE, _SIGNS = 40, 1 << 44


class Rotated(Compiled):
    """The codecs ``rotateN+CODEC`` and ``hadamardN+CODEC``.

    Parameters
    ----------
    codec
        Codec for the rotated values, together with its kernels.
    size
        Number of values that are rotated together: a power of two from 16 to 1024.
    signs
        Whether to flip the signs of some values before the rotation. The positions of the flipped signs are random, but
        the same in each call. Without sign flips, the rotation of a constant has one large value.
    """

    lossless = False
    fixed_size = True

    def __init__(self, codec: Compiled, size: int, *, signs: bool = True, build: Kernels | None = None) -> None:
        if size not in ROTATIONS or codec.name.partition(":")[0] not in ROTATED:
            raise ValueError(f"{codec.name}: this codec does not support a rotation of {size} values")
        super().__init__(codec.family, f"{'rotate' if signs else 'hadamard'}{size}+{codec.name}", build)
        self.codec, self.size, self.signs = codec, size, signs

    def param(self, n: int) -> int:
        """Return the codec's parameter, combined with the rotation size in higher bits."""
        return self.codec.param(n) | int(math.log2(self.size)) << _SIZE | (_SIGNS if self.signs else 0)

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the encoded size of the rotated values."""
        self.check_type(dtype)
        return self.codec.wire_bytes(n, dtype)

    def error_bound(self, x: Array) -> float | None:
        """Return the codec's bound times the square root of `size`, because the errors of rotated values may add up."""
        check_values(self.name, x)
        self.check_type(x.dtype)
        root = math.sqrt(self.size)
        with np.errstate(over="ignore"):
            largest = float(np.max(np.abs(x), initial=0))
            rotated = np.array([largest * root * (1 + 2.0**-20)], np.float32)
        inner = self.codec.error_bound(rotated)
        if inner is None:
            return None
        # each step of both rotations rounds its sums to float32
        bound = root * inner + 2 * root * largest * root * 2.0**-20 + 2.0**-140
        if not largest + bound < largest_of(x.dtype):
            return None
        return bound + rounding(x.dtype, largest + bound) if largest else 0.0
