"""Messages of plans, carried by a gloo group of PyTorch, and the loop that drives slices over it.

gloo moves messages in threads of its own, and tells the end of a message only to those who wait for it. So slices are
driven in their order: while the oldest waits, the messages of the next ones are on their way.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import torch

from hpcbench.codecs.types import Array
from hpcbench.comm.memory import Slice

_LENGTH = np.dtype("<u8")
_LOOK_S = 5e-5
DEPTH = 4
"""Number of slices under way."""


class Waited(Protocol):
    """A message under way, as PyTorch gives it."""

    def wait(self) -> Any:
        """Return when the message has come or gone; raise if it never will."""


class PointToPoint(Protocol):
    """The part of a process group that carries messages."""

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int, /) -> Waited:
        """Begin to send a tensor."""

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int, /) -> Waited:
        """Begin to receive a tensor."""


def with_length(content: Array) -> Array:
    """A message that begins with the number of its bytes, because gloo does not tell how many came."""
    message = np.empty(_LENGTH.itemsize + content.size, dtype=np.uint8)
    message[: _LENGTH.itemsize] = np.array([content.size], _LENGTH).view(np.uint8)
    message[_LENGTH.itemsize :] = content
    return message


def room_for(nbytes: int) -> Array:
    """Room for a message of at most `nbytes` bytes behind its length."""
    return np.zeros(_LENGTH.itemsize + nbytes, dtype=np.uint8)


def behind_length(message: Array) -> Array:
    """The bytes of a received message.

    Raises
    ------
    ValueError
        The length is longer than the message can be.
    """
    length = int(message[: _LENGTH.itemsize].view(_LENGTH)[0])
    content = message[_LENGTH.itemsize :]
    if length > content.size:
        raise ValueError(f"a message says that it has {length} bytes, and {content.size} are the most it can have")
    return content[:length]


class _Sent:
    def __init__(self, work: Waited, content: Array) -> None:
        self._work, self._content = work, content  # the memory stays until it has left

    def wait(self) -> int:
        self._work.wait()
        return int(self._content.size)


class _Received:
    def __init__(self, work: Waited, inbox: Array, message: Array | None) -> None:
        self._work, self._inbox, self._message = work, inbox, message

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
        return _Sent(self._group.send([torch.from_numpy(message)], peer, tag), message)

    def receive(self, inbox: Array, peer: int, tag: int, *, varies: bool) -> _Received:
        """Begin to receive bytes."""
        message = room_for(inbox.size) if varies else None
        into = inbox if message is None else message
        return _Received(self._group.recv([torch.from_numpy(into)], peer, tag), inbox, message)

    def count(self, status: int) -> int:
        """Bytes of a received message."""
        return status


def _waited_for(awaited: Any) -> list[Any]:
    """The statuses of requests, once they are done; none of a device's work."""
    if isinstance(awaited, list):
        return [request.wait() for request in awaited]
    while not awaited.done():
        time.sleep(_LOOK_S)
    return []


def drive(slices: Iterable[Slice]) -> None:
    """Carry out slices to their end.

    The oldest slice always goes first. So the message that a rank waits for belongs to a slice that its sender has
    begun or will begin before it waits for a later one, and nobody waits for ever.
    """
    to_come = iter(slices)
    under_way: deque[tuple[Slice, Any]] = deque()
    while True:
        while len(under_way) < DEPTH and (coming := next(to_come, None)) is not None:
            awaited = next(coming, None)
            if awaited is not None:
                under_way.append((coming, awaited))
        if not under_way:
            return
        oldest, awaited = under_way.popleft()
        try:
            under_way.appendleft((oldest, oldest.send(_waited_for(awaited))))
        except StopIteration:
            continue
