"""A channel: one kind of traffic, with its codec and counters."""

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
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase, Traffic
from hpcbench.contract.treatment import Treatment


@dataclass
class Counters(MessageCounts):
    """Counters of the messages that one rank sends through a channel."""

    calls: int = 0
    plain_calls: int = 0
    """Calls that did not use the codec.

    Possible reasons: the MPI library was faster, the message was smaller than `min_bytes`, or the message stayed within
    a node and the channel encodes only traffic between nodes.
    """
    transfer_s: float = 0.0
    """Duration of the calls in seconds, without codec time."""
    exposed_s: float = 0.0
    """Exposed communication: seconds that the caller spent waiting for the calls."""
    hidden_s: float = 0.0
    """Hidden communication: seconds that the calls spent moving data while the caller did other work."""
    algorithms: dict[str, int] = field(default_factory=dict)
    """Number of calls per algorithm."""
    error_square: float = 0.0
    """Sum of squared errors of the sampled values."""
    sampled_square: float = 0.0
    """Sum of squares of the sampled values."""


@dataclass
class Channel:
    """The channel of one dimension, phase, kind, and tensor-grid axis."""

    dimension: Dimension
    phase: Phase
    kind: MessageKind
    codec: Codec
    algorithm: Algorithm
    feedback: bool = False
    """Whether error feedback is used. If so, reductions of the same vector share residuals."""
    slices: int | None = None
    """Number of slices of every plan. If None, the planner chooses."""
    dtype: np.dtype[Any] | None = None
    """Dtype that values are rounded to before encoding. If None, the dtype is unchanged."""
    min_bytes: int = 0
    """Minimum size in bytes of encoded messages. For a collective, the size of the whole vector counts."""
    between_nodes: bool = False
    """Encode only traffic between nodes. Messages and sums within a node are not encoded."""
    low_rank: int = 0
    """Rank of the low-rank approximation of gradients, or 0 to send gradients without approximation."""
    feedback_average: float = 0.0
    """Weight of the previous residual in the moving average of errors, or 0 for plain feedback."""
    feedback_reset: int = 0
    """Number of updates after which residuals are set to zero, or 0 for never."""
    sample_changes: int = 0
    """Number of samples whose activations both stages keep, or 0 to send activations instead of changes."""
    mixed_bits: float = 0.0
    """Budget of mixed widths in bits per value, or 0 if widths are not mixed."""
    differences: bool = False
    """Whether messages contain the changes of weights since the previous gather instead of the weights."""
    axis: str = ""
    """Axis of a tensor grid, or several axes if a sum spans more than one."""
    counters: Counters = field(default_factory=Counters)
    recorder: ChannelRecorder | None = field(default=None, repr=False, compare=False)
    """Recorder of the channel's calls while a step is traced."""
    sampler: ChannelSampler | None = field(default=None, repr=False, compare=False)
    """Sampler of the channel's messages, if the run samples messages."""
    tensors: MessageTensors = field(default=None, repr=False, compare=False)
    """The tensors in the next message (`describe`), or None if unknown."""

    @property
    def traffic(self) -> Traffic:
        """Dimension, phase, kind and axes as text."""
        traffic = (self.dimension.value, self.phase.value, self.kind.value)
        return (*traffic, self.axis) if self.axis else traffic

    def __post_init__(self) -> None:
        if refusal := self.treatment.refusal:
            raise ValueError(f"channel {self.dimension.value}: {refusal}")

    @property
    def treatment(self) -> Treatment:
        """How the next message is treated."""
        return Treatment(
            *(self.codec.name, self.algorithm, self.feedback, self.min_bytes, self.between_nodes, self.low_rank),
            *(self.feedback_average, self.feedback_reset, self.differences),
            mixed_bits=self.mixed_bits,
            sample_changes=self.sample_changes,
        )

    def plain_because(self, nbytes: int, *, one_node: bool) -> str | None:
        """Return why a message is not encoded, or None if it is encoded."""
        return self.treatment.plain_because(nbytes, one_node=one_node)

    def describe(self, tensors: MessageTensors) -> "Channel":
        """Return a channel for a message that contains these tensors.

        The returned channel shares counters, recorder and sampler with this channel. Only the sampler uses the
        description. Without a sampler, this channel itself is returned.
        """
        return self if self.sampler is None else replace(self, tensors=tensors)

    def sample(self, operation: str, place: Place, values: Sequence[Any]) -> None:
        """Pass a message to the sampler, if any, immediately before sending."""
        if self.sampler is not None:
            self.sampler.count(operation, place, values, self.travels_as(values[0].dtype), self.tensors)

    def rounds(self, dtype: np.dtype[Any]) -> bool:
        """Return whether values of `dtype` are sent in a different dtype."""
        return self.dtype is not None and self.dtype != dtype

    def travels_as(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype in which values of `dtype` are sent."""
        return dtype if self.dtype is None else self.dtype


def resolve_channel(
    scheme: Scheme, traffic: Traffic, dtype: np.dtype[Any] | None, *, step: int | None = None
) -> Channel:
    """Create a channel for one kind of traffic of a scheme.

    Parameters
    ----------
    dtype
        Dtype that values are rounded to before encoding. If None, the dtype is unchanged.
    step
        Number of the step, from 1. None stands for a step after the scheme's last change.
    """
    treatment = scheme.treatment(traffic, half=dtype is not None and is_half(dtype), step=step)
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
        low_rank=treatment.low_rank,
        feedback_average=treatment.feedback_average,
        feedback_reset=treatment.feedback_reset,
        sample_changes=treatment.sample_changes,
        mixed_bits=treatment.mixed_bits,
        differences=treatment.differences,
        axis="".join(axis),
    )


def change_treatment(channel: Channel, treatment: Treatment) -> None:
    """Change how later messages of a channel are treated. Counters, recorder and sampler are kept."""
    channel.codec, channel.algorithm = get_codec(treatment.codec), treatment.algorithm
    channel.feedback, channel.low_rank = treatment.feedback, treatment.low_rank
    channel.feedback_average, channel.feedback_reset = treatment.feedback_average, treatment.feedback_reset
    channel.sample_changes = treatment.sample_changes
    channel.min_bytes, channel.between_nodes = treatment.min_bytes, treatment.between_nodes
    channel.mixed_bits = treatment.mixed_bits
    channel.differences = treatment.differences
