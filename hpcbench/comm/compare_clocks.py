"""How a rank's clock differs from the first rank's: found by messages there and back.

A rank asks the first one for the time, again and again; the answer was given between question and arrival, so that the
shortest way there and back bounds the error. Ranks of one host have one clock, and are asked all the same.
"""

import time

import numpy as np
from mpi4py import MPI

from hpcbench.comm.progress import Progress
from hpcbench.contract.trace import ClockComparison

ROUNDS = 16
"""Questions of a rank: the first ones wake the other side up."""


def compare(comm: MPI.Comm, progress: Progress, rounds: int = ROUNDS) -> ClockComparison:
    """Compare this rank's clock with the first one's (a collective call).

    Parameters
    ----------
    comm
        Nothing else may be under way on it.
    progress
        Waits in the way of this process.
    rounds
        Questions of each rank.
    """
    if comm.rank == 0:
        for peer in range(1, comm.size):
            _answer(comm, progress, peer, rounds)
        return ClockComparison(time.perf_counter(), 0.0, 0.0)
    found = [_ask(comm, progress) for _ in range(rounds)]
    return min(found, key=lambda one: one.error)


def _ask(comm: MPI.Comm, progress: Progress) -> ClockComparison:
    said = np.full(1, np.nan)
    answer = comm.Irecv(said, 0)
    begin = time.perf_counter()
    progress.complete([comm.Isend(np.zeros(1), 0), answer])
    end = time.perf_counter()
    middle = (begin + end) / 2
    return ClockComparison(middle, middle - float(said[0]), (end - begin) / 2)


def _answer(comm: MPI.Comm, progress: Progress, peer: int, rounds: int) -> None:
    asked = np.zeros(1)
    for _ in range(rounds):
        progress.complete([comm.Irecv(asked, peer)])
        progress.complete([comm.Isend(np.full(1, time.perf_counter()), peer)])
