"""One collective on one vector, carried out by a channel or by the MPI library, and checked."""

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
"""Number of places, a prime, by which each rank's contribution is rotated against that of the rank before."""
_CHECKED, _PIECES = 1 << 20, 16
"""Most values that are checked, and the number of stretches of the vector that they come from."""


@dataclass(frozen=True)
class Operation:
    """A collective.

    Attributes
    ----------
    share
        Gives, for P ranks, the bytes that a bandwidth-optimal algorithm moves over each link for each byte of the
        vector (used for nccl-tests' bus bandwidth).
    encoded
        Carries it out by a channel of the group.
    blocking
        Carries it out by the MPI library's blocking call.
    """

    share: Callable[[int], float]
    encoded: Callable[["Exercise", Channel], Work]
    blocking: Callable[["Exercise"], object]


class Exercise:
    """Buffers of one operation on this rank.

    Parameters
    ----------
    comm
        Communicator of the group's ranks, for the exercise's own calls.
    group
        Carries out the encoded operations.
    operation
        One of `OPERATIONS`.
    values
        Vector of shape (n,). Every rank's contribution is a rotated copy of it.
    """

    def __init__(self, comm: MPI.Comm, group: Group, operation: str, values: Array) -> None:
        self.comm, self.group, self.name = comm, group, operation
        self.values = values
        self.n = values.size
        self.pieces = cut_evenly(self.n, comm.size)
        self.own = self.pieces[comm.rank]
        self.src = contribution(values, comm.rank)
        self.buf = np.zeros(self.n + comm.size, values.dtype)
        """Whole vectors before `n`. An all-to-all may receive a little more."""
        self.counts = [count_elements(piece) for piece in self.pieces]

    def prepare(self) -> None:
        """Restore values that an operation in place has changed."""
        np.copyto(self.whole, self.src)

    @property
    def whole(self) -> Array:
        """The vector's `n` values."""
        return self.buf[: self.n]

    def encoded(self, channel: Channel) -> None:
        """Carry the operation out by a channel, and wait for it."""
        OPERATIONS[self.name].encoded(self, channel).wait()

    def blocking(self) -> None:
        """Carry the operation out by the library."""
        OPERATIONS[self.name].blocking(self)

    def errors(self) -> tuple[float, float]:
        """Sums of squares of the error of this rank's result, and of the exact result."""
        lost = power = 0.0
        for at, want in self._wanted():
            got = self.buf[at : at + want.size].astype(np.float64)
            lost += float(np.square(got - want).sum())
            power += float(np.square(want).sum())
        return lost, power

    def _wanted(self) -> Sequence[tuple[int, Array]]:
        """Places in `buf`, and the float64 values that belong there."""
        own, ranks = self.own, range(self.comm.size)
        if self.name == "all-reduce":
            return [(a, self._sum(a, b)) for a, b in _stretches(slice(0, self.n))]
        if self.name == "reduce-scatter":
            return [(a - own.start, self._sum(a, b)) for a, b in _stretches(own)]
        if self.name == "reduce":
            return [(a, self._sum(a, b)) for a, b in _stretches(slice(0, self.n))] if self.comm.rank == 0 else []
        if self.name == "broadcast":
            return [(a, self._part(0, a, b)) for a, b in _stretches(slice(0, self.n))]
        most = _CHECKED // self.comm.size
        if self.name == "all-gather":
            return [(a, self._part(rank, a, b)) for rank in ranks for a, b in _stretches(self.pieces[rank], most)]
        size = count_elements(own)
        return [
            (rank * size + a - own.start, self._part(rank, a, b)) for rank in ranks for a, b in _stretches(own, most)
        ]

    def _sum(self, start: int, stop: int) -> Array:
        total = self._part(0, start, stop)
        for rank in range(1, self.comm.size):
            total += self._part(rank, start, stop)
        return total

    def _part(self, rank: int, start: int, stop: int) -> Array:
        places = np.arange(start, stop) - rank * _STRIDE
        return self.values[places % self.n].astype(np.float64)


def contribution(values: Array, rank: int) -> Array:
    """The contribution of a rank, made from values that all ranks have."""
    return np.roll(values, rank * _STRIDE % values.size)


def _stretches(piece: slice, most: int = _CHECKED) -> list[tuple[int, int]]:
    """The whole piece or, if it has more than `most` values, some stretches from its start to its end."""
    size = count_elements(piece)
    if size <= max(most, _PIECES):
        return [(piece.start, piece.stop)]
    part = max(1, most // _PIECES)
    return [(a, a + part) for a in (piece.start + k * (size - part) // (_PIECES - 1) for k in range(_PIECES))]


def _mine(exercise: Exercise) -> Array:
    return exercise.buf[: count_elements(exercise.own)]


def _come(exercise: Exercise) -> list[int]:
    """Number of elements that an all-to-all brings from each rank."""
    return [count_elements(exercise.own)] * exercise.comm.size


def _all_to_all(exercise: Exercise, channel: Channel) -> Work:
    come = _come(exercise)
    into = exercise.buf[: sum(come)]
    return exercise.group.all_to_all(exercise.src, into, (exercise.counts, come), channel=channel)


OPERATIONS: dict[str, Operation] = {
    "all-reduce": Operation(
        lambda p: 2 * (p - 1) / p,
        lambda e, channel: e.group.all_reduce(e.whole, channel=channel),
        lambda e: e.comm.Allreduce(MPI.IN_PLACE, e.whole),
    ),
    "reduce-scatter": Operation(
        lambda p: (p - 1) / p,
        lambda e, channel: e.group.reduce_scatter(e.src, _mine(e), channel=channel),
        lambda e: e.comm.Reduce_scatter(e.src, _mine(e), e.counts),
    ),
    "all-gather": Operation(
        lambda p: (p - 1) / p,
        lambda e, channel: e.group.all_gather(e.src[e.own], e.whole, channel=channel),
        lambda e: e.comm.Allgatherv(e.src[e.own], [e.whole, e.counts]),
    ),
    "broadcast": Operation(
        lambda p: 1.0,
        lambda e, channel: e.group.broadcast(e.whole, 0, channel=channel),
        lambda e: e.comm.Bcast(e.whole),
    ),
    "reduce": Operation(
        lambda p: 1.0,
        lambda e, channel: e.group.reduce(e.src, e.whole, 0, channel=channel),
        lambda e: e.comm.Reduce(e.src, e.whole),
    ),
    "all-to-all": Operation(
        lambda p: (p - 1) / p,
        _all_to_all,
        lambda e: e.comm.Alltoallv([e.src, e.counts], [e.buf[: sum(_come(e))], _come(e)]),
    ),
}
"""Operations by name. Bytes are those of the whole vector: the input of a reduction, the result of a gathering."""
