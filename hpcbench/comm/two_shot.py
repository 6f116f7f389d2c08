"""Encoded collectives that round few times, however many ranks there are.

A reduction is an encoded all-to-all (each rank sends every other rank that one's piece), a sum of the decoded pieces
in rank order, and an encoded all-gather of the sums: two roundings a value (arXiv 2306.10209 section 4.3 reduces its
gradients so; a ring that encodes anew at each hop rounds once a rank). Replicas agree bit for bit because everyone,
the owner included, decodes the same bytes of the gathered sums.
"""

import time
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcbench.comm.arrays import Array
from hpcbench.comm.channel import Channel
from hpcbench.comm.plan import length, shards
from hpcbench.comm.wait import Wait

_TAG = 1


class TwoShot:
    """Scratch memory and messages of one communicator.

    Parameters
    ----------
    comm
        Its ranks take part. Messages of others do not mix with these: the communicator is this object's alone.
    wait
        How to wait for messages.
    """

    def __init__(self, comm: MPI.Comm, wait: Wait) -> None:
        self._comm = comm
        self._wait = wait
        self._scratch: dict[str, Array] = {}

    def reduce_scatter(self, src: Array, dst: Array, channel: Channel) -> int:
        """Sum `src` over the ranks, this rank's piece into `dst`; returns the bytes that went on the wire.

        A rank's own contribution to its own piece never meets the codec.

        Raises
        ------
        ValueError
            `src` is neither fp32 nor fp64: a sum in half precision would round at each rank.
        """
        if src.dtype not in (np.float32, np.float64):
            raise ValueError(f"a reduction sums fp32 or fp64, not {src.dtype}: convert before it")
        pieces = shards(src.size, self._comm.size)
        rank = self._comm.rank
        counts = [length(piece) for piece in pieces]
        outgoing, wire = self._encode_pieces(src, pieces, channel)
        bound = channel.codec.wire_bytes(counts[rank], src.dtype)
        incoming = self._slots("contribution", [bound] * self._comm.size)
        sizes = self._exchange(outgoing, incoming, channel)

        start = time.perf_counter()
        total = np.zeros(counts[rank], dtype=src.dtype)
        for peer in range(self._comm.size):  # in rank order: the sum does not depend on who arrives first
            if peer == rank:
                total += src[pieces[rank]]
            elif counts[rank]:
                channel.codec.decode(incoming[peer][: sizes[peer]], total, accumulate=True)
        dst[...] = total
        channel.counters.decode_s += time.perf_counter() - start
        return wire

    def all_gather(self, src: Array, dst: Array, channel: Channel) -> int:
        """Join every rank's `src` in `dst`, each decoded from the bytes that all ranks have; returns bytes sent."""
        pieces = shards(dst.size, self._comm.size)
        codec = channel.codec
        start = time.perf_counter()
        own = self._slots("own", [codec.wire_bytes(src.size, src.dtype)])[0]
        used = codec.encode(src, own, seed=self._seed(channel, self._comm.rank)) if src.size else 0
        channel.counters.encode_s += time.perf_counter() - start

        peers = self._comm.size
        incoming = self._slots("gathered", [codec.wire_bytes(length(piece), dst.dtype) for piece in pieces])
        sizes = self._exchange([own[:used]] * peers, incoming, channel)

        start = time.perf_counter()
        for peer, piece in enumerate(pieces):
            encoded = own[:used] if peer == self._comm.rank else incoming[peer][: sizes[peer]]
            if length(piece):
                codec.decode(encoded, dst[piece])
        channel.counters.decode_s += time.perf_counter() - start
        return used * (peers - 1)

    def all_reduce(self, buf: Array, channel: Channel) -> int:
        """Sum `buf` over the ranks in place; returns the bytes that went on the wire."""
        piece = shards(buf.size, self._comm.size)[self._comm.rank]
        total = self._array("total", length(piece), buf.dtype)
        wire = self.reduce_scatter(buf, total, channel)
        return wire + self.all_gather(total, buf, channel)

    def _encode_pieces(self, src: Array, pieces: list[slice], channel: Channel) -> tuple[list[Array], int]:
        start = time.perf_counter()
        codec = channel.codec
        slots = self._slots("outgoing", [codec.wire_bytes(length(piece), src.dtype) for piece in pieces])
        outgoing, wire = [], 0
        for peer, piece in enumerate(pieces):
            used = 0
            if peer != self._comm.rank and length(piece):
                used = codec.encode(src[piece], slots[peer], seed=self._seed(channel, peer))
            wire += used
            outgoing.append(slots[peer][:used])
        channel.counters.encode_s += time.perf_counter() - start
        return outgoing, wire

    def _seed(self, channel: Channel, peer: int) -> int:
        """Of stochastic rounding: another one for each call, sender and receiver, and the same in every run."""
        return (channel.counters.calls * self._comm.size + self._comm.rank) * self._comm.size + peer

    def _exchange(self, outgoing: list[Array], incoming: list[Array], channel: Channel) -> list[int]:
        """Send ``outgoing[i]`` to rank i, receive from it into ``incoming[i]``; returns the bytes received of each.

        A receiver knows the bound of a message and learns its length from the message itself: no extra round trip.
        """
        start = time.perf_counter()
        rank, size = self._comm.rank, self._comm.size
        # each rank begins with another peer, so that not all send to rank 0 first
        peers = [(rank + step) % size for step in range(1, size)]
        receives = [self._comm.Irecv([incoming[peer], MPI.BYTE], peer, _TAG) for peer in peers]
        sends = [self._comm.Isend([outgoing[peer], MPI.BYTE], peer, _TAG) for peer in peers]
        statuses = self._wait([*receives, *sends])
        sizes = [0] * size
        for peer, status in zip(peers, statuses, strict=False):
            sizes[peer] = status.Get_count(MPI.BYTE)
        channel.counters.transfer_s += time.perf_counter() - start
        return sizes

    def _slots(self, name: str, nbytes: list[int]) -> list[Array]:
        """One byte buffer a peer, cut from memory that is kept from call to call, each on a 64-byte boundary."""
        starts = [0]
        for size in nbytes:
            starts.append(starts[-1] + -(-size // 64) * 64)
        memory = self._array(name, starts[-1], np.dtype(np.uint8))
        return [memory[start : start + size] for start, size in zip(starts, nbytes, strict=False)]

    def _array(self, name: str, n: int, dtype: np.dtype[Any]) -> Array:
        need = n * dtype.itemsize
        if name not in self._scratch or self._scratch[name].size < need:
            self._scratch[name] = np.empty(max(need, 64), dtype=np.uint8)
        return self._scratch[name][:need].view(dtype)
