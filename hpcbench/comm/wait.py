"""How a rank waits for its messages.

MPI libraries wait by polling at full speed. That is right where each rank owns a core, and ruinous where ranks share
cores: the one that waits takes the time of the one it waits for. The way of waiting is chosen once a run and is the
same for the MPI library's own collectives and for ours, so that schemes stay comparable.
"""

import time
from collections.abc import Sequence
from typing import Protocol

from mpi4py import MPI


class Wait(Protocol):
    """Completes requests; returns the status of each, in order."""

    def __call__(self, requests: Sequence[MPI.Request]) -> list[MPI.Status]: ...


def spin(requests: Sequence[MPI.Request]) -> list[MPI.Status]:
    """Wait inside the MPI library: least latency, one core a rank."""
    statuses = [MPI.Status() for _ in requests]
    MPI.Request.Waitall(list(requests), statuses)
    return statuses


def give_way(requests: Sequence[MPI.Request]) -> list[MPI.Status]:
    """Test now and then and sleep between, so that ranks that share a core can work."""
    statuses = [MPI.Status() for _ in requests]
    pending = list(requests)
    pause = 0.0
    while not MPI.Request.Testall(pending, statuses):
        time.sleep(pause)
        pause = min(pause + 10e-6, 200e-6)
    return statuses
