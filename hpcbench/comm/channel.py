"""A channel: one kind of traffic, its codec, and what went through it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.comm.recorder import ChannelRecorder
from hpcbench.contract.traffic import Algorithm, Dimension, Kind, Phase, Traffic


@dataclass
class Counters:
    """What one rank sent through a channel."""

    calls: int = 0
    plain_calls: int = 0
    """Calls without the codec: left to the MPI library because it would have lost time, below `min_bytes`, or within a
    node where only what crosses nodes is encoded."""
    message_bytes: int = 0
    """Bytes before the codec."""
    wire_bytes: int = 0
    coded_bytes: int = 0
    """Message bytes that went through the codec."""
    """Bytes after the codec."""
    network_bytes: int = 0
    """Wire bytes that left the node. The MPI library's own collectives do not say."""
    encode_s: float = 0.0
    decode_s: float = 0.0
    transfer_s: float = 0.0
    """The rest of the time from begin to end of the calls."""
    exposed_s: float = 0.0
    """Time that the caller waited for the calls."""
    hidden_s: float = 0.0
    """Time in which the calls moved while the caller did something else."""
    algorithms: dict[str, int] = field(default_factory=dict)
    """Calls by what carried them out."""
    error_square: float = 0.0
    """Of sampled values: the sum of squares of what decoding differs by."""
    sampled_square: float = 0.0
    """The sum of squares of the sampled values."""
    lost_overflows: int = 0
    """Messages with values that were not finite, by a codec that does not tell the receiver."""


@dataclass
class Channel:
    """Traffic of one dimension, phase and kind, on a tensor grid over one axis."""

    dimension: Dimension
    phase: Phase
    kind: Kind
    codec: Codec
    algorithm: Algorithm
    feedback: bool = False
    """What messages lack is added to later ones: a reduction of the same vector keeps its residuals."""
    slices: int | None = None
    """Of every plan; None leaves the number to the plan."""
    dtype: np.dtype[Any] | None = None
    """What values are rounded to before the codec has them; None leaves them as they are."""
    min_bytes: int = 0
    """Smaller messages travel as they are; a collective's is its whole vector, the same number on all ranks."""
    between_nodes: bool = False
    """Encode only what crosses nodes: messages within one, and sums within one, go as they are."""
    axis: str = ""
    """Of a tensor grid; several where a sum goes over more than one."""
    counters: Counters = field(default_factory=Counters)
    recorder: ChannelRecorder | None = field(default=None, repr=False, compare=False)
    """Writes down its calls, while a step is traced."""

    @property
    def traffic(self) -> Traffic:
        """Its words."""
        words = (self.dimension.value, self.phase.value, self.kind.value)
        return (*words, self.axis) if self.axis else words

    def __post_init__(self) -> None:
        who = f"channel {self.dimension.value}"
        if self.algorithm is Algorithm.NATIVE and self.codec.name != "none":
            raise ValueError(
                f"{who}: the MPI library's own collectives cannot carry codec {self.codec.name}: use algorithm encoded"
            )
        if self.algorithm is Algorithm.HOMOMORPHIC and not self.codec.name.startswith("int8:"):
            raise ValueError(f"{who}: homomorphic sums are of 8-bit integers: use codec int8, not {self.codec.name}")
        if self.between_nodes and self.algorithm not in (Algorithm.AUTO, Algorithm.HIERARCHICAL):
            raise ValueError(f"{who}: encoded between nodes only: use hierarchical or auto, not {self.algorithm.value}")

    def plain_because(self, nbytes: int, *, one_node: bool) -> str | None:
        """Why a message of so many bytes before the codec goes without it; None where it does not.

        Whoever takes part knows the bytes and the nodes, so that all come to the same answer.
        """
        if self.codec.name == "none":
            return None
        if nbytes < self.min_bytes:
            return f"{nbytes} bytes, less than min_bytes {self.min_bytes}"
        return "between nodes only, and here is one" if self.between_nodes and one_node else None

    def rounds(self, dtype: np.dtype[Any]) -> bool:
        """Whether values of `dtype` travel in another type."""
        return self.dtype is not None and self.dtype != dtype

    def travels_as(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The type in which values of `dtype` travel."""
        return dtype if self.dtype is None else self.dtype
