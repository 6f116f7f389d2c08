"""Sampler that copies messages of a rank's channels in some steps, before any codec.

A run that samples no messages has no sampler. A sample contains the values in the dtype in which they travel: the input
of a codec, without the residuals of error feedback.
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


class Keeper:
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
        self._channels: list[ChannelKeeper] = []
        self._kept: list[SampledMessage] = []
        self._room = 0
        self.left_out = 0

    def begin(self, *, keeps: bool) -> None:
        """Begin a step: count its messages, and sample some of them if `keeps`."""
        self._kept, self._room, self.left_out = [], self._step_bytes, 0
        for channel in self._channels:
            channel.begin(spread(channel.seen, self._each) if keeps else frozenset())

    def end(self) -> tuple[SampledMessage, ...]:
        """End a step and return its samples. Messages until the next step are not counted."""
        samples, self._kept = tuple(self._kept), []
        for channel in self._channels:
            channel.end()
        return samples

    def of(self, channel: str) -> "ChannelKeeper":
        """Make the sampler of a channel, given by name.

        A channel that is made within a step is sampled from the next step on.
        """
        sampler = ChannelKeeper(self, channel)
        self._channels.append(sampler)
        return sampler

    def add(
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
        held = min(size, self._message_bytes // width)
        if held * width > self._room:
            self.left_out += 1
            return
        self._room -= held * width
        copy, filled = np.empty(held, dtype), 0
        for vector in values:
            taken = vector.reshape(-1)[: held - filled]
            if taken.size:
                narrow(place.sample(taken), copy[filled : filled + taken.size])
            filled += taken.size
        parts = _list_parts(tensors, size)
        message = SampledMessage(channel, operation, number, copy.dtype.name, size, parts, copy.tobytes())
        self._kept.append(message)


class ChannelKeeper:
    """The sampler of one channel.

    Attributes
    ----------
    seen : int
        Messages of the last step.
    """

    def __init__(self, keeper: Keeper, channel: str) -> None:
        self._keeper, self._channel = keeper, channel
        self._chosen: frozenset[int] = frozenset()
        self._counts, self._number = False, 0
        self.seen = 0

    def begin(self, chosen: frozenset[int]) -> None:
        """Begin a step: count its messages and sample those with the chosen numbers."""
        self._chosen, self._counts, self._number = chosen, True, 0

    def end(self) -> None:
        """End a step."""
        self.seen, self._counts = self._number, False

    def message(self, operation: str, place: Place, values: Sequence[Any], dtype: Any, tensors: MessageTensors) -> None:
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
            Type in which they travel.
        tensors
            The tensors in the message; None if unknown.
        """
        if not self._counts:
            return
        number, self._number = self._number, self._number + 1
        if number in self._chosen:
            self._keeper.add(self._channel, operation, number, place, values, dtype, tensors)


def spread(count: int, each: int) -> frozenset[int]:
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
