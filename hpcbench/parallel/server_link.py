"""Messages between workers and the shards of the parameter server. Each rank has a worker and a shard.

A shard answers requests while its rank computes. For each worker, the shard has a generator, which receives the
worker's requests one by one. The generators advance together with all other operations of the rank. A request is a
header of numbers. A push also contains gradients.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

import numpy as np

from hpcbench.comm.channel import Channel, Counters
from hpcbench.comm.feedback import Feedback
from hpcbench.comm.group import Group
from hpcbench.comm.memory import Slice
from hpcbench.comm.progress import Progress, SliceQueue
from hpcbench.comm.work import Work
from hpcbench.parallel.buffers import Buffer
from hpcbench.parallel.server import Push, ServerShard, Tickets

_REQUEST, _REPLY = 1, 2
"""MPI tags of requests to a shard and of replies."""
_HEADER = 3
"""Number of header fields before the report."""


Residuals = Sequence[Sequence[Feedback | None]]
"""Residuals of messages, indexed by rank and piece."""


class What(IntEnum):
    """Kinds of worker requests."""

    PULL = 0
    PUSH = 1
    END = 2


class Until:
    """Condition that a generator waits for."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        self.done = condition


class Server:
    """Server of one rank's shard, with connections to all workers.

    Parameters
    ----------
    group
        Group of all ranks. Each rank has a worker and a shard.
    progress
        Progress engine of the generators.
    shard, tickets
        State of the shard, and the tickets. Only the tickets of the first rank are used.
    weights
        Function that returns copies of the shard's weights, one per piece.
    rooms
        Function that returns buffers for the gradients of one worker, one per piece.
    push, pull, exact
        Channels of gradients, of weights, and of headers.
    report
        Number of values in the report of a push.
    """

    def __init__(
        self,
        group: Group,
        progress: Progress,
        *,
        shard: ServerShard,
        tickets: Tickets,
        weights: Callable[[], list[Buffer]],
        rooms: Callable[[], list[Buffer]],
        push: Channel,
        pull: Channel,
        exact: Channel,
        report: int,
    ) -> None:
        self._group, self._progress = group, progress
        self.shard, self.tickets = shard, tickets
        self._weights, self._rooms, self._report = weights, rooms, report
        self._push, self._pull, self._exact = (replace(channel, counters=Counters()) for channel in (push, pull, exact))
        self._real = {id(self._push): push, id(self._pull): pull, id(self._exact): exact}
        self.lock = threading.Lock()
        """Lock that is held while weights are updated or copied, because another thread serves requests."""
        self._operation: SliceQueue | None = None

    def start(self) -> None:
        """Start to serve requests."""
        others = [rank for rank in range(self._group.size) if rank != self._group.rank]
        self._operation = SliceQueue([self._serve(worker) for worker in others], len(others))
        self._progress.start(self._operation)
        self._progress.keep_moving()

    def finish(self) -> None:
        """Block until all workers have announced that they have finished."""
        if self._operation:
            self._progress.finish(self._operation)
        self.hand_over()

    def check(self) -> None:
        """Raise the error that stopped the service, if any."""
        if self._operation and self._operation.error is not None:
            raise self._operation.error

    def wait(self, condition: Callable[[], bool]) -> None:
        """Block until the condition holds. Requests are served in the meantime."""

        def until() -> Slice:
            if not condition():
                yield Until(lambda: condition() or bool(self._operation and self._operation.error))

        operation = SliceQueue([until()], 1)
        self._progress.start(operation)
        self._progress.finish(operation)
        self.check()

    def hand_over(self) -> None:
        """Add the traffic of this shard to the counters of the channels. Call this method only between rounds."""
        for channel in (self._push, self._pull, self._exact):
            real, counters = self._real[id(channel)].counters, channel.counters
            real.calls += counters.calls
            real.plain_calls += counters.plain_calls
            real.add_messages(counters)
            channel.counters = Counters()

    @property
    def sent(self) -> tuple[int, int]:
        """Message and wire bytes of this shard that are not yet included in the counters of the channels."""
        channels = (self._push, self._pull, self._exact)
        return sum(channel.counters.message_bytes for channel in channels), sum(
            channel.counters.wire_bytes for channel in channels
        )

    def grant(self, worker: int) -> bool:
        """Return whether a worker may begin another gradient, and take a ticket if so.

        Only rank 0 calls this method.
        """
        with self.lock:
            return self.tickets.take(worker)

    def _serve(self, worker: int) -> Slice:
        while True:
            header = np.full(_HEADER + self._report, np.nan)
            yield from self._receive(header, worker, self._exact)
            what, clock, version = What(int(header[0])), int(header[1]), int(header[2])
            if what is What.END:
                return
            if what is What.PUSH:
                gradients = self._rooms()
                for gradient in gradients:
                    yield from self._receive(gradient, worker, self._push)
                with self.lock:
                    self.shard.push(Push(worker, clock, version, tuple(header[_HEADER:].tolist()), gradients))
                continue
            if self._group.rank == 0:
                if self.tickets.opened < version:  # the worker is already in the next round
                    yield Until(lambda version=version: self.tickets.opened >= version)  # type: ignore[misc]
                granted = self.grant(worker)
                yield from self._send(np.array([float(granted), float(self.tickets.until)]), worker, self._exact)
                if not granted:
                    continue
            if not self.shard.may_read(clock):
                yield Until(lambda clock=clock: self.shard.may_read(clock))  # type: ignore[misc]
            with self.lock:
                read, weights = self.shard.pull(worker, clock), self._weights()
            yield from self._send(np.array([float(read)]), worker, self._exact)
            for piece in weights:
                yield from self._send(piece, worker, self._pull)

    def _receive(self, buf: Buffer, peer: int, channel: Channel) -> Slice:
        return self._group.carried(channel, buf, peer, tag=_REQUEST, receives=True)

    def _send(self, buf: Buffer, peer: int, channel: Channel) -> Slice:
        return self._group.carried(channel, buf, peer, tag=_REPLY, receives=False)


