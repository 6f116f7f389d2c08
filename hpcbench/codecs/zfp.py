"""Fixed-rate ZFP, in one dimension and float32. Encoded data is a raw libzfp stream, which any zfp tool can read.

A block of 4 values takes ``4 * rate`` bits. The last block is padded as in libzfp, and the stream is padded with zeros
to a multiple of 8 bytes. A block with NaN or infinity is marked by a code that libzfp never writes. libzfp decodes such
a block as zeros. hpcbench restores the sign and position of infinities, and decodes all other values of the block as
NaN because the stream does not contain them.
"""

import math
from typing import Any

import numpy as np

from hpcbench.codecs.base import check_values
from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.library import Kernels
from hpcbench.codecs.spec import ZFP_RATES
from hpcbench.codecs.types import Array, largest_of, rounding


class ZfpCodec(Compiled):
    """Fixed-rate ZFP.

    Parameters
    ----------
    rate
        Bits per value, 4 to 32.
    build
        Kernels to use. If None, use the fastest build that this machine supports.
    """

    lossless = False
    fixed_size = True

    def __init__(self, rate: int, build: Kernels | None = None) -> None:
        if rate not in ZFP_RATES:
            raise ValueError(f"zfp: rate {rate} is not from {ZFP_RATES.start} to {ZFP_RATES.stop - 1}")
        super().__init__("zfp", f"zfp:{rate}", build)
        self.rate = rate

    def param(self, n: int) -> int:
        """Return the rate."""
        return self.rate

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the size of all blocks in bytes, a multiple of 8."""
        self.check_type(dtype)
        return -(-(-(-n // 4) * 4 * self.rate) // 64) * 8

    def error_bound(self, x: Array) -> float | None:
        """Return a bound on the absolute error, computed from the largest magnitude and the rate, or None.

        The result is None for non-finite values. The result is also None if decoding may round values to infinity
        because they are close to the maximum of their dtype.

        Notes
        -----
        Let 2^e be greater than every magnitude. The encoded integers have the unit u = 2^(e-30). Each bit plane of 4
        coefficients takes 4 bits, plus at most 4 bits in total for group tests that find a coefficient. The last of
        these tests saves one bit, so k complete planes take at most 4k + 3 bits. A block has 4R - 9 bits for planes,
        which is enough for R - 3 planes. In the next plane, bits may be missing. If the bits end within a scan, one bit
        may also be set incorrectly. All lower bits are missing. In negabinary, the error is at most 5/3 * 2^(34-R) per
        coefficient. The inverse transform (rows with an absolute sum of 15/4) increases the error at most by a factor
        of 15/4. Truncation to integers adds 1, the lost low bits of the transform add 3, and the halvings of the
        inverse transform add 5/4. Rounding to float32 adds 2^6, or half the smallest subnormal.

        Decoded integers are below 2^31 and encoded integers below 2^30, so 3 * 2^30 is always a bound. This bound is
        used if the first bound would allow integer overflow.
        """
        check_values(self.name, x)
        self.check_type(x.dtype)
        largest = float(np.max(np.abs(x), initial=0.0))
        if largest == 0.0:
            return 0.0
        if not math.isfinite(largest):
            return None
        planes = 15 / 4 * 5 / 3 * 2.0 ** (34 - self.rate) + 5.25
        units = planes + 2.0**6 if planes < 2.0**30 else 3 * 2.0**30
        exponent = max(math.frexp(largest)[1], -126)
        bound = math.ldexp(units, exponent - 30) + 2.0**-150
        if largest + bound >= largest_of(x.dtype):
            return None
        return bound + rounding(x.dtype, largest + bound)
