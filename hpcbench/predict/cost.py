"""Cost of a call by location (codec, node, network), and the speed of a codec."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcbench.predict.basis import InputBasis

if TYPE_CHECKING:
    from typing_extensions import Self


class Additive:
    """Base class of dataclasses that support addition, and multiplication by a number, field by field."""

    def __add__(self, other: "Self") -> "Self":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(here + there for here, there in pairs))

    def __mul__(self, times: float) -> "Self":
        return type(self)(*(value * times for value in vars(self).values()))


@dataclass(frozen=True)
class Cost(Additive):
    """Cost of one call without other traffic on the links. Times are in seconds."""

    encode: float = 0.0
    decode: float = 0.0
    inside: float = 0.0
    """Time spent on latency and on links within a node."""
    network: float = 0.0
    """Time during which the node's network is busy."""
    wire_bytes: float = 0.0
    """Bytes that the rank sends."""
    network_bytes: float = 0.0
    """Part of `wire_bytes` that leaves the node."""

    @property
    def seconds(self) -> float:
        """Total time of the call in seconds."""
        return self.encode + self.decode + self.inside + self.network


def sum_costs(costs: Iterable[tuple[Cost, float]]) -> Cost:
    """Return the sum of costs, each multiplied by its number of repetitions."""
    encode = decode = inside = network = wire = left = 0.0
    for cost, times in costs:
        encode += times * cost.encode
        decode += times * cost.decode
        inside += times * cost.inside
        network += times * cost.network
        wire += times * cost.wire_bytes
        left += times * cost.network_bytes
    return Cost(encode, decode, inside, network, wire, left)


@dataclass(frozen=True)
class CodecSpeed:
    """Speed of a codec on one rank. Bytes are counted before encoding."""

    encode_bytes_per_s: float
    decode_bytes_per_s: float
    call_s: float
    ratio: float | None
    """Measured encoded bytes per byte, or None to compute the ratio from the codec's format."""
    basis: InputBasis