class Worker:
    """Worker of one rank, which sends requests to all shards.

    Parameters
    ----------
    group
        The ranks.
    server
        Server of this rank's shard.
    push, pull, exact
        Channels of gradients, of weights, and of headers.
    report
        Number of values in the report of a push.
    """

    def __init__(
        self, group: Group, server: Server, *, push: Channel, pull: Channel, exact: Channel, report: int
    ) -> None:
        self._group, self._server, self._report = group, server, report
        self._push, self._pull, self._exact = push, pull, exact
        self._sendings: list[Work] = []
        self.clock = 0
        self.versions: list[int] = []
        """Version of the weights last read from each shard."""
        self.round = 0
        """Last step of the current round, as planned when the round began."""
        self.last_step = 0
        """Actual last step of the round, as reported by the first shard."""

    def pull(self, into: Sequence[Sequence[Buffer]]) -> bool:
        """Read the weights of all shards as soon as the workers' clocks permit this. Return False if no work remains.

        Parameters
        ----------
        into
            Buffers for the pieces of each shard, indexed by rank.
        """
        if not self._granted():
            return False
        rank_here, server = self._group.rank, self._server
        for rank in self._others():
            if rank:
                self._ask(rank, What.PULL, 0)
        self.versions = [0] * self._group.size
        for rank in self._others():
            version = np.full(1, np.nan)
            self._recv(version, rank, self._exact)
            self.versions[rank] = int(version[0])
            for piece in into[rank]:
                self._recv(piece, rank, self._pull)
        server.wait(lambda: server.shard.may_read(self.clock))
        with server.lock:
            self.versions[rank_here] = server.shard.pull(rank_here, self.clock)
            for piece, values in zip(into[rank_here], server._weights(), strict=True):
                piece[...] = values
        return True

    def push(self, pieces: Sequence[Sequence[Buffer]], report: Sequence[float], feedback: Residuals | None) -> None:
        """Send a gradient to all shards.

        Parameters
        ----------
        pieces
            Gradient pieces of each shard, indexed by rank.
        report
            Values of the report.
        feedback
            Residuals of the pieces, indexed by rank.
        """
        for rank in self._others():
            self._ask(rank, What.PUSH, self.versions[rank], report)
            for k, piece in enumerate(pieces[rank]):
                residual = feedback[rank][k] if feedback else None
                work = self._group.send(piece, rank, tag=_REQUEST, channel=self._push, feedback=residual)
                self._sendings.append(work.in_background())
        rank_here, server = self._group.rank, self._server
        with server.lock:
            copies = [piece.copy() for piece in pieces[rank_here]]
            server.shard.push(Push(rank_here, self.clock, self.versions[rank_here], tuple(report), copies))
        self.clock += 1
        self._collect()

    def end(self) -> None:
        """Notify all shards that this worker sends no further requests."""
        for rank in self._others():
            self._ask(rank, What.END, 0)
        self.settle()

    def settle(self) -> None:
        """Wait until all messages have been sent."""
        for work in self._sendings:
            work.wait()
        self._sendings = []

    def _granted(self) -> bool:
        """Return whether the first shard grants a ticket."""
        if self._group.rank == 0:
            granted, self.last_step = self._server.grant(0), self._server.tickets.until
            return granted
        self._ask(0, What.PULL, self.round)
        answer = np.full(2, np.nan)
        self._recv(answer, 0, self._exact)
        self.last_step = int(answer[1])
        return bool(answer[0])

    def _others(self) -> Iterator[int]:
        """Yield all other ranks. Each worker begins with a different rank."""
        size, rank_here = self._group.size, self._group.rank
        return ((rank_here + step) % size for step in range(1, size))

    def _ask(self, rank: int, what: What, version: int, report: Sequence[float] = ()) -> None:
        header = np.zeros(_HEADER + self._report)
        header[:_HEADER] = what, self.clock, version
        header[_HEADER : _HEADER + len(report)] = report
        self._sendings.append(self._group.send(header, rank, tag=_REQUEST, channel=self._exact).in_background())

    def _recv(self, buf: Buffer, rank: int, channel: Channel) -> None:
        work = self._group.recv(buf, rank, tag=_REPLY, channel=channel)
        self._server.wait(lambda: work.done)
        work.wait()

    def _collect(self) -> None:
        left = [work for work in self._sendings if not work.done]
        for work in self._sendings:
            if work not in left:
                work.wait()
        self._sendings = left
