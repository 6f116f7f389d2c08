"""A channel: one kind of traffic with its codec and its counters."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.comm.keeper import ChannelKeeper, MadeOf
from hpcbench.comm.places import Place
from hpcbench.comm.recorder import ChannelRecorder
from hpcbench.comm.rounding import is_half
from hpcbench.contract.traffic import Algorithm, Dimension, Kind, Phase, Traffic


@dataclass
class Counters:
    """Counts of what one rank sent through a channel."""

    calls: int = 0
    plain_calls: int = 0
    """Calls without the codec.

    The MPI library was faster, the message was smaller than `min_bytes`, or it stayed within a node where only
    traffic between nodes is encoded.
    """
    message_bytes: int = 0
    """Bytes before the codec."""
    wire_bytes: int = 0
    coded_bytes: int = 0
    """Message bytes that went through the codec."""
    """Bytes after the codec."""
    network_bytes: int = 0
    """Wire bytes that left the node. The MPI library's own collectives do not report them."""
    encode_s: float = 0.0
    decode_s: float = 0.0
    transfer_s: float = 0.0
    """Seconds from the begin to the end of the calls, less the seconds of the codec."""
    exposed_s: float = 0.0
    """Seconds in which the caller waited for the calls."""
    hidden_s: float = 0.0
    """Seconds in which the calls moved data while the caller did other work."""
    algorithms: dict[str, int] = field(default_factory=dict)
    """Calls by the algorithm that carried them out."""
    error_square: float = 0.0
    """Sum of the squared errors of the sampled values."""
    sampled_square: float = 0.0
    """Sum of the squares of the sampled values."""
    lost_overflows: int = 0
    """Messages with NaN or infinite values, encoded by a codec that hides them from the receiver."""


@dataclass
class Channel:
    """The channel of one dimension, phase and kind, and of one axis of a tensor grid."""

    dimension: Dimension
    phase: Phase
    kind: Kind
    codec: Codec
    algorithm: Algorithm
    feedback: bool = False
    """Whether the error of a message is added to later messages. Reductions of the same vector then share residuals.

    It is false where a message has no error: with a lossless codec, unless values are rounded to 16 bits before it.
    """
    slices: int | None = None
    """Number of slices of every plan; None leaves it to the plan."""
    dtype: np.dtype[Any] | None = None
    """Type that values are rounded to before they are encoded; None keeps their type."""
    min_bytes: int = 0
    """Smaller messages are not encoded. A collective counts by its whole vector, the same number on all ranks."""
    between_nodes: bool = False
    """Encode only traffic between nodes. Messages and sums within a node are not encoded."""
    axis: str = ""
    """Axes of a tensor grid; several if a sum goes over more than one."""
    counters: Counters = field(default_factory=Counters)
    recorder: ChannelRecorder | None = field(default=None, repr=False, compare=False)
    """Writes down its calls, while a step is traced."""
    keeper: ChannelKeeper | None = field(default=None, repr=False, compare=False)
    """Keeps some of its messages, where the run is asked to."""

    @property
    def traffic(self) -> Traffic:
        """Dimension, phase, kind and axes in words."""
        words = (self.dimension.value, self.phase.value, self.kind.value)
        return (*words, self.axis) if self.axis else words

    def __post_init__(self) -> None:
        who = f"channel {self.dimension.value}"
        rounds = self.dtype is not None and is_half(self.dtype)
        self.feedback = self.feedback and (rounds or not self.codec.lossless)
        if self.algorithm is Algorithm.NATIVE and self.codec.name != "none":
            raise ValueError(
                f"{who}: the MPI library's own collectives cannot carry codec {self.codec.name}: use algorithm encoded"
            )
        if self.algorithm is Algorithm.HOMOMORPHIC and not self.codec.name.startswith("int8:"):
            raise ValueError(f"{who}: homomorphic sums are of 8-bit integers: use codec int8, not {self.codec.name}")
        if self.between_nodes and self.algorithm not in (Algorithm.AUTO, Algorithm.HIERARCHICAL):
            raise ValueError(f"{who}: encoded between nodes only: use hierarchical or auto, not {self.algorithm.value}")

    def plain_because(self, nbytes: int, *, one_node: bool) -> str | None:
        """Why a message is not encoded; None if it is.

        All ranks that take part know the bytes before the codec and the nodes, so that they get the same answer.
        """
        if self.codec.name == "none":
            return None
        if nbytes < self.min_bytes:
            return f"{nbytes} bytes, less than min_bytes {self.min_bytes}"
        return "between nodes only, and here is one" if self.between_nodes and one_node else None

    def keep(self, operation: str, place: Place, values: Sequence[Any], made_of: MadeOf) -> None:
        """Show a message that is about to be sent to the keeper, if there is one."""
        if self.keeper is not None:
            self.keeper.message(operation, place, values, self.travels_as(values[0].dtype), made_of)

    def rounds(self, dtype: np.dtype[Any]) -> bool:
        """Whether values of `dtype` travel in another type."""
        return self.dtype is not None and self.dtype != dtype

    def travels_as(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The type in which values of `dtype` travel."""
        return dtype if self.dtype is None else self.dtype
