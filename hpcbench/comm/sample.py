"""Sampled error of a lossy codec. Measuring every message would require a second pass over the values."""

from typing import Any

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.comm.channel import Channel
from hpcbench.comm.places import Place

_EVERY, _VALUES = 64, 4096
"""Number of calls between two samples, and number of elements per sample."""


def sample_error(channel: Channel, codec: Codec, place: Place, values: Any) -> None:
    """Measure the encoding error of the first values of every 64th call.

    The CPU codec is used, because GPU kernels have the same error.
    """
    counters = channel.counters
    rounds = channel.rounds(values.dtype)
    if (codec.lossless and not rounds) or counters.calls % _EVERY or not values.size:
        return
    taken = place.sample(values[:_VALUES])
    with np.errstate(over="ignore"):
        sample = taken.astype(channel.travels_as(taken.dtype), copy=False)
    wire = np.empty(codec.wire_bytes(sample.size, sample.dtype), dtype=np.uint8)
    decoded = np.empty_like(sample)
    codec.decode(wire[: codec.encode(sample, wire)], decoded)
    finite = np.isfinite(taken) & np.isfinite(decoded)
    exact, lossy = taken[finite].astype(np.float64), decoded[finite].astype(np.float64)
    counters.error_square += float(np.square(lossy - exact).sum())
    counters.sampled_square += float(np.square(exact).sum())
