"""Upper bounds on the gain of compression (Amdahl's law), and the bandwidth below which each codec saves time."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.diagnose.calls import ALL_GATHER, ALL_REDUCE, FLOATS, REDUCE_SCATTER

GPU_SPEED, CPU_SPEED = 500.0, 50.0
"""Assumed speeds of a codec on a GPU and on a CPU core, in GB/s of uncompressed data.

Gains computed with these speeds are upper bounds only if no codec is faster. The speeds in
results/reference/codecs-cpu.txt are at most about half of the assumed speed of a core.
"""
NOTABLE = 1.03
"""Minimum gain for which compression is worth trying."""


@dataclass(frozen=True)
class WireFormat:
    """A format of values on the wire: a cast or a codec."""

    name: str
    bits: float
    """Bits per value on the wire."""
    has_cost: bool = True
    """Whether encoding takes time. A cast is free, because it is part of existing kernels."""


CODECS = (WireFormat("bf16", 16.0, has_cost=False), WireFormat("int8", 8.125), WireFormat("4 bits", 4.31))
"""Casts and codecs in descending order of encoded size.

int8 uses blocks of 256 values, and 4 bits uses two-level scales.
"""
FREE = WireFormat("free communication", 0.0, has_cost=False)


@dataclass(frozen=True)
class Load:
    """Traffic per step of one kind of call on one rank."""

    operation: str
    dtype: str
    group_size: int | None
    message_bytes: float
    wire_bytes: float
    transfer_us: float
    exposed_us: float
    """Exposed transfer time, excluding waiting for late ranks."""


def ratio(codec: WireFormat, dtype: str) -> float:
    """Return the bytes on the wire with the codec divided by the bytes without the codec. The result is at most 1."""
    return min(1.0, codec.bits / (8 * FLOATS[dtype]))


def codec_us(load: Load, gb_per_s: float) -> float:
    """Return the time in microseconds to encode and decode the traffic of a step.

    A reduction encodes each vector, decodes and sums the received parts, and then encodes and decodes the sums.
    """
    size = load.group_size or 1
    passes = {ALL_REDUCE: 3 + 1 / size, REDUCE_SCATTER: 2.0, ALL_GATHER: 1 + 1 / size}.get(load.operation, 2.0)
    return passes * load.message_bytes / (gb_per_s * 1e3)


def saved_us(load: Load, codec: WireFormat, gb_per_s: float) -> float:
    """Return the maximum time that a codec saves per step, in microseconds."""
    shorter = load.transfer_us * (1 - ratio(codec, load.dtype))
    cost = codec_us(load, gb_per_s) if codec.has_cost else 0.0
    return max(0.0, min(load.exposed_us, shorter) - cost)


def break_even_gbit(load: Load, codec: WireFormat, gb_per_s: float) -> float | None:
    """Return the bandwidth per rank in Gbit/s at which a codec's cost equals its savings, or None if either is zero."""
    fewer = load.wire_bytes * (1 - ratio(codec, load.dtype))
    cost = codec_us(load, gb_per_s)
    return 8e-3 * fewer / cost if fewer > 0 and cost > 0 else None


def gain_at(loads: Sequence[Load], step_us: float, codec: WireFormat, gb_per_s: float, gbit: float) -> float:
    """Return the gain of a codec at a different link bandwidth.

    Parameters
    ----------
    loads
        Traffic of a dimension. Transfer times are recomputed for the bandwidth. The computation is assumed to hide at
        most as much transfer time as in the trace.
    step_us
        Traced time of a step in microseconds.
    gbit
        Bandwidth per rank in Gbit/s.
    """
    plain = step_us - sum(load.exposed_us for load in loads)
    coded = plain
    for load in loads:
        hidden = load.transfer_us - load.exposed_us
        transfer = 8e-3 * load.wire_bytes / gbit
        plain += max(0.0, transfer - hidden)
        cost = codec_us(load, gb_per_s) if codec.has_cost else 0.0
        coded += max(0.0, ratio(codec, load.dtype) * transfer - hidden) + cost
    return plain / coded
