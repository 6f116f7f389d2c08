"""Prior estimates of the loss increase caused by a codec in one dimension.

The increase is assumed to be proportional to the codec's mean square error on Gaussian values, with one factor per
dimension. The factors have the order of magnitude that the stored convergence studies (`results/reference/convergence`)
show for ZFP at 8 bits. The factors are rough, so the search treats estimates as uncertain by a factor of 2 to 10.
"""

from functools import lru_cache

import numpy as np

from hpcbench.codecs import spec
from hpcbench.codecs.registry import get_codec
from hpcbench.errors import UserError

SENSITIVITY = {"DP": 1.0, "ZERO": 2.0, "TP": 5.0, "CP": 5.0, "EP": 5.0, "PP": 9.0}
"""Relative loss increase per relative mean square error, for each dimension."""
_VALUES = 1 << 14


@lru_cache
def measure_error(codec: str) -> float:
    """Return a codec's relative mean square error on Gaussian values.

    Raises
    ------
    UserError
        The codec needs the compiled kernels, which are missing.
    """
    if spec.parse(codec).lossless is True:
        return 0.0
    values = np.random.default_rng(1).standard_normal(_VALUES).astype(np.float32)
    try:
        coder = get_codec(codec)
        wire = np.zeros(coder.wire_bytes(values.size, values.dtype), np.uint8)
        used = coder.encode(values, wire)
        decoded = np.zeros_like(values)
        coder.decode(wire[:used], decoded)
    except ImportError as error:
        raise UserError(f"codec {codec}: {error}: install hpcbench with its kernels on this machine") from None
    return float(np.mean((decoded - values) ** 2) / np.mean(values**2))


def estimate_loss(dimension: str, codec: str) -> float:
    """Return the estimated relative loss increase."""
    return SENSITIVITY[dimension] * measure_error(codec)
