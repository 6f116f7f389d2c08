"""A channel: one kind of traffic, its codec, and what went through it."""

from dataclasses import dataclass, field
from enum import Enum

from hpcbench.codecs.base import Codec


class Dimension(str, Enum):
    """Parallel dimension that a message belongs to; EXACT is for scalars, statistics and flags, never encoded."""

    DP = "DP"
    ZERO = "ZERO"
    TP = "TP"
    SP = "SP"
    CP = "CP"
    PP = "PP"
    EP = "EP"
    EXACT = "EXACT"


class Phase(str, Enum):
    """When in a training step the message is sent."""

    FORWARD = "FORWARD"
    BACKWARD = "BACKWARD"
    STEP = "STEP"


class Kind(str, Enum):
    """What the message holds."""

    GRAD = "GRAD"
    ACT = "ACT"
    PARAM = "PARAM"
    OPTIM = "OPTIM"


class Algorithm(str, Enum):
    """Who moves the bytes of a collective."""

    NATIVE = "native"
    """The MPI library's own collective, no codec."""
    TWO_SHOT = "two-shot"
    """Encoded all-to-all, sum in at least fp32, encoded all-gather."""


@dataclass
class Counters:
    """What one rank sent through a channel."""

    calls: int = 0
    message_bytes: int = 0
    """Bytes before the codec."""
    wire_bytes: int = 0
    """Bytes after the codec."""
    encode_s: float = 0.0
    decode_s: float = 0.0
    transfer_s: float = 0.0

    def sent(self, message: int, wire: int) -> None:
        """Count one call that sent `message` bytes as `wire` bytes."""
        self.calls += 1
        self.message_bytes += message
        self.wire_bytes += wire


@dataclass
class Channel:
    """Traffic of one dimension, phase and kind."""

    dimension: Dimension
    phase: Phase
    kind: Kind
    codec: Codec
    algorithm: Algorithm
    counters: Counters = field(default_factory=Counters)

    def __post_init__(self) -> None:
        if self.algorithm is Algorithm.NATIVE and self.codec.name != "none":
            raise ValueError(
                f"channel {self.dimension.value}: the MPI library's own collectives cannot carry codec "
                f"{self.codec.name}: use algorithm two-shot"
            )
