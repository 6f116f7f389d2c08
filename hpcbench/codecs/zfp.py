"""ZFP with fixed rate, in one dimension and float32. The wire is the raw stream of libzfp, which any zfp tool can read.

A block of 4 values takes ``4 * rate`` bits. The last block is padded in libzfp's way, and the stream with zeros to a
multiple of 8 bytes. A block that holds NaN or infinity uses a code that libzfp leaves free (and decodes as zeros).
Infinities keep their sign and position. All other values of that block come back as NaN, because the stream does
not hold their values.
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
    """ZFP at a fixed rate.

    Parameters
    ----------
    rate
        Bits per value, 4 to 32.
    build
        Kernels to use; None takes the fastest that runs here.
    """

    lossless = False
    fixed_size = True

    def __init__(self, rate: int, build: Kernels | None = None) -> None:
        if rate not in ZFP_RATES:
            raise ValueError(f"zfp: rate {rate} is not in {ZFP_RATES.start} to {ZFP_RATES.stop - 1}")
        super().__init__("zfp", f"zfp:{rate}", build)
        self.rate = rate

    def param(self, n: int) -> int:
        """Return the rate."""
        return self.rate

    def wire_bytes(self, n: int, dtype: np.dtype[Any]) -> int:
        """Return the bytes of all blocks, a multiple of 8."""
        self.check_type(dtype)
        return -(-(-(-n // 4) * 4 * self.rate) // 64) * 8

    def error_bound(self, x: Array) -> float | None:
        """Return a bound on the absolute error, computed from the largest magnitude and the rate; None if none exists.

        No bound exists for values that are not finite, and for values that decoding may round to infinity because
        they are close to the largest of their type.

        Notes
        -----
        Let 2^e be above every magnitude, u = 2^(e-30) the unit of the integers that are coded. k complete bit planes
        of 4 coefficients cost at most 4k + 3 bits (4 a plane, and at most 4 group tests that find a coefficient, of
        which the one for the last saves a bit), and the block has 4R - 9: so R - 3 planes arrive. In the next one a
        bit may be missing or, where the bits end inside a scan, be set wrongly; all lower bits are missing. In
        negabinary that is at most 5/3 * 2^(34-R) in a coefficient, and the inverse transform (rows with an absolute
        sum of 15/4) makes at most 15/4 of it. Truncation to integers adds 1, the lost low bits of the transform 3,
        the halvings of the inverse 5/4. Rounding to float32 adds 2^6, or half the smallest subnormal.

        Decoded integers are below 2^31 and the coded ones below 2^30, so 3 * 2^30 holds whatever happens; it is used
        where the first bound would let the integers overflow.
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
