"""Time, bandwidth and error by vector size, for collectives with codecs and for MPI library collectives.

Every scheme completes a turn on all ranks before the next turn starts. The time of a call is the time on the slowest
rank. The first turn is not counted.
"""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcbench.bench.exercise import OPERATIONS, Exercise
from hpcbench.bench.memory import count_available_bytes
from hpcbench.bench.options import format_size
from hpcbench.bench.progress import Show
from hpcbench.bench.schemes import CollectiveRow, MeasuredScheme, Wanted, make_plan
from hpcbench.bench.timing import Subject, Times, time_in_turns
from hpcbench.bench.world import count_neighbors
from hpcbench.codecs.types import Array
from hpcbench.comm.group import Group
from hpcbench.comm.links import Links
from hpcbench.comm.plan import Plan
from hpcbench.comm.progress import Progress
from hpcbench.contract.traffic import Algorithm

_SMALL, _MORE = 64 * 2**10, 10
"""Maximum size of short calls in bytes, and the factor that increases their number of repeats."""
_ROOM = 8
"""Memory required per vector, as a multiple of the vector size.

The memory holds the contribution, the result, sent and received messages, and library buffers.
"""
_LIBRARY = ("blocking", "nonblocking")


class Bench:
    """Collective measurements on the ranks of a communicator.

    Parameters
    ----------
    comm
        Communicator of all ranks.
    progress
        Progress engine, which determines how ranks wait.
    links
        Link and codec speeds for choosing plans.
    values
        Values for the contributions, shape (n,) with any n.
    """

    def __init__(self, comm: MPI.Comm, progress: Progress, links: Links, values: Array) -> None:
        self.comm, self.progress, self.links = comm, progress, links
        self.group = Group(comm.Dup(), progress, links)
        self._values = values
        share = count_available_bytes() // count_neighbors(comm)
        self._available: int = comm.allreduce(share, MPI.MIN)

    def explain_too_large(self, nbytes: int) -> str | None:
        """Return why memory is insufficient for this vector size, or None if it suffices.

        All ranks return the same value.
        """
        if _ROOM * nbytes <= self._available:
            return None
        return (
            f"{format_size(nbytes)} is left out: it needs {_ROOM * nbytes / 2**20:.0f} MiB per rank, but only "
            f"{self._available / 2**20:.0f} MiB are available"
        )

    def measure_all(self, wanted: Wanted, show: Show) -> tuple[list[CollectiveRow], list[str]]:
        """Measure all cases. Return the rows, and the reasons for skipped cases."""
        rows: list[CollectiveRow] = []
        left_out = [reason for nbytes in wanted.sizes if (reason := self.explain_too_large(nbytes))]
        for operation, nbytes in wanted.cases():
            if self.explain_too_large(nbytes):
                continue
            plans = {s: make_plan(operation, nbytes, s, self.group.topology, self.links) for s in wanted.schemes}
            able = [scheme for scheme, plan in plans.items() if isinstance(plan, Plan)]
            if operation == "all-to-all":  # Only the codec makes a difference.
                able = list({scheme.codec: scheme for scheme in reversed(wanted.schemes)}.values())[::-1]
            else:
                left_out += [str(reason) for scheme, reason in plans.items() if scheme not in able]
            case = f"{operation} {format_size(nbytes)}"
            rows += self.measure(
                operation,
                nbytes,
                able,
                wanted.repeats,
                lambda done, total, name, case=case: show(done, total, f"{case}, {name}"),  # type: ignore[misc]
            )
        return rows, list(dict.fromkeys(left_out))

    def measure_native(self, operation: str, nbytes: int, repeats: int) -> tuple[float, bool]:
        """Return the time of the faster library call in seconds, and whether the blocking call was faster."""
        exercise = self._make_exercise(operation, nbytes)
        times = self._time(
            self._list_library_calls(exercise), exercise, nbytes, repeats, lambda done, total, name: None
        )
        blocking, waited = (each.median for each in times)
        return min(blocking, waited), blocking < waited

    def measure(
        self, operation: str, nbytes: int, schemes: Sequence[MeasuredScheme], repeats: int, show: Show
    ) -> list[CollectiveRow]:
        """Return a row for the MPI library, and a row for each scheme."""
        exercise = self._make_exercise(operation, nbytes)
        native = MeasuredScheme("none", Algorithm.NATIVE)
        facts = [self._check_call(exercise, native, "native")]
        facts += [self._check_call(exercise, scheme, str(scheme)) for scheme in schemes]
        subjects = self._list_library_calls(exercise)
        for scheme in schemes:
            subjects.append(Subject(str(scheme), {"call": partial(exercise.encoded, scheme.channel())}))
        times = self._time(subjects, exercise, nbytes, repeats, show)
        faster = min(range(2), key=lambda k: times[k].median)
        plain = times[faster]
        facts[0] = {**facts[0], "algorithm": _LIBRARY[faster]}
        rows = []
        for fact, taken in zip(facts, (plain, *times[2:]), strict=True):
            rate = nbytes / taken.median
            rows.append(
                CollectiveRow(
                    operation=operation,
                    bytes=nbytes,
                    seconds=taken.median,
                    seconds_least=taken.best,
                    algorithm_bandwidth=rate,
                    bus_bandwidth=rate * OPERATIONS[operation].share(self.comm.size),
                    speedup=statistics.median(a / b for a, b in zip(plain.seconds, taken.seconds, strict=True)),
                    **fact,
                )
            )
        return rows

    def _make_exercise(self, operation: str, nbytes: int) -> Exercise:
        return Exercise(self.comm, self.group, operation, np.resize(self._values, nbytes // 4))

    def _list_library_calls(self, exercise: Exercise) -> list[Subject]:
        waited = MeasuredScheme("none", Algorithm.NATIVE).channel()
        calls: tuple[Callable[[], None], ...] = (exercise.blocking, partial(exercise.encoded, waited))
        return [Subject(f"native {name}", {"call": call}) for name, call in zip(_LIBRARY, calls, strict=True)]

    def _time(self, subjects: list[Subject], exercise: Exercise, nbytes: int, repeats: int, show: Show) -> list[Times]:
        def ready() -> None:
            exercise.prepare()
            self.progress.complete([self.comm.Ibarrier()])

        turns = repeats * (_MORE if nbytes <= _SMALL else 1)
        times_of_rank = time_in_turns(subjects, turns, ready=ready, progress=show)
        return [find_slowest(self.comm, times["call"]) for times in times_of_rank]

    def _check_call(self, exercise: Exercise, scheme: MeasuredScheme, name: str) -> dict[str, Any]:
        """Return the error, the bytes, and the algorithm of one call."""
        channel = scheme.channel()
        exercise.prepare()
        exercise.encoded(channel)
        counters = channel.counters
        lost, power = exercise.sum_errors()
        sums = np.array([lost, power, counters.message_bytes, counters.wire_bytes], dtype=np.float64)
        self.comm.Allreduce(MPI.IN_PLACE, sums)
        chosen = make_plan(exercise.name, exercise.n * 4, scheme, self.group.topology, self.links)
        return {
            "scheme": name,
            "codec": channel.codec.name,
            "algorithm": next(iter(counters.algorithms)),
            "slices": len(chosen.slices) if isinstance(chosen, Plan) else 1,
            "relative_error": float(np.sqrt(sums[0] / sums[1])) if sums[1] else float(sums[0] > 0),
            "message_bytes": int(sums[2]),
            "wire_bytes": int(sums[3]),
            "plain_calls": counters.plain_calls,
        }


def find_slowest(comm: MPI.Comm, times: Times) -> Times:
    """Return the slowest rank's time in each turn."""
    seconds = np.array(times.seconds)
    comm.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
    return Times(tuple(seconds.tolist()))
