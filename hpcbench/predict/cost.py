"""What a call costs, by where the time goes, and how fast a codec is."""

from collections.abc import Iterable
from dataclasses import dataclass

from hpcbench.predict.basis import InputBasis


@dataclass(frozen=True)
class Cost:
    """Cost of one call, with nothing else on the links."""

    encode: float = 0.0
    decode: float = 0.0
    inside: float = 0.0
    """Latency, and the links within a node."""
    network: float = 0.0
    """The node's network is busy."""
    wire_bytes: float = 0.0
    """That the rank sends."""
    network_bytes: float = 0.0
    """Those of the bytes that leave the node."""

    @property
    def seconds(self) -> float:
        """Seconds of the whole call."""
        return self.encode + self.decode + self.inside + self.network

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.encode + other.encode,
            self.decode + other.decode,
            self.inside + other.inside,
            self.network + other.network,
            self.wire_bytes + other.wire_bytes,
            self.network_bytes + other.network_bytes,
        )

    def __mul__(self, times: float) -> "Cost":
        return Cost(
            self.encode * times,
            self.decode * times,
            self.inside * times,
            self.network * times,
            self.wire_bytes * times,
            self.network_bytes * times,
        )


def sum_costs(costs: Iterable[tuple[Cost, float]]) -> Cost:
    """The sum of costs, each so many times."""
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
    """A codec on one rank."""

    encode_bytes_per_s: float
    decode_bytes_per_s: float
    call_s: float
    ratio: float | None
    """Measured; None takes the codec's own size."""
    basis: InputBasis
