"""Script that runs hpcbench.train on two simulated hosts with one slow rank: RUN.json RANK SECONDS."""

import runpy
import socket
import sys
import time

from mpi4py import MPI

from hpcbench.train.trainer import Trainer

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
SLOW, SECONDS = int(sys.argv.pop(2)), float(sys.argv.pop(2))
backward = Trainer.backward


def late(self: Trainer, step: int) -> float:
    if RANK == SLOW:
        time.sleep(SECONDS)
    return backward(self, step)


socket.gethostname = lambda: f"n{2 * RANK // SIZE}"
Trainer.backward = late  # type: ignore[method-assign]
runpy.run_module("hpcbench.train", run_name="__main__")
