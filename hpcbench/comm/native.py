"""The MPI library's own collectives, the baseline for all schemes.

Calls are nonblocking, so that the wait strategy of the run applies. Blocking calls, which may be faster, are used if no
other operation is in flight. The library chooses the algorithm. Bytes are counted as for a bandwidth-optimal algorithm.
The module `half_sums` implements sums of 16-bit values.
"""

from typing import Any

import numpy as np
from mpi4py import MPI

from hpcbench.comm.arrays import Array
from hpcbench.comm.half_sums import KERNEL, HalfSum, agreed
from hpcbench.comm.memory import Slice
from hpcbench.comm.rounding import is_half
from hpcbench.contract.shards import count_elements, cut_evenly

_WHOLE = 1 << 15
"""Vectors up to this size in bytes are always summed in one call, with the library's datatype or hpcbench's kernel."""


class Library:
    """The collectives of one communicator.

    Parameters
    ----------
    comm
        The communicator. Creating a library is a collective call.
    half_sums
        Previously chosen sums of 16-bit values. If None, the ranks choose these sums now.

    Attributes
    ----------
    half_sums : dict of str to HalfSum
        Sums of 16-bit values, keyed by NumPy dtype name and identical on all ranks.
    """

    def __init__(self, comm: MPI.Comm, half_sums: dict[str, HalfSum] | None = None) -> None:
        self._comm, self._gathers = comm, comm.Dup()
        self._turn: _Turn | None = None
        self.half_sums = half_sums or agreed(comm)

    def free(self) -> None:
        """Free the communicator that this library created."""
        self._gathers.Free()

    def by_processor(self, dtype: np.dtype[Any]) -> bool:
        """Return whether values of this dtype are summed by a kernel that needs host memory."""
        return is_half(dtype) and self.half_sums[dtype.name].whose == KERNEL

    def all_reduce(self, buf: Array, op: MPI.Op, *, blocking: bool = False) -> Slice:
        """Reduce `buf` in place."""
        half = self._half(buf)
        if half is not None and half.whose == KERNEL and self._comm.size > 2 and buf.nbytes > _WHOLE:
            yield from self._in_two(buf, half, blocking=blocking)
        elif blocking:
            self._comm.Allreduce(MPI.IN_PLACE, _message(buf, half), half.op if half else op)
        else:
            yield [self._comm.Iallreduce(MPI.IN_PLACE, _message(buf, half), half.op if half else op)]

    def reduce_scatter(self, src: Array, dst: Array, *, blocking: bool = False) -> Slice:
        """Sum `src` over the ranks. `dst` receives this rank's piece."""
        half = self._half(src)
        counts = [count_elements(piece) for piece in cut_evenly(src.size, self._comm.size)]
        arguments = _message(src, half), _message(dst, half), counts, half.op if half else MPI.SUM
        if blocking:
            self._comm.Reduce_scatter(*arguments)
        else:
            yield [self._comm.Ireduce_scatter(*arguments)]

    def all_gather(self, src: Array, dst: Array, *, pieces: list[slice] | None = None, blocking: bool = False) -> Slice:
        """Concatenate `src` of all ranks in `dst`. By default, `dst` is cut evenly into the `pieces` of the ranks."""
        pieces = pieces or cut_evenly(dst.size, self._comm.size)
        if blocking:
            self._comm.Allgatherv(_message(src), _parts(dst, pieces))
        else:
            yield [self._comm.Iallgatherv(_message(src), _parts(dst, pieces))]

    def broadcast(self, buf: Array, root: int, *, blocking: bool = False) -> Slice:
        """Send `buf` of the root to all ranks."""
        if blocking:
            self._comm.Bcast(_message(buf), root)
        else:
            yield [self._comm.Ibcast(_message(buf), root)]

    def reduce(self, src: Array, dst: Array, root: int, *, blocking: bool = False) -> Slice:
        """Sum `src` over the ranks into `dst` of the root."""
        half = self._half(src)
        into = _message(dst, half) if self._comm.rank == root else None
        arguments = _message(src, half), into, half.op if half else MPI.SUM, root
        if blocking:
            self._comm.Reduce(*arguments)
        else:
            yield [self._comm.Ireduce(*arguments)]

    def all_to_all(self, src: Array, dst: Array, sends: list[slice], receives: list[slice]) -> Slice:
        """Send part i of `src` to rank i, and receive the parts of all ranks in `dst`."""
        yield [self._comm.Ialltoallv(_parts(src, sends), _parts(dst, receives))]

    def _half(self, buf: Array) -> HalfSum | None:
        return self.half_sums[buf.dtype.name] if is_half(buf.dtype) else None

    def _in_two(self, buf: Array, half: HalfSum, *, blocking: bool) -> Slice:
        """Sum with a reduce-scatter and an all-gather of the library.

        For user-defined operations, MPICH exchanges whole vectors: log2(p) times the vector size instead of 2 (p - 1) /
        p times. MPI requires the same order of collectives on all ranks. Therefore the gathers have a separate
        communicator and start in the order of the calls.
        """
        pieces = cut_evenly(buf.size, self._comm.size)
        mine: Array = np.empty(count_elements(pieces[self._comm.rank]), buf.dtype)
        self._turn = turn = _Turn(self._turn)
        yield from self.reduce_scatter(buf, mine, blocking=blocking)
        if not turn.done():
            yield turn
        if blocking:
            self._gathers.Allgatherv(_message(mine), _parts(buf, pieces))
            turn.take()
        else:
            request = self._gathers.Iallgatherv(_message(mine), _parts(buf, pieces))
            turn.take()
            yield [request]


class _Turn:
    """Position of a call in the sequence of gathers, which is the same on all ranks."""

    def __init__(self, before: "_Turn | None") -> None:
        self._before, self._taken = before, False

    def done(self) -> bool:
        """Return whether the previous call has started its gather."""
        return self._before is None or self._before._taken

    def take(self) -> None:
        self._taken, self._before = True, None


def _message(buf: Array, half: HalfSum | None = None) -> Any:
    """Wrap a buffer for mpi4py, which does not support bfloat16."""
    values = buf.view(np.uint16) if is_half(buf.dtype) else buf
    return [values, half.datatype] if half else values


def _parts(buf: Array, parts: list[slice]) -> list[object]:
    return [_message(buf), [count_elements(part) for part in parts], [part.start for part in parts], None]
