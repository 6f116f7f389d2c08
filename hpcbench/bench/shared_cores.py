"""Cost of messages if ranks share cores, measured between computations as in training.

Calls in a tight loop are unrealistically fast. In training, a rank may still compute when its partner calls, and a
waiting rank repeatedly wakes up on a core that another rank needs. Each rank therefore computes before each call. The
cost of the call is the turn time minus the computation time.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from hpcbench.bench.exercise import OPERATIONS, Exercise
from hpcbench.bench.schemes import MeasuredScheme
from hpcbench.codecs.types import Array
from hpcbench.comm.group import Group
from hpcbench.comm.links import Links
from hpcbench.comm.progress import Progress
from hpcbench.comm.topology import Topology
from hpcbench.contract.traffic import Algorithm

SIZES = (1 << 10, 1 << 18, 1 << 20, 1 << 22)
"""Vector sizes in bytes."""
_WORK_S = 2e-3
"""Core seconds of computation before each call."""
_TURNS = {1 << 10: 12, 1 << 18: 8, 1 << 20: 5, 1 << 22: 3}


class AddedTime(NamedTuple):
    """Seconds that a call adds to a turn of all ranks.

    Attributes
    ----------
    operation
        Library collective, or ``send``, in which each rank sends one message while receiving another.
    ranks, crossing
        Number of ranks in the group, and whether the group spans several nodes. All groups call concurrently.
    """

    operation: str
    ranks: int
    crossing: bool
    bytes: int
    seconds: float


def measure(
    comm: MPI.Comm,
    progress: Progress,
    links: Links,
    values: Array,
    *,
    most: int,
    repeats: int,
    show: Callable[[int, int, str], object],
) -> list[AddedTime]:
    """Measure calls of pairs within a node, of pairs across nodes, and of all ranks.

    Parameters
    ----------
    comm, progress, links
        Communicator of all ranks, progress engine, and the links for choosing plans.
    values
        Vector values.
    most
        Size of the largest vector in bytes.
    """
    calls: list[AddedTime] = []
    sizes = [nbytes for nbytes in SIZES if nbytes <= max(most, SIZES[0])]
    todo = len(sizes) * sum(len(_list_operations(ranks)) for ranks, _, _ in _list_groupings(comm))
    for ranks, crossing, color in _list_groupings(comm):
        mine = comm.Split(color, comm.rank)
        group = Group(mine, progress, links)
        for operation in _list_operations(ranks):
            for nbytes in sizes:
                show(len(calls), todo, f"{operation} of {ranks} ranks between computations")
                turn = _make_turn(mine, group, operation, np.resize(values, nbytes // 4), progress)
                seconds = _measure_added_time(comm, progress, turn, _TURNS[nbytes] * repeats)
                calls.append(AddedTime(operation, ranks, crossing, nbytes, seconds))
        group.free()
    show(todo, todo, "")
    return calls


def _list_operations(ranks: int) -> list[str]:
    """List the operations to measure on groups of `ranks` ranks."""
    return ["send"] * (ranks == 2) + [name for name in OPERATIONS if name != "all-to-all"]


def _list_groupings(comm: MPI.Comm) -> list[tuple[int, bool, int]]:
    """List ways to divide the ranks into groups: group size, whether groups span nodes, and this rank's group color."""
    topology, rank = Topology.of(comm), comm.rank
    node = next(k for k, members in enumerate(topology.members) if rank in members)
    place = topology.members[node].index(rank)
    groupings = []
    if all(len(members) % 2 == 0 for members in topology.members):
        groupings.append((2, False, node * comm.size + place // 2))
    even = topology.nodes % 2 == 0 and len({len(members) for members in topology.members}) == 1
    if even:
        groupings.append((2, True, node // 2 * comm.size + place))
    if comm.size > 2:
        groupings.append((comm.size, topology.nodes > 1, 0))
    return groupings


def _make_turn(mine: MPI.Comm, group: Group, operation: str, values: Array, progress: Progress) -> Callable[[], None]:
    """Return a function that computes and then calls `operation`."""
    if operation == "send":
        peer, received = 1 - mine.rank, np.empty_like(values)
        return _put_after_work(lambda: progress.complete([mine.Irecv(received, peer), mine.Isend(values, peer)]))
    channel = MeasuredScheme("none", Algorithm.NATIVE).channel()
    exercise = Exercise(mine, group, operation, values)
    return _put_after_work(lambda: exercise.encoded(channel))


def _put_after_work(call: Callable[[], None]) -> Callable[[], None]:
    def run_turn() -> None:
        _work()
        call()

    return run_turn


def _measure_added_time(comm: MPI.Comm, progress: Progress, turn: Callable[[], None], turns: int) -> float:
    """Return the difference between turn time and computation time in seconds, as the maximum over ranks."""

    def time_turns(turn: Callable[[], None]) -> float:
        progress.complete([comm.Ibarrier()])
        begin = time.perf_counter()
        for _ in range(turns):
            turn()
        progress.complete([comm.Ibarrier()])
        return (time.perf_counter() - begin) / turns

    turn()
    longer = time_turns(turn) - time_turns(_work)
    most: float = comm.allreduce(longer, MPI.MAX)
    return max(most, 0.0)


_FACTOR = np.full((128, 128), 1e-3, np.float32)


def _work() -> None:
    end = time.thread_time() + _WORK_S
    while time.thread_time() < end:
        np.dot(_FACTOR, _FACTOR)


def make_rows(calls: Sequence[AddedTime]) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    return [call._asdict() for call in calls]
