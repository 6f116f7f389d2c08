"""Messages of plans, carried by a gloo group of PyTorch, and the loop that drives slices over it.

gloo moves messages in its own threads, and reports the end of a message only to a thread that waits for it. So the
order of the waits is fixed in advance: before a stage of one slice, stages of the next slices have begun.
"""

import math
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Protocol

import numpy as np
import torch

from hpcbench.codecs.types import Array
from hpcbench.comm.execute import STAGES
from hpcbench.comm.memory import Slice

_LENGTH = np.dtype("<u8")
_LOOK_S = 5e-5
LAG = 2
"""Number of slices that begin between two stages of one: their messages are on the way while it is decoded."""


class Waited(Protocol):
    """Handle of a message under way, as PyTorch returns it."""

    def wait(self) -> Any:
        """Return when the message has come or gone; raise if it never will."""


class PointToPoint(Protocol):
    """The part of a process group that carries messages."""

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int, /) -> Waited:
        """Begin to send a tensor."""

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int, /) -> Waited:
        """Begin to receive a tensor."""


def with_length(content: Array) -> Array:
    """Return a message that begins with its length in bytes, because gloo does not report the bytes received."""
    message = np.empty(_LENGTH.itemsize + content.size, dtype=np.uint8)
    message[: _LENGTH.itemsize] = np.array([content.size], _LENGTH).view(np.uint8)
    message[_LENGTH.itemsize :] = content
    return message


def room_for(nbytes: int) -> Array:
    """Return room for a message of at most `nbytes` bytes after its length."""
    return np.zeros(_LENGTH.itemsize + nbytes, dtype=np.uint8)


def behind_length(message: Array) -> Array:
    """Return the bytes of a received message.

    Raises
    ------
    ValueError
        The length is longer than the message can be.
    """
    length = int(message[: _LENGTH.itemsize].view(_LENGTH)[0])
    content = message[_LENGTH.itemsize :]
    if length > content.size:
        raise ValueError(f"a message declares {length} bytes, but can contain at most {content.size}")
    return content[:length]


class _Sent:
    def __init__(self, work: Waited, content: Array, tag: int) -> None:
        self._work, self._content = work, content  # the memory stays until it has left
        self.stage = tag % STAGES

    def wait(self) -> int:
        self._work.wait()
        return int(self._content.size)


class _Received:
    def __init__(self, work: Waited, inbox: Array, message: Array | None, tag: int) -> None:
        self._work, self._inbox, self._message = work, inbox, message
        self.stage = tag % STAGES

    def wait(self) -> int:
        self._work.wait()
        if self._message is None:
            return int(self._inbox.size)
        content = behind_length(self._message)
        self._inbox[: content.size] = content
        return int(content.size)


class GlooCarrier:
    """The messages of one group.

    Parameters
    ----------
    group
        A group that carries nothing else.
    rank, size
        Number of this rank in the group, and number of ranks.
    """

    def __init__(self, group: PointToPoint, rank: int, size: int) -> None:
        self._group = group
        self.rank, self.size = rank, size

    def send(self, content: Array, peer: int, tag: int, *, varies: bool) -> _Sent:
        """Begin to send bytes, behind their number if that varies."""
        message = with_length(content) if varies else content
        return _Sent(self._group.send([torch.from_numpy(message)], peer, tag), message, tag)

    def receive(self, inbox: Array, peer: int, tag: int, *, varies: bool) -> _Received:
        """Begin to receive bytes."""
        message = room_for(inbox.size) if varies else None
        into = inbox if message is None else message
        return _Received(self._group.recv([torch.from_numpy(into)], peer, tag), inbox, message, tag)

    def count(self, status: int) -> int:
        """Return the number of bytes of a received message."""
        return status


@dataclass(order=True)
class _UnderWay:
    """A slice that waits."""

    turn: int
    number: int
    slice: Slice = field(compare=False)
    awaited: Any = field(compare=False)
    stage: int = field(compare=False, default=0)

    def wait(self) -> list[Any]:
        """Return the statuses of requests once they are done; an empty list for work of a device."""
        if isinstance(self.awaited, list):
            return [request.wait() for request in self.awaited]
        while not self.awaited.done():
            time.sleep(_LOOK_S)
        return []

    def await_next(self, awaited: Any) -> "_UnderWay":
        """Return the slice with its next wait. Stages never decrease, though their tags wrap around."""
        stages = [request.stage for request in awaited] if isinstance(awaited, list) else []
        stage = max(stages, default=self.stage % STAGES) + self.stage // STAGES * STAGES
        stage += STAGES if stage < self.stage else 0
        return _UnderWay(self.number + (stage + 1) * LAG, self.number, self.slice, awaited, stage)


def drive(slices: Iterable[Slice]) -> None:
    """Carry out slices to their end.

    All ranks wait in one order. Slice k begins in turn k. The messages of its stage s are waited for in turn
    k + (s + 1) LAG, the older slice first. A message of stage s leaves once stage s - 1 is over. So the message that
    the rank furthest behind waits for has been sent, or will be sent without its help, and no deadlock occurs.
    """
    under_way: list[_UnderWay] = []

    def advance(until: float) -> None:
        while under_way and under_way[0].turn <= until:
            oldest = heappop(under_way)
            with suppress(StopIteration):
                heappush(under_way, oldest.await_next(oldest.slice.send(oldest.wait())))

    for number, coming in enumerate(slices):
        advance(number)
        with suppress(StopIteration):
            heappush(under_way, _UnderWay(number, number, coming, None).await_next(next(coming)))
    advance(math.inf)
