"""What messages cost where ranks share cores: measured between pieces of work, as training sends them.

Calls in a tight loop show too little. A rank that computes is not there when its partner calls, and one that waits
wakes up again and again on a core that another one needs. So each rank works for a while before each call, and while a
thread drives a call in the background; what a turn takes longer than its work is the cost of the call.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from hpcbench.bench.exercise import OPERATIONS, Exercise
from hpcbench.bench.schemes import Scheme
from hpcbench.codecs.types import Array
from hpcbench.comm.group import Group
from hpcbench.comm.links import Links
from hpcbench.comm.memory import Slice
from hpcbench.comm.progress import Operation, Progress
from hpcbench.comm.topology import Topology
from hpcbench.contract.traffic import Algorithm
from hpcbench.predict.core_costs import BACKGROUND, PLANNED, WORK_S, count_lost_cores

SIZES = (1 << 10, 1 << 18, 1 << 20, 1 << 22)
"""Bytes of the vectors."""
LESS_WORK_S = (0.0, 2.5e-4)
"""Seconds of a core before each call for ranks that call often: in a row, and between the pieces of small products."""
_SLEEP_S = 0.5
_TURNS = {1 << 10: 12, 1 << 18: 8, 1 << 20: 5, 1 << 22: 3}


class Call(NamedTuple):
    """What a call adds to a turn of all ranks.

    Attributes
    ----------
    operation
        A collective of the library's, or ``send``: a message that each rank sends while it receives one. ``planned``
        stands before one that a plan carries out, ``background`` before one that a thread drives while its rank works.
    ranks, crossing
        Ranks of the group, and whether it lies on several nodes. All groups call at the same time.
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
    work_s: float = WORK_S,
) -> list[Call]:
    """Calls of pairs within nodes, of pairs between nodes, and of all ranks.

    Parameters
    ----------
    comm, progress, links
        All ranks, their way of waiting, and the links by which plans are chosen.
    values
        What the vectors hold.
    most
        Bytes of the largest vector.
    work_s
        Seconds of a core before each call; 0 for calls in a row.
    """
    found: list[Call] = []
    sizes = [nbytes for nbytes in SIZES if nbytes <= max(most, SIZES[0])]
    todo = len(sizes) * sum(len(_operations(ranks)) for ranks, _, _ in _groupings(comm))
    for ranks, crossing, color in _groupings(comm):
        mine = comm.Split(color, comm.rank)
        driven = Progress(progress.wait, background=BACKGROUND in _operations(ranks))
        group = Group(mine, driven, links)
        for operation in _operations(ranks):
            for nbytes in sizes:
                show(len(found), todo, f"{operation} of {ranks} ranks after {1e3 * work_s:g} ms of work")
                turn = _turn(mine, group, operation, np.resize(values, nbytes // 4), progress, work_s)
                seconds = _added(comm, progress, turn, _TURNS[nbytes] * repeats, work_s)
                found.append(Call(operation, ranks, crossing, nbytes, seconds))
        group.free()
    show(todo, todo, "")
    return found


def waiting_share(comm: MPI.Comm, progress: Progress) -> float:
    """Share of a core that a rank takes while it waits for one that sleeps: the mean of those that wait."""
    progress.complete([comm.Ibarrier()])
    begin, own = time.perf_counter(), time.process_time()
    if comm.rank == 0:
        time.sleep(_SLEEP_S)
    progress.complete([comm.Ibarrier()])
    share = (time.process_time() - own) / (time.perf_counter() - begin)
    total: float = comm.allreduce(share if comm.rank else 0.0)
    return total / (comm.size - 1)


def waiting_takes(comm: MPI.Comm, progress: Progress) -> float | None:
    """Share of a core that a rank which waits takes from those who compute; None if each rank has a core of its own.

    A rank that wakes up also pushes what another one computes on out of the core and its caches, which no clock of its
    own counts. So as many ranks as there are cores compute, once while the others sleep, and once while they wait.
    """
    cores = len(os.sched_getaffinity(0))
    if comm.size <= cores:
        return None
    asleep, awake = _medians(
        comm,
        lambda passes: _beside(comm, progress, cores, passes, sleep=_SLEEP_S),
        lambda passes: _beside(comm, progress, cores, passes, sleep=0.0),
    )
    return count_lost_cores(asleep, awake, cores=cores, waiting=comm.size - cores)


def driving_takes(comm: MPI.Comm, progress: Progress) -> float | None:
    """Share of a core that a thread takes which drives a message that does not come, while all ranks compute.

    None if each rank has a core of its own, or if the MPI library allows no such thread.
    """
    cores = len(os.sched_getaffinity(0))
    if comm.size <= cores or MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        return None
    driver = Progress(progress.wait, background=True)

    def on_all_ranks(passes: int, *, driven: bool) -> float:
        return _beside(comm, driver, comm.size, max(1, passes * cores // comm.size), driven=driven)

    alone, beside = _medians(comm, partial(on_all_ranks, driven=False), partial(on_all_ranks, driven=True))
    return count_lost_cores(alone, beside, cores=cores, waiting=comm.size)


def _medians(comm: MPI.Comm, *ways: Callable[[int], float]) -> list[float]:
    """Median seconds of the same work in each way. In each turn all ways follow one another."""
    _compute(1)  # the first one makes ready what computes
    begin = time.thread_time()
    _compute(1)
    passes = max(1, int(_SLEEP_S / 3 / comm.allreduce((time.thread_time() - begin) / comm.size)))
    turns = [[way(passes) for way in ways] for _ in range(_TIMES)]
    return list(map(statistics.median, zip(*turns, strict=True)))


def _beside(
    comm: MPI.Comm, progress: Progress, computing: int, passes: int, *, sleep: float = 0.0, driven: bool = False
) -> float:
    """Mean seconds of work on so many ranks. The others sleep for `sleep` seconds, and then wait.

    Parameters
    ----------
    driven
        Whether a thread of each rank drives a message meanwhile, which comes when all are done.
    """
    progress.complete([comm.Ibarrier()])
    computes, message = comm.rank < computing, np.zeros(1)
    under_way = None
    if driven:
        under_way = Operation([_awaited(comm.Irecv(message, (comm.rank + 1) % comm.size))], 1)
        progress.start(under_way)
        progress.keep_moving()
    begin = time.perf_counter()
    if computes:
        _compute(passes)
    else:
        time.sleep(sleep)
    took = time.perf_counter() - begin if computes else 0.0
    progress.complete([comm.Ibarrier()])
    if under_way is not None:
        progress.complete([comm.Isend(np.zeros(1), (comm.rank - 1) % comm.size)])
        progress.finish(under_way)
    total: float = comm.allreduce(took)
    return total / computing


def _awaited(request: MPI.Request) -> Slice:
    yield [request]


def _compute(passes: int) -> None:
    for _ in range(passes):
        for factor in _FACTORS:
            np.dot(factor, factor)


def _operations(ranks: int) -> list[str]:
    """What is measured on groups of so many ranks."""
    background = ranks == 2 and MPI.Query_thread() >= MPI.THREAD_SERIALIZED
    return (
        ["send"] * (ranks == 2)
        + [PLANNED]
        + [name for name in OPERATIONS if name != "all-to-all"]
        + [BACKGROUND] * background
    )


def _groupings(comm: MPI.Comm) -> list[tuple[int, bool, int]]:
    """Ranks of a group, whether it crosses nodes, and the color of this rank's group."""
    topology, rank = Topology.of(comm), comm.rank
    node = next(k for k, members in enumerate(topology.members) if rank in members)
    place = topology.members[node].index(rank)
    found = []
    if all(len(members) % 2 == 0 for members in topology.members):
        found.append((2, False, node * comm.size + place // 2))
    even = topology.nodes % 2 == 0 and len({len(members) for members in topology.members}) == 1
    if even:
        found.append((2, True, node // 2 * comm.size + place))
    if comm.size > 2:
        found.append((comm.size, topology.nodes > 1, 0))
    return found


def _turn(
    mine: MPI.Comm, group: Group, operation: str, values: Array, progress: Progress, work_s: float
) -> Callable[[], None]:
    """Work and a call."""
    if operation == "send":
        peer, come = 1 - mine.rank, np.empty_like(values)
        return _after_work(lambda: progress.complete([mine.Irecv(come, peer), mine.Isend(values, peer)]), work_s)
    how, _, name = operation.rpartition(" ")
    scheme = Scheme("none", Algorithm.TWO_SHOT if operation == PLANNED else Algorithm.NATIVE)
    exercise, channel = Exercise(mine, group, name, values), scheme.channel()
    if how != "background":
        return _after_work(lambda: exercise.encoded(channel), work_s)

    def beside() -> None:
        begun = OPERATIONS[name].encoded(exercise, channel).in_background()
        _work(work_s)
        begun.wait()

    return beside


def _after_work(call: Callable[[], None], work_s: float) -> Callable[[], None]:
    def turn() -> None:
        _work(work_s)
        call()

    return turn


def _added(comm: MPI.Comm, progress: Progress, turn: Callable[[], None], turns: int, work_s: float) -> float:
    """Seconds that a turn takes longer than its work, on the rank that sees the most."""

    def seconds(turn: Callable[[], None]) -> float:
        progress.complete([comm.Ibarrier()])
        begin = time.perf_counter()
        for _ in range(turns):
            turn()
        progress.complete([comm.Ibarrier()])
        return (time.perf_counter() - begin) / turns

    turn()
    longer = seconds(turn) - (seconds(lambda: _work(work_s)) if work_s else 0.0)
    most: float = comm.allreduce(longer, MPI.MAX)
    return max(most, 0.0)


_FACTOR = np.full((128, 128), 1e-3, np.float32)
_FACTORS = np.full((32, 128, 128), 1e-3, np.float32)
"""As much as a small layer has of weights: 2 MiB."""
_TIMES = 5


def _work(work_s: float) -> None:
    end = time.thread_time() + work_s
    while time.thread_time() < end:
        np.dot(_FACTOR, _FACTOR)


def rows(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """The calls as a table holds them."""
    return [one._asdict() for one in calls]
