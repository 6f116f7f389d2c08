"""What compression could gain at most: Amdahl's bound for each codec, and the bandwidth below which it pays."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.diagnose.calls import ALL_GATHER, ALL_REDUCE, FLOATS, REDUCE_SCATTER

GPU_SPEED, CPU_SPEED = 500.0, 50.0
"""Assumed speed of a codec in GB/s of values, on a GPU and on a core.

A gain is an upper bound only if no codec is faster: results/reference/codecs-cpu.txt has half of it for a core.
"""
NOTABLE = 1.03
"""Gain below which compression is not worth trying."""


@dataclass(frozen=True)
class WireFormat:
    """A format that values have on the wire: a cast or a codec."""

    name: str
    bits: float
    """Bits per value on the wire."""
    has_cost: bool = True
    """Whether encoding takes time; a cast is part of kernels that run anyway."""


CODECS = (WireFormat("bf16", 16.0, has_cost=False), WireFormat("int8", 8.125), WireFormat("4 bits", 4.31))
"""Casts and codecs in the order of their rates; int8 with blocks of 256 values, 4 bits with scales of two levels."""
FREE = WireFormat("free communication", 0.0, has_cost=False)


@dataclass(frozen=True)
class Load:
    """The traffic of one kind on one rank, per step."""

    operation: str
    dtype: str
    group_size: int | None
    message_bytes: float
    wire_bytes: float
    transfer_us: float
    exposed_us: float
    """Exposed part of the transfer; waiting for late ranks does not count."""


def ratio(codec: WireFormat, dtype: str) -> float:
    """Return bytes on the wire with the codec over bytes without it; at most 1."""
    return min(1.0, codec.bits / (8 * FLOATS[dtype]))


def codec_us(load: Load, gb_per_s: float) -> float:
    """Return the microseconds to encode and decode the traffic of a step.

    A sum over owners encodes each vector, sums the parts that arrive, encodes the sums and decodes them.
    """
    size = load.group_size or 1
    passes = {ALL_REDUCE: 3 + 1 / size, REDUCE_SCATTER: 2.0, ALL_GATHER: 1 + 1 / size}.get(load.operation, 2.0)
    return passes * load.message_bytes / (gb_per_s * 1e3)


def saved_us(load: Load, codec: WireFormat, gb_per_s: float) -> float:
    """Return the microseconds per step that a codec saves at most."""
    shorter = load.transfer_us * (1 - ratio(codec, load.dtype))
    cost = codec_us(load, gb_per_s) if codec.has_cost else 0.0
    return max(0.0, min(load.exposed_us, shorter) - cost)


def break_even_gbit(load: Load, codec: WireFormat, gb_per_s: float) -> float | None:
    """Return the bandwidth per rank in Gbit/s at which the codec takes as long as it saves; None if it never pays."""
    fewer = load.wire_bytes * (1 - ratio(codec, load.dtype))
    cost = codec_us(load, gb_per_s)
    return 8e-3 * fewer / cost if fewer > 0 and cost > 0 else None


def gain_at(loads: Sequence[Load], step_us: float, codec: WireFormat, gb_per_s: float, gbit: float) -> float:
    """Return the gain of a codec if the links had another bandwidth.

    Parameters
    ----------
    loads
        Traffic of a dimension, whose transfers take the time of their bytes at that bandwidth. What computation covers
        of them now, it covers up to the same time.
    step_us
        Time of a step as it was traced.
    gbit
        Gbit/s of a rank.
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
