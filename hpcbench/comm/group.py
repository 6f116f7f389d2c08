"""A group: one communicator and the operations on it.

Every operation takes the channel that its traffic belongs to, writes into the caller's buffers (contiguous NumPy
arrays) and counts what this rank sent. A group of one rank sends nothing and encodes nothing.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from hpcbench.comm import native, plan
from hpcbench.comm.arrays import Array
from hpcbench.comm.channel import Algorithm, Channel
from hpcbench.comm.two_shot import TwoShot
from hpcbench.comm.wait import Wait


@dataclass
class Sending:
    """A message on its way; its bytes stay here until it has left."""

    request: MPI.Request
    wire: Array

    def done(self) -> bool:
        """Whether the message has left; also lets the MPI library go on with it."""
        return bool(self.request.Test())


class Group:
    """Operations on one communicator.

    Parameters
    ----------
    comm
        Owned by the group from here on: nobody else may send on it.
    wait
        How to wait for messages.
    """

    def __init__(self, comm: MPI.Comm, wait: Wait) -> None:
        self._comm = comm
        self._wait = wait
        self._two_shot = TwoShot(comm, wait)

    @property
    def rank(self) -> int:
        return self._comm.rank

    @property
    def size(self) -> int:
        return self._comm.size

    def all_reduce(self, buf: Array, *, channel: Channel, op: MPI.Op = MPI.SUM) -> None:
        """Reduce `buf` over the ranks, in place. Only the sum can be encoded."""
        if self.size == 1:
            return
        if op is not MPI.SUM and channel.algorithm is not Algorithm.NATIVE:
            raise ValueError("an encoded all-reduce sums: use an exact channel for other operations")
        self._run(
            channel,
            plan.all_reduce_bytes(self._piece_bytes(buf), self.rank),
            by_library=lambda: native.all_reduce(self._comm, self._wait, buf, op),
            encoded=lambda: self._two_shot.all_reduce(buf, channel),
        )

    def reduce_scatter(self, src: Array, dst: Array, *, channel: Channel) -> None:
        """Sum `src` over the ranks; `dst` receives this rank's piece as `plan.shards` cuts it."""
        if self.size == 1:
            dst[...] = src
            return
        self._run(
            channel,
            plan.reduce_scatter_bytes(self._piece_bytes(src), self.rank),
            by_library=lambda: native.reduce_scatter(self._comm, self._wait, src, dst),
            encoded=lambda: self._two_shot.reduce_scatter(src, dst, channel),
        )

    def all_gather(self, src: Array, dst: Array, *, channel: Channel) -> None:
        """Join the ranks' `src` in `dst`; the pieces are those of `plan.shards`."""
        if self.size == 1:
            dst[...] = src
            return
        self._run(
            channel,
            plan.all_gather_bytes(self._piece_bytes(dst), self.rank),
            by_library=lambda: native.all_gather(self._comm, self._wait, src, dst),
            encoded=lambda: self._two_shot.all_gather(src, dst, channel),
        )

    def send(self, buf: Array, peer: int, *, tag: int, channel: Channel) -> Sending:
        """Encode `buf` and start to send it; the caller may change `buf` at once."""
        start = time.perf_counter()
        wire = np.empty(channel.codec.wire_bytes(buf.size, buf.dtype), dtype=np.uint8)
        used = channel.codec.encode(buf.reshape(-1), wire, seed=channel.counters.calls)
        channel.counters.encode_s += time.perf_counter() - start
        channel.counters.sent(buf.nbytes, used)
        return Sending(self._comm.Isend([wire[:used], MPI.BYTE], peer, tag), wire)

    def recv(self, buf: Array, peer: int, *, tag: int, channel: Channel) -> None:
        """Wait for a message of `peer` and decode it into `buf`."""
        wire = np.empty(channel.codec.wire_bytes(buf.size, buf.dtype), dtype=np.uint8)
        with _transfer(channel):
            (status,) = self._wait([self._comm.Irecv([wire, MPI.BYTE], peer, tag)])
        start = time.perf_counter()
        channel.codec.decode(wire[: status.Get_count(MPI.BYTE)], buf.reshape(-1))
        channel.counters.decode_s += time.perf_counter() - start

    def finish(self, sendings: list[Sending]) -> None:
        """Wait until all messages have left."""
        self._wait([sending.request for sending in sendings])

    def _run(
        self, channel: Channel, message: int, *, by_library: Callable[[], None], encoded: Callable[[], int]
    ) -> None:
        """Do a collective in the channel's way and count it; `encoded` returns the bytes that it sent."""
        if channel.algorithm is Algorithm.NATIVE:
            with _transfer(channel):
                by_library()
            channel.counters.sent(message, message)
        else:
            channel.counters.sent(message, encoded())

    def _piece_bytes(self, buf: Array) -> list[int]:
        return [plan.length(piece) * buf.itemsize for piece in plan.shards(buf.size, self.size)]


@contextmanager
def _transfer(channel: Channel) -> Iterator[None]:
    """Add the time of the block to the channel's transfer time."""
    start = time.perf_counter()
    yield
    channel.counters.transfer_s += time.perf_counter() - start
