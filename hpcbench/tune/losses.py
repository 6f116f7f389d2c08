"""Estimates of how much a codec in one dimension increases the loss, before any run.

The increase is taken as proportional to the mean square error that the codec makes on Gaussian values, with one factor
per dimension. The factors are of the order that the stored convergence studies show for ZFP at 8 bits
(`results/reference/convergence`). They are rough, so the search treats estimates as uncertain by a factor of 2 to 10.
"""

from functools import lru_cache

import numpy as np

from hpcbench.codecs import spec
from hpcbench.codecs.registry import get_codec
from hpcbench.errors import UserError

SENSITIVITY = {"DP": 1.0, "ZERO": 2.0, "TP": 5.0, "CP": 5.0, "EP": 5.0, "PP": 9.0}
"""Increase of the loss as a fraction, per mean square error relative to the values, of each dimension."""
_VALUES = 1 << 14


@lru_cache
def measure_error(codec: str) -> float:
    """Return the mean square error of a codec on Gaussian values, relative to their mean square.

    Raises
    ------
    UserError
        The codec needs the compiled kernels, and they are missing.
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
    """Return the estimated increase of the loss as a fraction of the loss."""
    return SENSITIVITY[dimension] * measure_error(codec)
