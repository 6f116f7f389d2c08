"""Messages of plans over a gloo process group, and the loop that drives slices.

gloo moves messages in its own threads, but reports the completion of a message only to a thread that waits for it.
Therefore, the order of waits is fixed in advance. Before each wait for a stage of a slice, stages of the following
slices have already started.
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
"""Number of slices that start between two stages of a slice.

The messages of these slices are in flight while the slice is decoded.
"""


class Waited(Protocol):
    """PyTorch handle of a message in flight."""

    def wait(self) -> Any:
        """Wait until the message has been sent or received. Raise an error if the transfer has failed."""


class PointToPoint(Protocol):
    """Point-to-point interface of a process group."""

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int, /) -> Waited:
        """Start sending a tensor."""

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int, /) -> Waited:
        """Start receiving a tensor."""


def with_length(content: Array) -> Array:
    """Return a message prefixed with its length in bytes, because gloo does not report received sizes."""
    message = np.empty(_LENGTH.itemsize + content.size, dtype=np.uint8)
    message[: _LENGTH.itemsize] = np.array([content.size], _LENGTH).view(np.uint8)
    message[_LENGTH.itemsize :] = content
    return message


def room_for(nbytes: int) -> Array:
    """Allocate a buffer for a length prefix and a message of at most `nbytes` bytes."""
    return np.zeros(_LENGTH.itemsize + nbytes, dtype=np.uint8)


def behind_length(message: Array) -> Array:
    """Return the bytes of a received message without the length prefix.

    Raises
    ------
    ValueError
        The length prefix exceeds the buffer size.
    """
    length = int(message[: _LENGTH.itemsize].view(_LENGTH)[0])
    content = message[_LENGTH.itemsize :]
    if length > content.size:
        raise ValueError(f"a message declares {length} bytes, but can contain at most {content.size}")
    return content[:length]


class _Sent:
    def __init__(self, work: Waited, content: Array, tag: int) -> None:
        self._work, self._content = work, content  # keeps the memory alive until it has been sent
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
    """Messages of one group.

    Parameters
    ----------
    group
        A group that carries no other messages.
    rank, size
        Rank of this process in the group, and number of ranks.
    """

    def __init__(self, group: PointToPoint, rank: int, size: int) -> None:
        self._group = group
        self.rank, self.size = rank, size

    def send(self, content: Array, peer: int, tag: int, *, varies: bool) -> _Sent:
        """Start sending bytes. If the size varies, prefix the message with its size."""
        message = with_length(content) if varies else content
        return _Sent(self._group.send([torch.from_numpy(message)], peer, tag), message, tag)

    def receive(self, inbox: Array, peer: int, tag: int, *, varies: bool) -> _Received:
        """Start receiving bytes."""
        message = room_for(inbox.size) if varies else None
        into = inbox if message is None else message
        return _Received(self._group.recv([torch.from_numpy(into)], peer, tag), inbox, message, tag)

    def count(self, status: int) -> int:
        """Return the byte count of a received message."""
        return status


@dataclass(order=True)
class _UnderWay:
    """A waiting slice."""

    turn: int
    number: int
    slice: Slice = field(compare=False)
    awaited: Any = field(compare=False)
    stage: int = field(compare=False, default=0)

    def wait(self) -> list[Any]:
        """Wait for requests and return their statuses. For device work, return an empty list."""
        if isinstance(self.awaited, list):
            return [request.wait() for request in self.awaited]
        while not self.awaited.done():
            time.sleep(_LOOK_S)
        return []

    def await_next(self, awaited: Any) -> "_UnderWay":
        """Return the slice with the next requests to wait for.

        Stage numbers never decrease, although tags wrap around.
        """
        stages = [request.stage for request in awaited] if isinstance(awaited, list) else []
        stage = max(stages, default=self.stage % STAGES) + self.stage // STAGES * STAGES
        stage += STAGES if stage < self.stage else 0
        return _UnderWay(self.number + (stage + 1) * LAG, self.number, self.slice, awaited, stage)


def drive(slices: Iterable[Slice]) -> None:
    """Run slices to completion.

    All ranks wait in the same order. Slice k starts in turn k. Messages of stage s of slice k are awaited in turn k +
    (s + 1) LAG, earlier slices first. A message of stage s is sent after stage s - 1 has completed. Therefore, the
    message that the slowest rank waits for has been sent, or will be sent independently of that rank. Deadlocks are
    impossible.
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
