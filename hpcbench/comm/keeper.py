"""Keeps copies of what a rank gives to its channels in some steps, before any codec.

Where nothing is kept there is no keeper: an operation asks for None and goes on. What is kept are the values in the
type in which they travel, so what a codec would be given; residuals of error feedback are not in them.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpcbench.comm.places import Place
from hpcbench.comm.rounding import narrow
from hpcbench.contract.message_samples import MessagePart, SampledMessage

MadeOf = Callable[[], Sequence[MessagePart]] | Sequence[int] | None
"""The tensors in a message: a function that lists them, or the shape of the only one. A first dim of -1 is as long as
the message makes it."""


class Keeper:
    """Messages of one rank, over some steps.

    Parameters
    ----------
    each
        Messages of a channel that are kept in a step: spread evenly over those that it had in the step before, or the
        first ones where that is not known.
    message_bytes
        Bytes of a message that are kept at most: its first values.
    step_bytes
        Bytes that are kept in a step at most.

    Attributes
    ----------
    left_out : int
        Messages of the step that were chosen and had no room.
    """

    def __init__(self, each: int, message_bytes: int, step_bytes: int) -> None:
        self._each, self._message_bytes, self._step_bytes = each, message_bytes, step_bytes
        self._channels: list[ChannelKeeper] = []
        self._kept: list[SampledMessage] = []
        self._room = 0
        self.left_out = 0

    def begin(self, *, keeps: bool) -> None:
        """Before a step: its messages are counted, and some of them kept if `keeps`."""
        self._kept, self._room, self.left_out = [], self._step_bytes, 0
        for channel in self._channels:
            channel.begin(spread(channel.seen, self._each) if keeps else frozenset())

    def end(self) -> tuple[SampledMessage, ...]:
        """After a step: what was kept. What follows until the next step is not counted."""
        kept, self._kept = tuple(self._kept), []
        for channel in self._channels:
            channel.end()
        return kept

    def of(self, channel: str) -> "ChannelKeeper":
        """Keeps the messages of a channel, named by its words.

        A channel that is made within a step is kept from the next step on.
        """
        made = ChannelKeeper(self, channel)
        self._channels.append(made)
        return made

    def add(
        self, channel: str, operation: str, number: int, place: Place, values: Sequence[Any], dtype: Any, made: MadeOf
    ) -> None:
        """Keep a message that is made of these vectors, one behind the other."""
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
        parts = _parts(made, size)
        message = SampledMessage(channel, operation, number, copy.dtype.name, size, parts, copy.tobytes())
        self._kept.append(message)


class ChannelKeeper:
    """Keeps messages of one channel.

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
        """Before a step of which some messages are kept."""
        self._chosen, self._counts, self._number = chosen, True, 0

    def end(self) -> None:
        """After a step."""
        self.seen, self._counts = self._number, False

    def message(self, operation: str, place: Place, values: Sequence[Any], dtype: Any, made: MadeOf) -> None:
        """A message is about to be sent.

        Parameters
        ----------
        operation
            What sends it.
        place
            Place of the values.
        values
            Vectors of which it is made.
        dtype
            Type in which they travel.
        made
            The tensors in it, where they are known.
        """
        if not self._counts:
            return
        number, self._number = self._number, self._number + 1
        if number in self._chosen:
            self._keeper.add(self._channel, operation, number, place, values, dtype, made)


def spread(count: int, each: int) -> frozenset[int]:
    """Numbers of `each` of `count` messages, the first and the last among them; the first ones where count is 0."""
    if count <= each:
        return frozenset(range(each))
    if each == 1:
        return frozenset((count // 2,))
    return frozenset(round(k * (count - 1) / (each - 1)) for k in range(each))


def _parts(made: MadeOf, size: int) -> tuple[MessagePart, ...]:
    if made is None:
        return ()
    if callable(made):
        return tuple(made())
    first, *rest = map(int, made)
    row = math.prod(rest)
    return (MessagePart("", (size // row if first == -1 and row else first, *rest), 0),)
