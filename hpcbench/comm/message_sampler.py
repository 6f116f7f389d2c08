"""Sampler that copies a rank's messages in some steps, before encoding.

Runs without message sampling have no sampler. A sample contains the values in the dtype in which they are sent. These
values are the codec's input before the residuals of error feedback are added.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpcbench.comm.places import Place
from hpcbench.comm.rounding import narrow
from hpcbench.contract.message_samples import MessagePart, SampledMessage

MessageTensors = Callable[[], Sequence[MessagePart]] | Sequence[int] | None
"""Description of the tensors in a message: a function that lists the tensors, or the shape of a single tensor.

If the first dimension is -1, it is inferred from the message size.
"""


class MessageSampler:
    """Message samples of one rank over several steps.

    Parameters
    ----------
    each
        Number of samples per channel and step. Samples are spaced evenly, assuming that the channel sends the same
        number of messages as in the previous step. In the first step, the first messages are sampled.
    message_bytes
        Maximum sample size in bytes. Longer messages are truncated.
    step_bytes
        Maximum total sample size per step in bytes.

    Attributes
    ----------
    left_out : int
        Number of selected messages of the step that were not sampled because they exceeded `step_bytes`.
    """

    def __init__(self, each: int, message_bytes: int, step_bytes: int) -> None:
        self._each, self._message_bytes, self._step_bytes = each, message_bytes, step_bytes
        self._channels: list[ChannelSampler] = []
        self._samples: list[SampledMessage] = []
        self._bytes_left = 0
        self.left_out = 0

    def begin(self, *, sampled: bool) -> None:
        """Begin a step. Count the messages of the step, and sample some of them if `sampled` is True."""
        self._samples, self._bytes_left, self.left_out = [], self._step_bytes, 0
        for channel in self._channels:
            channel.begin(choose_evenly(channel.seen, self._each) if sampled else frozenset())

    def end(self) -> tuple[SampledMessage, ...]:
        """End a step and return its samples. Messages between steps are not counted."""
        samples, self._samples = tuple(self._samples), []
        for channel in self._channels:
            channel.end()
        return samples

    def add_channel(self, channel: str) -> "ChannelSampler":
        """Create the sampler of a channel.

        If a channel is created within a step, sampling starts with the next step.
        """
        sampler = ChannelSampler(self, channel)
        self._channels.append(sampler)
        return sampler

    def sample(
        self,
        channel: str,
        operation: str,
        number: int,
        place: Place,
        values: Sequence[Any],
        dtype: Any,
        tensors: MessageTensors,
    ) -> None:
        """Sample a message whose values are the concatenation of these vectors."""
        size, width = sum(vector.size for vector in values), np.dtype(dtype).itemsize
        count = min(size, self._message_bytes // width)
        if count * width > self._bytes_left:
            self.left_out += 1
            return
        self._bytes_left -= count * width
        copy, filled = np.empty(count, dtype), 0
        for vector in values:
            taken = vector.reshape(-1)[: count - filled]
            if taken.size:
                narrow(place.sample(taken), copy[filled : filled + taken.size])
            filled += taken.size
        parts = _list_parts(tensors, size)
        message = SampledMessage(channel, operation, number, copy.dtype.name, size, parts, copy.tobytes())
        self._samples.append(message)


class ChannelSampler:
    """The sampler of one channel.

    Attributes
    ----------
    seen : int
        Number of messages in the last step.
    """

    def __init__(self, sampler: MessageSampler, channel: str) -> None:
        self._sampler, self._channel = sampler, channel
        self._chosen: frozenset[int] = frozenset()
        self._is_counting, self._number = False, 0
        self.seen = 0

    def begin(self, chosen: frozenset[int]) -> None:
        """Begin a step. All messages of the step are counted, and those with the chosen indices are sampled."""
        self._chosen, self._is_counting, self._number = chosen, True, 0

    def end(self) -> None:
        """End a step."""
        self.seen, self._is_counting = self._number, False

    def count(self, operation: str, place: Place, values: Sequence[Any], dtype: Any, tensors: MessageTensors) -> None:
        """Count a message that is about to be sent. Sample the message if it was chosen.

        Parameters
        ----------
        operation
            Name of the operation that sends the message.
        place
            Memory of the values.
        values
            Vectors of the message, to be concatenated.
        dtype
            Dtype in which the vectors are sent.
        tensors
            The tensors in the message, or None if unknown.
        """
        if not self._is_counting:
            return
        number, self._number = self._number, self._number + 1
        if number in self._chosen:
            self._sampler.sample(self._channel, operation, number, place, values, dtype, tensors)


def choose_evenly(count: int, each: int) -> frozenset[int]:
    """Choose `each` messages out of `count`, including the first and the last.

    If count is 0, choose the first `each` messages.
    """
    if count <= each:
        return frozenset(range(each))
    if each == 1:
        return frozenset((count // 2,))
    return frozenset(round(k * (count - 1) / (each - 1)) for k in range(each))


def _list_parts(tensors: MessageTensors, size: int) -> tuple[MessagePart, ...]:
    if tensors is None:
        return ()
    if callable(tensors):
        return tuple(tensors())
    first, *inner = map(int, tensors)
    row = math.prod(inner)
    return (MessagePart("", (size // row if first == -1 and row else first, *inner), 0),)
