"""Sampler that copies messages of a rank's channels in some steps, before any codec.

A run that samples no messages has no sampler. A sample contains the values in the dtype in which they are sent: the
input of a codec, without the residuals of error feedback.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpcbench.comm.places import Place
from hpcbench.comm.rounding import narrow
from hpcbench.contract.message_samples import MessagePart, SampledMessage

MessageTensors = Callable[[], Sequence[MessagePart]] | Sequence[int] | None
"""The tensors in a message: a function that lists them, or the shape of the only one. A first dim of -1 stands for the
length that fits the message."""


class MessageSampler:
    """Samples of one rank's messages, over some steps.

    Parameters
    ----------
    each
        Messages per channel and step: spread evenly over the channel's messages of the previous step, or the first ones
        if there was none.
    message_bytes
        Largest number of bytes of a sample: the first values of its message.
    step_bytes
        Largest number of bytes of all samples of a step.

    Attributes
    ----------
    left_out : int
        Messages of the step that were chosen and exceeded `step_bytes`.
    """

    def __init__(self, each: int, message_bytes: int, step_bytes: int) -> None:
        self._each, self._message_bytes, self._step_bytes = each, message_bytes, step_bytes
        self._channels: list[ChannelSampler] = []
        self._samples: list[SampledMessage] = []
        self._bytes_left = 0
        self.left_out = 0

    def begin(self, *, sampled: bool) -> None:
        """Begin a step: count its messages, and sample some of them if `sampled`."""
        self._samples, self._bytes_left, self.left_out = [], self._step_bytes, 0
        for channel in self._channels:
            channel.begin(choose_evenly(channel.seen, self._each) if sampled else frozenset())

    def end(self) -> tuple[SampledMessage, ...]:
        """End a step and return its samples. Messages until the next step are not counted."""
        samples, self._samples = tuple(self._samples), []
        for channel in self._channels:
            channel.end()
        return samples

    def add_channel(self, channel: str) -> "ChannelSampler":
        """Make the sampler of a channel, given by name.

        A channel that is made within a step is sampled from the next step on.
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
        """Sample a message whose values are these vectors, concatenated."""
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
        Messages of the last step.
    """

    def __init__(self, sampler: MessageSampler, channel: str) -> None:
        self._sampler, self._channel = sampler, channel
        self._chosen: frozenset[int] = frozenset()
        self._is_counting, self._number = False, 0
        self.seen = 0

    def begin(self, chosen: frozenset[int]) -> None:
        """Begin a step: count its messages and sample those with the chosen numbers."""
        self._chosen, self._is_counting, self._number = chosen, True, 0

    def end(self) -> None:
        """End a step."""
        self.seen, self._is_counting = self._number, False

    def count(self, operation: str, place: Place, values: Sequence[Any], dtype: Any, tensors: MessageTensors) -> None:
        """Count a message that is about to be sent, and sample it if it was chosen.

        Parameters
        ----------
        operation
            Name of the operation that sends it.
        place
            Memory of the values.
        values
            Its vectors, to be concatenated.
        dtype
            Type in which they are sent.
        tensors
            The tensors in the message; None if unknown.
        """
        if not self._is_counting:
            return
        number, self._number = self._number, self._number + 1
        if number in self._chosen:
            self._sampler.sample(self._channel, operation, number, place, values, dtype, tensors)


def choose_evenly(count: int, each: int) -> frozenset[int]:
    """Choose `each` of `count` messages, including the first and the last; the first ones if count is 0."""
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
