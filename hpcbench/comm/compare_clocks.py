"""Clock offset between a rank and rank 0, measured by message round trips.

A rank repeatedly requests the time from rank 0. Rank 0 reads its clock between the request and the arrival of the
reply, so the duration of the shortest round trip bounds the error. Ranks on the same host share a clock, but are
compared in the same way.
"""

import time

import numpy as np
from mpi4py import MPI

from hpcbench.comm.progress import Progress
from hpcbench.contract.trace import ClockComparison

ROUNDS = 16
"""Number of clock requests per rank. The first requests are slower because they wake up the process on rank 0."""


def compare(comm: MPI.Comm, progress: Progress, rounds: int = ROUNDS) -> ClockComparison:
    """Compare this rank's clock with rank 0's clock (a collective call).

    Parameters
    ----------
    comm
        Communicator without other messages in flight.
    progress
        Driver that waits for messages in this process.
    rounds
        Number of clock requests per rank.
    """
    if comm.rank == 0:
        for peer in range(1, comm.size):
            _answer(comm, progress, peer, rounds)
        return ClockComparison(time.perf_counter(), 0.0, 0.0)
    comparisons = [_ask(comm, progress) for _ in range(rounds)]
    return min(comparisons, key=lambda comparison: comparison.error)


def _ask(comm: MPI.Comm, progress: Progress) -> ClockComparison:
    time_there = np.full(1, np.nan)
    answer = comm.Irecv(time_there, 0)
    begin = time.perf_counter()
    progress.complete([comm.Isend(np.zeros(1), 0), answer])
    end = time.perf_counter()
    middle = (begin + end) / 2
    return ClockComparison(middle, middle - float(time_there[0]), (end - begin) / 2)


def _answer(comm: MPI.Comm, progress: Progress, peer: int, rounds: int) -> None:
    asked = np.zeros(1)
    for _ in range(rounds):
        progress.complete([comm.Irecv(asked, peer)])
        progress.complete([comm.Isend(np.full(1, time.perf_counter()), peer)])
