"""Sparse gradients: what is small, or zero, is not sent.

kernels/hb_sparse.h and kernels/hb_2of4.h tell the formats.
"""

import math
import struct
from typing import Any

import numpy as np

from hpcbench.codecs.base import check_values
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.types import Array


class Pick(Compiled):
    """``2:4``: of each four values the two of largest magnitude.

    Parameters
    ----------
    build
        Kernels to use; None takes the fastest that runs here.
    """

    lossless = False
    fixed_size = True

    def __init__(self, build: Kernels | None = None) -> None:
        super().__init__("2:4", "2:4", build)

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        self.check_type(dtype)
        groups = -(-n // 4)
        return -(-2 * groups * dtype.itemsize // 4) * 4 + -(-groups // 2)

    def error_bound(self, x: Array) -> float | None:
        """The largest magnitude left out; None where values are not finite."""
        check_values(self.name, x)
        self.check_type(x.dtype)
        groups = np.zeros(-(-x.size // 4) * 4, dtype=np.float32)
        groups[: x.size] = np.abs(x.astype(np.float32))
        if not np.isfinite(groups).all():
            return None
        return float(np.max(np.sort(groups.reshape(-1, 4), axis=1)[:, 1], initial=0.0))  # [n/4, 4]


class TopK(Compiled):
    """``topk:F``: the fraction F of the values, those of largest magnitude.

    Parameters
    ----------
    fraction
        In (0, 1]. Of n values ceil(F n) are sent.
    build
        Kernels to use; None takes the fastest that runs here.
    """

    lossless = False
    fixed_size = True

    def __init__(self, fraction: float, build: Kernels | None = None) -> None:
        if not 0 < fraction <= 1:
            raise ValueError(f"topk: {fraction:g} is not a fraction in (0, 1]")
        super().__init__("topk", f"topk:{fraction:g}", build)
        self.fraction = fraction

    def param(self, n: int) -> int:
        return min(n, math.ceil(self.fraction * n))


class Threshold(Compiled):
    """``threshold:T``: the values of magnitude above T.

    Parameters
    ----------
    threshold
        Positive. It is rounded to float32.
    build
        Kernels to use; None takes the fastest that runs here.
    """

    lossless = False
    fixed_size = False

    def __init__(self, threshold: float, build: Kernels | None = None) -> None:
        if not 0 < threshold <= 3e38:
            raise ValueError(f"threshold: {threshold:g} is not a positive float32")
        super().__init__("threshold", f"threshold:{threshold:g}", build)
        self.threshold = float(np.float32(threshold))

    def param(self, n: int) -> int:
        return int(struct.unpack("<I", struct.pack("<f", self.threshold))[0])


class RowSparse(Compiled):
    """``rowsparse:W``: the rows of W values that are not all zero, as the gradient of an embedding has few of.

    Parameters
    ----------
    width
        Values a row.
    build
        Kernels to use; None takes the fastest that runs here.
    """

    lossless = True
    fixed_size = False

    def __init__(self, width: int, build: Kernels | None = None) -> None:
        if width < 1:
            raise ValueError(f"rowsparse: rows of {width} values")
        super().__init__("rowsparse", f"rowsparse:{width}", build)
        self.width = width

    def param(self, n: int) -> int:
        return self.width
