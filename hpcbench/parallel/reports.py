"""Reports from all ranks to the first rank at the end of a step, and replies to all ranks, without a barrier.

The first rank is on the first pipeline stage, which finishes a step last. The other ranks have therefore already sent
their reports when the first rank waits for them. A reply is read some steps later, at the same step on every rank.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.work import Work

_REPORT, _ANSWER = 1, 2
"""MPI tags of reports and replies."""


class Reports:
    """Exchange of reports and replies.

    Parameters
    ----------
    world
        All ranks.
    exact
        Channel without compression.
    lag
        Number of steps until a reply is read.
    """

    def __init__(self, world: Group, exact: Channel, lag: int) -> None:
        self._world, self._exact, self._lag = world, exact, lag
        self._own: deque[int] = deque()
        """Unread replies on the first rank."""
        self._unread: deque[int] = deque()
        """Steps whose replies have not been read."""
        self._sendings: list[Work] = []

    def sums(self, values_here: Sequence[float]) -> list[float]:
        """Sum the values of all ranks on the first rank, in rank order. Other ranks return their own values."""
        if self._world.rank:
            self._send(np.array(values_here, np.float64), 0, _REPORT)
            return list(values_here)
        rows = [list(values_here)]
        for rank in range(1, self._world.size):
            values = np.full(len(values_here), np.nan)
            self._world.recv(values, rank, tag=_REPORT, channel=self._exact).wait()
            rows.append(values.tolist())
        return [sum(column) for column in zip(*rows, strict=True)]

    def answer(self, number: int, *, step: int) -> None:
        """Send a reply about a step to all ranks. Only the value on the first rank is used."""
        self._unread.append(step)
        if self._world.rank == 0:
            self._own.append(number)
            for rank in range(1, self._world.size):
                self._send(np.array([float(number)]), rank, _ANSWER)

    def read(self) -> dict[int, int]:
        """Read the reply that is due, keyed by step.

        The result is the same on all ranks, and empty if no reply is due.
        """
        return self._read(1) if len(self._unread) > self._lag else {}

    def drain(self) -> dict[int, int]:
        """Read all remaining replies, keyed by step, and wait until all messages have been sent."""
        answers = self._read(len(self._unread))
        for sending in self._sendings:
            sending.wait()
        self._sendings = []
        return answers

    def _read(self, count: int) -> dict[int, int]:
        return {self._unread.popleft(): self._next() for _ in range(count)}

    def _next(self) -> int:
        if self._world.rank == 0:
            return self._own.popleft()
        value = np.full(1, np.nan)
        self._world.recv(value, 0, tag=_ANSWER, channel=self._exact).wait()
        return int(value[0])

    def _send(self, values: npt.NDArray[np.float64], peer: int, tag: int) -> None:
        left = [sending for sending in self._sendings if not sending.done]
        for sending in self._sendings:
            if sending not in left:
                sending.wait()
        self._sendings = [*left, self._world.send(values, peer, tag=tag, channel=self._exact).in_background()]
