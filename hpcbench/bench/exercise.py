"""One collective on one vector, run by a channel or by the MPI library, with a check of the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from hpcbench.codecs.types import Array
from hpcbench.comm.channel import Channel
from hpcbench.comm.group import Group
from hpcbench.comm.work import Work
from hpcbench.contract.shards import count_elements, cut_evenly

_STRIDE = 1_000_003
"""Rotation of each rank's values relative to the previous rank's values, in elements. A prime number."""
_CHECKED, _PIECES = 1 << 20, 16
"""Maximum number of values to check, and the number of parts of the vector from which these values are taken."""


@dataclass(frozen=True)
class ExercisedOperation:
    """A collective.

    Attributes
    ----------
    share
        Function of the number of ranks P. The function returns the bytes that a bandwidth-optimal algorithm moves over
        each link per byte of the vector, which defines the bus bandwidth as in nccl-tests.
    encoded
        Function that runs the operation with a channel of the group.
    blocking
        Function that runs the operation with the MPI library's blocking call.
    """

    share: Callable[[int], float]
    encoded: Callable[["Exercise", Channel], Work]
    blocking: Callable[["Exercise"], object]


class Exercise:
    """Buffers for one operation on this rank.

    Parameters
    ----------
    comm
        Communicator of the group's ranks, for calls that do not go through the group.
    group
        Group for the encoded operations.
    operation
        One of `OPERATIONS`.
    values
        Vector of shape (n,). Every rank's contribution is a rotated copy of these values.
    """

    def __init__(self, comm: MPI.Comm, group: Group, operation: str, values: Array) -> None:
        self.comm, self.group, self.name = comm, group, operation
        self.values = values
        self.n = values.size
        self.pieces = cut_evenly(self.n, comm.size)
        self.piece = self.pieces[comm.rank]
        self.src = rotate_values(values, comm.rank)
        self.buf = np.zeros(self.n + comm.size, values.dtype)
        """Buffer whose first `n` elements are the vector. An all-to-all may receive a few elements more."""
        self.counts = [count_elements(piece) for piece in self.pieces]

    def prepare(self) -> None:
        """Restore values after an in-place operation."""
        np.copyto(self.whole, self.src)

    @property
    def whole(self) -> Array:
        """Vector of `n` values."""
        return self.buf[: self.n]

    def encoded(self, channel: Channel) -> None:
        """Run the operation with a channel, and wait for completion."""
        OPERATIONS[self.name].encoded(self, channel).wait()

    def blocking(self) -> None:
        """Run the operation with the MPI library."""
        OPERATIONS[self.name].blocking(self)

    def sum_errors(self) -> tuple[float, float]:
        """Return the sums of squares of this rank's errors and of the exact result."""
        lost = power = 0.0
        for at, want in self._list_expected():
            got = self.buf[at : at + want.size].astype(np.float64)
            lost += float(np.square(got - want).sum())
            power += float(np.square(want).sum())
        return lost, power

    def _list_expected(self) -> Sequence[tuple[int, Array]]:
        """List pairs of an offset in `buf` and the exact float64 values from this offset on."""
        piece, ranks = self.piece, range(self.comm.size)
        if self.name == "all-reduce":
            return [(a, self._sum(a, b)) for a, b in _list_parts(slice(0, self.n))]
        if self.name == "reduce-scatter":
            return [(a - piece.start, self._sum(a, b)) for a, b in _list_parts(piece)]
        if self.name == "reduce":
            return [(a, self._sum(a, b)) for a, b in _list_parts(slice(0, self.n))] if self.comm.rank == 0 else []
        if self.name == "broadcast":
            return [(a, self._compute_part(0, a, b)) for a, b in _list_parts(slice(0, self.n))]
        most = _CHECKED // self.comm.size
        if self.name == "all-gather":
            return [
                (a, self._compute_part(rank, a, b)) for rank in ranks for a, b in _list_parts(self.pieces[rank], most)
            ]
        size = count_elements(piece)
        return [
            (rank * size + a - piece.start, self._compute_part(rank, a, b))
            for rank in ranks
            for a, b in _list_parts(piece, most)
        ]

    def _sum(self, start: int, stop: int) -> Array:
        total = self._compute_part(0, start, stop)
        for rank in range(1, self.comm.size):
            total += self._compute_part(rank, start, stop)
        return total

    def _compute_part(self, rank: int, start: int, stop: int) -> Array:
        places = np.arange(start, stop) - rank * _STRIDE
        part: Array = self.values[places % self.n].astype(np.float64)
        return part


def rotate_values(values: Array, rank: int) -> Array:
    """Return a rank's contribution, derived from values that all ranks hold."""
    return np.roll(values, rank * _STRIDE % values.size)


def _list_parts(piece: slice, most: int = _CHECKED) -> list[tuple[int, int]]:
    """Return the bounds of the piece's values to check.

    If the piece has more than `most` values, return the bounds of evenly spaced parts, which include the start and the
    end of the piece.
    """
    size = count_elements(piece)
    if size <= max(most, _PIECES):
        return [(piece.start, piece.stop)]
    part = max(1, most // _PIECES)
    return [(a, a + part) for a in (piece.start + k * (size - part) // (_PIECES - 1) for k in range(_PIECES))]


def _get_piece(exercise: Exercise) -> Array:
    return exercise.buf[: count_elements(exercise.piece)]


def _count_received(exercise: Exercise) -> list[int]:
    """Return the number of elements that an all-to-all receives from each rank."""
    return [count_elements(exercise.piece)] * exercise.comm.size


def _all_to_all(exercise: Exercise, channel: Channel) -> Work:
    received = _count_received(exercise)
    into = exercise.buf[: sum(received)]
    return exercise.group.all_to_all(exercise.src, into, (exercise.counts, received), channel=channel)


OPERATIONS: dict[str, ExercisedOperation] = {
    "all-reduce": ExercisedOperation(
        lambda p: 2 * (p - 1) / p,
        lambda e, channel: e.group.all_reduce(e.whole, channel=channel),
        lambda e: e.comm.Allreduce(MPI.IN_PLACE, e.whole),
    ),
    "reduce-scatter": ExercisedOperation(
        lambda p: (p - 1) / p,
        lambda e, channel: e.group.reduce_scatter(e.src, _get_piece(e), channel=channel),
        lambda e: e.comm.Reduce_scatter(e.src, _get_piece(e), e.counts),
    ),
    "all-gather": ExercisedOperation(
        lambda p: (p - 1) / p,
        lambda e, channel: e.group.all_gather(e.src[e.piece], e.whole, channel=channel),
        lambda e: e.comm.Allgatherv(e.src[e.piece], [e.whole, e.counts]),
    ),
    "broadcast": ExercisedOperation(
        lambda p: 1.0,
        lambda e, channel: e.group.broadcast(e.whole, 0, channel=channel),
        lambda e: e.comm.Bcast(e.whole),
    ),
    "reduce": ExercisedOperation(
        lambda p: 1.0,
        lambda e, channel: e.group.reduce(e.src, e.whole, 0, channel=channel),
        lambda e: e.comm.Reduce(e.src, e.whole),
    ),
    "all-to-all": ExercisedOperation(
        lambda p: (p - 1) / p,
        _all_to_all,
        lambda e: e.comm.Alltoallv([e.src, e.counts], [e.buf[: sum(_count_received(e))], _count_received(e)]),
    ),
}
"""Operations by name. Sizes refer to the whole vector, which is the input of a reduction or the result of a gather."""
