"""Cost of messages if ranks share cores, measured between pieces of work as in training.

Calls in a tight loop are too fast: in training a rank may compute when its partner calls, and a waiting rank repeatedly
wakes up on a core that another one needs. Each rank therefore computes before each call, and while a thread drives a
call in the background. The cost of the call is the time of a turn minus that of its work.
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
from hpcbench.predict.core_costs import BACKGROUND, PLANNED, count_lost_cores

SIZES = (1 << 10, 1 << 18, 1 << 20, 1 << 22)
"""Bytes of the vectors."""
_WORK_S = 2e-3
"""Seconds of a core that a rank computes before each call."""
_SLEEP_S = 0.5
_TURNS = {1 << 10: 12, 1 << 18: 8, 1 << 20: 5, 1 << 22: 3}


class AddedTime(NamedTuple):
    """Seconds that a call adds to a turn of all ranks.

    Attributes
    ----------
    operation
        Collective of the library, or ``send``: a message that each rank sends while it receives one. The prefix
        ``planned`` means that a plan carries out the call, ``background`` that a thread drives it while its rank works.
    ranks, crossing
        Number of ranks in the group, and whether it has several nodes. All groups call at the same time.
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
    """Measure calls of pairs within nodes, of pairs between nodes, and of all ranks.

    Parameters
    ----------
    comm, progress, links
        All ranks, their way of waiting, and the links from which plans are chosen.
    values
        Values of the vectors.
    most
        Bytes of the largest vector.
    """
    calls: list[AddedTime] = []
    sizes = [nbytes for nbytes in SIZES if nbytes <= max(most, SIZES[0])]
    todo = len(sizes) * sum(len(_list_operations(ranks)) for ranks, _, _ in _list_groupings(comm))
    for ranks, crossing, color in _list_groupings(comm):
        mine = comm.Split(color, comm.rank)
        driven = Progress(progress.wait, background=BACKGROUND in _list_operations(ranks))
        group = Group(mine, driven, links)
        for operation in _list_operations(ranks):
            for nbytes in sizes:
                show(len(calls), todo, f"{operation} of {ranks} ranks between pieces of work")
                turn = _make_turn(mine, group, operation, np.resize(values, nbytes // 4), progress)
                seconds = _measure_added_time(comm, progress, turn, _TURNS[nbytes] * repeats)
                calls.append(AddedTime(operation, ranks, crossing, nbytes, seconds))
        group.free()
    show(todo, todo, "")
    return calls


def measure_waiting_share(comm: MPI.Comm, progress: Progress) -> float:
    """Return the processor time over the time of a rank that waits for a sleeping one, a mean over waiting ranks."""
    progress.complete([comm.Ibarrier()])
    begin, begin_cpu = time.perf_counter(), time.process_time()
    if comm.rank == 0:
        time.sleep(_SLEEP_S)
    progress.complete([comm.Ibarrier()])
    share = (time.process_time() - begin_cpu) / (time.perf_counter() - begin)
    total: float = comm.allreduce(share if comm.rank else 0.0)
    return total / (comm.size - 1)


def measure_cores_of_waiting(comm: MPI.Comm, progress: Progress) -> float | None:
    """Return the cores that a waiting rank takes from computing ranks; None if each rank has its own core.

    A rank that wakes up also displaces another one from the core and its caches. Its own processor time does not
    include this. Therefore one rank per core computes, once while the others sleep, and once while they wait.
    """
    cores = len(os.sched_getaffinity(0))
    if comm.size <= cores:
        return None
    asleep, awake = _measure_medians(
        comm,
        lambda passes: _time_work(comm, progress, cores, passes, sleep=_SLEEP_S),
        lambda passes: _time_work(comm, progress, cores, passes, sleep=0.0),
    )
    return count_lost_cores(asleep, awake, cores=cores, waiting=comm.size - cores)


def measure_cores_of_driving(comm: MPI.Comm, progress: Progress) -> float | None:
    """Return the cores that a thread takes while it drives a message that does not arrive and all ranks compute.

    The result is None if each rank has its own core, or if the MPI library does not allow such a thread.
    """
    cores = len(os.sched_getaffinity(0))
    if comm.size <= cores or MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        return None
    driver = Progress(progress.wait, background=True)

    def time_all_ranks(passes: int, *, driven: bool) -> float:
        return _time_work(comm, driver, comm.size, max(1, passes * cores // comm.size), driven=driven)

    alone, driven = _measure_medians(comm, partial(time_all_ranks, driven=False), partial(time_all_ranks, driven=True))
    return count_lost_cores(alone, driven, cores=cores, waiting=comm.size)


def _measure_medians(comm: MPI.Comm, *ways: Callable[[int], float]) -> list[float]:
    """Return the median seconds of the same work in each way. Each turn runs all ways one after another."""
    _compute(1)  # warm-up
    begin = time.thread_time()
    _compute(1)
    passes = max(1, int(_SLEEP_S / 3 / comm.allreduce((time.thread_time() - begin) / comm.size)))
    turns = [[way(passes) for way in ways] for _ in range(_TIMES)]
    return list(map(statistics.median, zip(*turns, strict=True)))


def _time_work(
    comm: MPI.Comm, progress: Progress, computing: int, passes: int, *, sleep: float = 0.0, driven: bool = False
) -> float:
    """Return the mean seconds of work on `computing` ranks. The others sleep for `sleep` seconds, and then wait.

    Parameters
    ----------
    driven
        Whether a thread of each rank drives a message during the work. The message arrives when all ranks are done.
    """
    progress.complete([comm.Ibarrier()])
    computes, message = comm.rank < computing, np.zeros(1)
    operation = None
    if driven:
        operation = Operation([_await_request(comm.Irecv(message, (comm.rank + 1) % comm.size))], 1)
        progress.start(operation)
        progress.keep_moving()
    begin = time.perf_counter()
    if computes:
        _compute(passes)
    else:
        time.sleep(sleep)
    took = time.perf_counter() - begin if computes else 0.0
    progress.complete([comm.Ibarrier()])
    if operation is not None:
        progress.complete([comm.Isend(np.zeros(1), (comm.rank - 1) % comm.size)])
        progress.finish(operation)
    total: float = comm.allreduce(took)
    return total / computing


def _await_request(request: MPI.Request) -> Slice:
    yield [request]


def _compute(passes: int) -> None:
    for _ in range(passes):
        for factor in _FACTORS:
            np.dot(factor, factor)


def _list_operations(ranks: int) -> list[str]:
    """List the operations that are measured on groups of `ranks` ranks."""
    background = ranks == 2 and MPI.Query_thread() >= MPI.THREAD_SERIALIZED
    return (
        ["send"] * (ranks == 2)
        + [PLANNED]
        + [name for name in OPERATIONS if name != "all-to-all"]
        + [BACKGROUND] * background
    )


def _list_groupings(comm: MPI.Comm) -> list[tuple[int, bool, int]]:
    """List the groupings: ranks of a group, whether it crosses nodes, and the color of this rank's group."""
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
    """Return a function that works and calls `operation`."""
    if operation == "send":
        peer, received = 1 - mine.rank, np.empty_like(values)
        return _put_after_work(lambda: progress.complete([mine.Irecv(received, peer), mine.Isend(values, peer)]))
    how, _, name = operation.rpartition(" ")
    scheme = Scheme("none", Algorithm.TWO_SHOT if operation == PLANNED else Algorithm.NATIVE)
    exercise, channel = Exercise(mine, group, name, values), scheme.channel()
    if how != "background":
        return _put_after_work(lambda: exercise.encoded(channel))

    def overlap() -> None:
        call = OPERATIONS[name].encoded(exercise, channel).in_background()
        _work()
        call.wait()

    return overlap


def _put_after_work(call: Callable[[], None]) -> Callable[[], None]:
    def run_turn() -> None:
        _work()
        call()

    return run_turn


def _measure_added_time(comm: MPI.Comm, progress: Progress, turn: Callable[[], None], turns: int) -> float:
    """Return the seconds that a turn takes longer than its work, on the rank that measures the most."""

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
_FACTORS = np.full((32, 128, 128), 1e-3, np.float32)
"""Factors of 2 MiB, the size of a small layer's weights."""
_TIMES = 5


def _work() -> None:
    end = time.thread_time() + _WORK_S
    while time.thread_time() < end:
        np.dot(_FACTOR, _FACTOR)


def make_rows(calls: Sequence[AddedTime]) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    return [call._asdict() for call in calls]
