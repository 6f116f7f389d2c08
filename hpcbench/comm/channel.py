"""A channel: one kind of traffic with its codec and its counters."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hpcbench.codecs.base import Codec
from hpcbench.codecs.registry import get_codec
from hpcbench.comm.counts import MessageCounts
from hpcbench.comm.message_sampler import ChannelSampler, MessageTensors
from hpcbench.comm.places import Place
from hpcbench.comm.recorder import ChannelRecorder
from hpcbench.comm.rounding import is_half
from hpcbench.contract.scheme import Scheme, Treatment
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase, Traffic


@dataclass
class Counters(MessageCounts):
    """Counts of what one rank sent through a channel."""

    calls: int = 0
    plain_calls: int = 0
    """Calls without the codec.

    The MPI library was faster, the message was smaller than `min_bytes`, or it stayed within a node where only
    traffic between nodes is encoded.
    """
    transfer_s: float = 0.0
    """Seconds from the start to the end of the calls, less the seconds of the codec."""
    exposed_s: float = 0.0
    """Seconds in which the caller waited for the calls."""
    hidden_s: float = 0.0
    """Seconds in which the calls moved data while the caller did other work."""
    algorithms: dict[str, int] = field(default_factory=dict)
    """Number of calls for each algorithm that carried them out."""
    error_square: float = 0.0
    """Sum of the squared errors of the sampled values."""
    sampled_square: float = 0.0
    """Sum of the squares of the sampled values."""


@dataclass
class Channel:
    """The channel of one dimension, phase and kind, and of one axis of a tensor grid."""

    dimension: Dimension
    phase: Phase
    kind: MessageKind
    codec: Codec
    algorithm: Algorithm
    feedback: bool = False
    """Whether the error of a message is added to later messages. Reductions of the same vector then share residuals."""
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
    """Recorder of its calls while a step is traced."""
    sampler: ChannelSampler | None = field(default=None, repr=False, compare=False)
    """Sampler of its messages, if the run samples messages."""
    tensors: MessageTensors = field(default=None, repr=False, compare=False)
    """The tensors in the next message (`describe`); None if unknown."""

    @property
    def traffic(self) -> Traffic:
        """Dimension, phase, kind and axes in words."""
        traffic = (self.dimension.value, self.phase.value, self.kind.value)
        return (*traffic, self.axis) if self.axis else traffic

    def __post_init__(self) -> None:
        if refusal := self._treatment.refusal:
            raise ValueError(f"channel {self.dimension.value}: {refusal}")

    @property
    def _treatment(self) -> Treatment:
        return Treatment(self.codec.name, self.algorithm, self.feedback, self.min_bytes, self.between_nodes)

    def plain_because(self, nbytes: int, *, one_node: bool) -> str | None:
        """Return the reason why a message is not encoded; None if it is encoded."""
        return self._treatment.plain_because(nbytes, one_node=one_node)

    def describe(self, tensors: MessageTensors) -> "Channel":
        """Return the channel to send a message on that contains these tensors.

        It shares counters, recorder and sampler with this channel. Only the sampler reads the description, so without
        one it is this channel.
        """
        return self if self.sampler is None else replace(self, tensors=tensors)

    def sample(self, operation: str, place: Place, values: Sequence[Any]) -> None:
        """Offer a message that is about to be sent to the sampler, if there is one."""
        if self.sampler is not None:
            self.sampler.count(operation, place, values, self.travels_as(values[0].dtype), self.tensors)

    def rounds(self, dtype: np.dtype[Any]) -> bool:
        """Return whether values of `dtype` are sent in a different type."""
        return self.dtype is not None and self.dtype != dtype

    def travels_as(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype in which values of `dtype` are sent."""
        return dtype if self.dtype is None else self.dtype


def resolve_channel(scheme: Scheme, traffic: Traffic, dtype: np.dtype[Any] | None) -> Channel:
    """Return a new channel for a scheme's messages of one kind of traffic.

    Parameters
    ----------
    dtype
        Type that values are rounded to before they are encoded; None keeps their type.
    """
    treatment = scheme.treatment(traffic, half=dtype is not None and is_half(dtype))
    dimension, phase, kind, *axis = traffic
    return Channel(
        Dimension(dimension),
        Phase(phase),
        MessageKind(kind),
        get_codec(treatment.codec),
        treatment.algorithm,
        treatment.feedback,
        dtype=dtype,
        min_bytes=treatment.min_bytes,
        between_nodes=treatment.between_nodes,
        axis="".join(axis),
    )
